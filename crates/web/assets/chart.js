// Charts of the last hour, drawn from /ui/history.

import { el, svg } from "/ui/common.js";

const WIDTH = 400;
const HEIGHT = 130;
const LEFT = 4;
const BOTTOM = 18;
const TOP = 16;

/// Returns the mean times in milliseconds at each time of `history`, from the sums in nanoseconds and the numbers of two series.
export function meanTimes(history, sums, counts) {
  return (history.series[sums] ?? []).map((nanos, place) => {
    const number = history.series[counts]?.[place];
    return Number.isFinite(nanos) && number > 0 ? nanos / number / 1e6 : null;
  });
}

/// Number of samples that count as now: a minute.
const RECENT_SAMPLES = 6;

/// Returns the last value of a list that is a number, unless it is older than a minute: a card says "now".
export const latest = (list) => list?.slice(-RECENT_SAMPLES).findLast((value) => Number.isFinite(value)) ?? NaN;

/// Returns the largest number among the values, at least `least`.
function largest(lists, least) {
  return lists.flat().reduce((most, value) => (value > most ? value : most), least);
}

/// Returns the path of a line. A value that is missing interrupts it.
function path(times, values, top, from, until) {
  const x = (at) => LEFT + ((at - from) / Math.max(1, until - from)) * (WIDTH - 2 * LEFT);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  let text = "";
  let draws = false;
  values.forEach((value, place) => {
    if (value === null || value === undefined) {
      draws = false;
      return;
    }
    text += `${draws ? "L" : "M"}${x(times[place]).toFixed(1)} ${y(value).toFixed(1)}`;
    draws = true;
  });
  return text;
}

/// Returns a chart of one or two series. `lines`: `[{ name, label }]`; `show`: formats a value.
export function chart(title, history, lines, show) {
  const times = history.times ?? [];
  const values = lines.map((line) => history.series?.[line.name] ?? []);
  const present = values.flat().some((value) => value !== null && value !== undefined);
  const last = values.map((list) => list.at(-1));
  const legend = el("p", { class: "legend" }, lines.map((line, place) => [
    place > 0 && " ",
    el("span", { class: place > 0 ? "key second" : "key", "aria-hidden": "true" }, place > 0 ? "┅ " : "━ "),
    `${line.label} ${show(last[place] ?? NaN)}`,
  ]));
  if (!present || times.length < 2) {
    return el("section", { class: "card chart" }, el("h3", {}, title), el("p", { class: "quiet" }, "Collecting values."), legend);
  }
  const until = times.at(-1);
  // An hour, or less if the server has just been started.
  const from = Math.max(times[0], until - 3600 * 1000);
  const top = largest(values.map((list) => list.filter((value) => value !== null)), 0) || 1;
  const minutes = Math.round((until - from) / 60000);
  const label = `${title}, last ${minutes} minutes: at most ${show(top)}; now ${lines.map((line, place) => `${line.label} ${show(last[place] ?? NaN)}`).join(", ")}`;
  return el("section", { class: "card chart" }, el("h3", {}, title),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
      svg("line", { class: "axis", x1: LEFT, x2: WIDTH - LEFT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }),
      svg("line", { class: "axis", x1: LEFT, x2: WIDTH - LEFT, y1: TOP, y2: TOP, "stroke-dasharray": "2 4" }),
      svg("text", { x: LEFT, y: TOP - 4 }, show(top)),
      svg("text", { x: LEFT, y: HEIGHT - 4 }, `${minutes} min ago`),
      svg("text", { x: WIDTH - LEFT, y: HEIGHT - 4, "text-anchor": "end" }, "now"),
      lines.map((line, place) => svg("path", { class: place > 0 ? "second" : null, d: path(times, values[place], top, from, until) }))),
    legend);
}
