// The page of a server's configuration.

import { call, el, plural, table } from "/ui/common.js";

export async function configuration(_, view) {
  const { properties } = await call("/conf?format=json");
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
  view.show(el("h1", {}, "Configuration"), el("div", { class: "row" }, find, el("label", { class: "inline" }, onlySet, "only keys that were set")), list);
  draw();
}
