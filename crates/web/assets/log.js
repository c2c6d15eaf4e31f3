// The page of the last lines of a server's log, and of its levels.

import { address, call, count, data, el, failure, notice, plural, replace, shared, state, table } from "/ui/common.js";

/// Lines that the page keeps.
const LINES_MAX = 2000;
const LEVELS = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];
const LEVEL_PATH = "/ui/log-level";

// Colours of a terminal.
const ESCAPES = /\u001b\[[0-9;]*m/g;

export async function log(_, view) {
  const find = el("input", { type: "search", placeholder: "Part of a line", "aria-label": "Find lines" });
  const level = el("select", { "aria-label": "Least level" }, el("option", { value: "" }, "all levels"),
    LEVELS.slice(0, 3).map((name) => el("option", { value: name }, `${name} and above`)));
  const shown = el("pre", { tabindex: "0", "aria-label": "Lines of the log" });
  const told = el("p", { class: "quiet" });
  const settings = levelPart();
  let lines = [];
  let next = 0;
  const draw = () => {
    const wanted = find.value.trim().toLowerCase();
    const levels = LEVELS.slice(0, LEVELS.indexOf(level.value) + 1);
    const chosen = lines.filter((line) => (levels.length === 0 || levels.some((name) => line.includes(name))) && line.toLowerCase().includes(wanted));
    const followsEnd = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 4;
    shown.textContent = chosen.join("\n");
    told.textContent = `${count(chosen.length)} of the last ${count(lines.length)} lines`;
    if (followsEnd) shown.scrollTop = shown.scrollHeight;
  };
  const refresh = async () => {
    const answer = await data("/ui/log", { from: next });
    // After a restart the numbers begin again.
    if (answer.next < next) lines = [];
    lines = [...lines, ...answer.lines.map((line) => line.replaceAll(ESCAPES, ""))].slice(-LINES_MAX);
    const isNew = answer.lines.length > 0 || answer.next < next;
    next = answer.next;
    if (isNew) draw();
  };
  // The lines are shown even if the levels cannot be.
  await Promise.all([refresh(), settings.refresh().catch((error) => replace(settings.part, el("summary", {}, "Levels"), failure(error)))]);
  find.addEventListener("input", draw);
  level.addEventListener("change", draw);
  view.show(el("h1", {}, "Log"), settings.part, el("div", { class: "row" }, find, level), told, shown);
  draw();
  shown.scrollTop = shown.scrollHeight;
  // Controls stay: lines are added, and the list of levels is drawn again only when it has changed.
  view.every(3, () => Promise.all([refresh(), settings.refresh()]), true);
}

// Levels.

/// Returns the part about levels, and the function that brings it up to date: `{ part, refresh }`.
function levelPart() {
  const locked = shared.session.readOnly;
  const summary = el("summary", {});
  const list = el("div", {});
  const outcome = el("div", {});
  const module = el("input", { type: "text", name: "module", "aria-label": "Module", placeholder: "Module; empty: all", maxlength: 128, autocomplete: "off", spellcheck: "false", disabled: locked });
  const level = el("select", { name: "level", "aria-label": "New level", disabled: locked },
    LEVELS.map((name) => el("option", { value: name, selected: name === "DEBUG" }, name)));
  const resetAll = el("button", { type: "submit" }, "Reset all levels");
  let known = "";
  const refresh = async () => {
    const answer = await data(LEVEL_PATH);
    const text = JSON.stringify(answer);
    if (text === known) return;
    known = text;
    const [all, ...others] = answer.levels;
    replace(summary, `Levels: ${all.level}${others.length > 0 ? `; others for ${plural(others.length, "module")}` : ""}`);
    resetAll.disabled = locked || !answer.levels.some((entry) => entry.changed);
    replace(list,
      table("Levels of modules", [
        { title: "Module", name: true, cell: (entry) => (entry.module === "" ? "all other modules" : el("span", { class: "mono" }, entry.module)) },
        { title: "Level", cell: (entry) => entry.level },
        { title: "Since", cell: (entry) => (entry.changed ? state("warning", "changed") : "the start") },
        {
          title: "Actions",
          cell: (entry) => entry.changed && el("button", {
            type: "button", disabled: locked, "aria-label": `Reset ${entry.module || "all other modules"}`, onclick: () => change("DELETE", { module: entry.module }),
          }, "Reset"),
        },
      ], answer.levels),
      el("p", { class: "quiet" }, "At the start: ", el("span", { class: "mono anywhere" }, answer.start)),
      el("p", { class: "quiet" }, `Changes last until the process ends. They may be made by ${answer.administrators}.`));
  };
  /// Makes a change and says what came of it.
  const change = async (method, parameters) => {
    try {
      const answer = await call(address(LEVEL_PATH, { "user.name": shared.user || null, ...parameters }), method);
      replace(outcome, notice("good", method === "PUT" ? `The level of ${answer.module} is ${answer.level}.` : `Reset: the level of ${answer.module} is ${answer.level}.`));
      await refresh();
      // The button of a level that was reset is gone, and the focus with it.
      if (!part.contains(document.activeElement)) summary.focus();
    } catch (error) {
      replace(outcome, failure(error));
    }
  };
  const submit = (work) => (event) => {
    event.preventDefault();
    return work();
  };
  const part = el("details", { class: "card" }, summary, list,
    locked && el("p", { class: "quiet" }, "Changes are off, because hearth.web.read-only is true."),
    el("form", { class: "row", "aria-label": "Set a level", onsubmit: submit(() => change("PUT", { module: module.value.trim(), level: level.value })) },
      module, level, el("button", { type: "submit", class: "primary", disabled: locked }, "Set level")),
    el("form", { class: "row", "aria-label": "Reset all levels", onsubmit: submit(() => change("DELETE", {})) }, resetAll),
    el("p", { class: "quiet" }, "A module is a name such as hearth_namenode::blocks, which includes all below it, or a class of Hadoop."),
    outcome);
  return { part, refresh };
}
