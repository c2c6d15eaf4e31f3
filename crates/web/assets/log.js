// The page of the last lines of a server's log.

import { count, data, el } from "/ui/common.js";

/// Lines that the page keeps.
const LINES_MAX = 2000;
const LEVELS = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];

// Colours of a terminal.
const ESCAPES = /\u001b\[[0-9;]*m/g;

export async function log(_, view) {
  const find = el("input", { type: "search", placeholder: "Part of a line", "aria-label": "Find lines" });
  const level = el("select", { "aria-label": "Least level" }, el("option", { value: "" }, "all levels"),
    LEVELS.slice(0, 3).map((name) => el("option", { value: name }, `${name} and above`)));
  const shown = el("pre", { tabindex: "0", "aria-label": "Lines of the log" });
  const told = el("p", { class: "quiet" });
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
  await refresh();
  find.addEventListener("input", draw);
  level.addEventListener("change", draw);
  view.show(el("h1", {}, "Log"), el("div", { class: "row" }, find, level), told, shown);
  draw();
  shown.scrollTop = shown.scrollHeight;
  view.every(3, refresh);
}
