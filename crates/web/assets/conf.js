// The page of a server's configuration.

import { call, el, notice, plural, state, table } from "/ui/common.js";

export async function configuration(_, view) {
  const [{ properties }, { findings }] = await Promise.all([call("/conf?format=json"), call("/ui/findings")]);
  const find = el("input", { type: "search", placeholder: "Part of a key or value", "aria-label": "Find keys" });
  const onlySet = el("input", { type: "checkbox", checked: true });
  const list = el("div", {});
  const isSet = (entry) => !/-default(\.xml)?$/.test(entry.resource);
  const draw = () => {
    const wanted = find.value.trim().toLowerCase();
    const rows = properties.filter((entry) => (!onlySet.checked || isSet(entry)) &&
      (wanted === "" || `${entry.key} ${entry.value}`.toLowerCase().includes(wanted)));
    list.replaceChildren(table(plural(rows.length, "key"), [
      { title: "Key", name: true, cell: (entry) => el("span", { class: "mono" }, entry.key) },
      { title: "Value", cell: (entry) => el("span", { class: "mono anywhere" }, entry.value) },
      { title: "Source", cell: (entry) => el("span", { class: "anywhere" }, entry.resource) },
      { title: "Final", cell: (entry) => (entry.isFinal ? "final" : "") },
    ], rows, "No key matches."));
  };
  find.addEventListener("input", draw);
  onlySet.addEventListener("change", draw);
  const questions = findings.length > 0 && [
    notice("", state("warning", `${plural(findings.length, "setting")} to look at: `), "unknown, misspelled or without effect."),
    table("Settings to look at", [
      { title: "Key", name: true, cell: (finding) => el("span", { class: "mono" }, finding.key) },
      { title: "Value", cell: (finding) => el("span", { class: "mono anywhere" }, finding.value) },
      { title: "Source", cell: (finding) => el("span", { class: "anywhere" }, finding.place) },
      { title: "Problem", cell: (finding) => el("span", { class: "anywhere" }, finding.problem) },
    ], findings, ""),
  ];
  view.show(el("h1", {}, "Configuration"), questions, el("div", { class: "row" }, find, el("label", { class: "inline" }, onlySet, "only keys that were set")), list);
  draw();
}
