// Parts that the pages of both servers share: building the document, formatting values, calling the server.
//
// Text from the server enters the document only as text nodes and attributes of elements made here, never as HTML.

const SVG = "http://www.w3.org/2000/svg";
const USER_KEY = "hearth.user";

/// State that the pages share. `session`: what /ui/session says.
export const shared = { session: {}, user: savedUser() };

function savedUser() {
  try {
    return localStorage.getItem(USER_KEY) ?? "";
  } catch {
    return "";
  }
}

export function saveUser(user) {
  shared.user = user;
  try {
    localStorage.setItem(USER_KEY, user);
  } catch {
    // Without storage, the choice lasts as long as the page.
  }
}

/// Returns an element. `attributes`: `onclick` and the like take functions; null, undefined and false leave an attribute
/// out. `children`: elements, text, numbers, and lists of them; null and false are left out.
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/// Like `el`, for elements of SVG.
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "href") element.setAttribute("href", safeAddress(value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false).map((child) =>
    child instanceof Node ? child : String(child)));
  return element;
}

/// Returns the address if it cannot run code: a path or fragment of this server, or an address of HTTP.
export function safeAddress(address) {
  const text = String(address);
  return ["/", "#", "http://", "https://"].some((start) => text.startsWith(start)) ? text : "#";
}

export const replace = (place, ...children) => place.replaceChildren(...children.flat(9).filter(Boolean));

// Formatting.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function bytes(value) {
  if (!Number.isFinite(value)) return "–";
  let unit = 0;
  let left = Math.abs(value);
  while (left >= 1024 && unit + 1 < UNITS.length) {
    left /= 1024;
    unit += 1;
  }
  const sign = value < 0 ? "-" : "";
  return unit === 0 ? `${sign}${Math.round(left)} B` : `${sign}${left.toFixed(left < 10 ? 2 : 1)} ${UNITS[unit]}`;
}

export const bytesPerSecond = (value) => (Number.isFinite(value) ? `${bytes(value)}/s` : "–");

export function count(value) {
  if (!Number.isFinite(value)) return "–";
  const digits = Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : 1;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

/// Formats a number of things: `1 block`, `2 blocks`. `words`: an irregular plural.
export const plural = (value, word, words = `${word}s`) => `${count(value)} ${value === 1 ? word : words}`;

export const perSecond = (value) => (Number.isFinite(value) ? `${count(value)}/s` : "–");
export const milliseconds = (value) => (Number.isFinite(value) ? `${value.toFixed(value < 10 ? 2 : 0)} ms` : "–");

export function percent(part, whole) {
  return whole > 0 ? `${((part / whole) * 100).toFixed(1)} %` : "–";
}

/// Formats a duration in seconds: `3 d 4 h`, `12 s`.
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [[Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return "0 s";
  return parts.slice(first, first + 2).filter(([value]) => value > 0).map(([value, unit]) => `${value} ${unit}`).join(" ");
}

/// Formats a time in milliseconds since the epoch, in the time zone of the browser.
export function time(ms) {
  if (!ms) return "–";
  const date = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

// Calls.

/// An answer that is not a success. `status`: of HTTP; 0 if there was no answer.
export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/// Adds parameters to a path. Those that are null or undefined are left out.
export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined) query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/// Encodes the path of a file for a URL.
export const encodePath = (path) => path.split("/").map(encodeURIComponent).join("/");

export const webhdfs = (path, op, parameters = {}) =>
  address(`/webhdfs/v1${path === "/" ? "/" : encodePath(path)}`, { op, "user.name": shared.user || null, ...parameters });

/// Fetches from this server, as the chosen user. Returns the parsed JSON, or null if the answer is empty.
export async function call(url, method = "GET") {
  // Apache's servers demand this header of browsers with dfs.webhdfs.rest-csrf.enabled; any value will do.
  const header = shared.session.requiredHeader ?? "X-XSRF-HEADER";
  return parsed(await attempted(url, { method, headers: { [header]: "hearth", Accept: "application/json" }, cache: "no-store" }));
}

/// Fetches with the user as a parameter, like WebHDFS does.
export const data = (path, parameters = {}) => call(address(path, { "user.name": shared.user || null, ...parameters }));

/// Fetches public data of another server. No header is added that would make the browser ask first.
export async function callOther(url, patienceMs = 5000) {
  return parsed(await attempted(url, { cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(patienceMs) }));
}

export async function attempted(url, options) {
  let answer;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    const host = new URL(url, location.href).host;
    throw new Refused(`No answer from ${host}: ${error.message}`, 0);
  }
  if (answer.ok) return answer;
  throw await refusal(answer);
}

async function refusal(answer) {
  const text = await answer.text().catch(() => "");
  try {
    const { message, exception } = JSON.parse(text).RemoteException;
    return new Refused(`${exception}: ${message}`, answer.status);
  } catch {
    return new Refused(`${answer.status} ${answer.statusText} ${text.slice(0, 200)}`.trim(), answer.status);
  }
}

async function parsed(answer) {
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

// Parts of pages.

export const notice = (kind, ...children) => el("div", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : "status" }, ...children);

export const failure = (error) => notice("bad", error instanceof Error ? error.message : String(error));

export const state = (kind, text) => el("span", { class: `state ${kind}` }, text);

export const facts = (rows) =>
  el("dl", { class: "facts" }, rows.filter(Boolean).map(([name, ...value]) => [el("dt", {}, name), el("dd", {}, ...value)]));

export const card = (title, figure, ...more) =>
  el("section", { class: "card" }, el("h2", {}, title), el("div", { class: "figure" }, figure), ...more);

/// A bar that shows a part of a whole, for eyes only: the text beside it has the same figures.
export function meter(part, whole) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  return el("span", { class: share > 0.9 ? "meter full" : "meter", "aria-hidden": "true" },
    svg("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none" }, svg("rect", { width: share * 100, height: 1 })));
}

/// Returns a table. `columns`: `{ title, cell(row), number, name }`, where a cell is what `el` takes as a child.
export function table(caption, columns, rows, empty = "None.") {
  if (rows.length === 0) return el("div", {}, el("h3", {}, caption), el("p", { class: "quiet" }, empty));
  const kind = (column) => [column.number && "number", column.name && "name"].filter(Boolean).join(" ") || null;
  return el("div", { class: "scroll narrow" }, el("table", {},
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col", class: kind(column) }, column.title)))),
    el("tbody", {}, rows.map((row) => tableRow(columns, row)))));
}

export function tableRow(columns, row) {
  const kind = (column) => [column.number && "number", column.name && "name"].filter(Boolean).join(" ") || null;
  return el("tr", {}, columns.map((column) => el("td", { class: kind(column), "data-label": column.title }, column.cell(row))));
}

/// Asks in a dialog. `fields`: `{ name, label, type, value, checked, options, required, pattern, hint }`. Resolves to an object
/// of the values, or to null if the dialog was closed.
export function ask({ title, text, fields = [], confirm = "OK", danger = false }) {
  return new Promise((resolve) => {
    const inputs = new Map();
    let result = null;
    const made = fields.map((field) => {
      const { name, label, hint, options, type = "text", value = "", checked, ...rest } = field;
      const input = options
        ? el("select", { name }, options.map((option) => el("option", { value: option, selected: option === value }, option)))
        : el("input", { name, type, value: type === "checkbox" ? null : value, checked, autocomplete: "off", ...rest });
      inputs.set(name, input);
      const inline = type === "checkbox";
      return el("label", { class: inline ? "inline" : null }, inline ? [input, label] : [label, input],
        hint && el("span", { class: "quiet" }, hint));
    });
    const submit = (event) => {
      event.preventDefault();
      result = Object.fromEntries([...inputs].map(([name, input]) => [name, input.type === "checkbox" ? input.checked : input.value]));
      dialog.close();
    };
    const id = `title-${Math.random().toString(36).slice(2)}`;
    const dialog = el("dialog", { "aria-labelledby": id }, el("form", { onsubmit: submit },
      el("h2", { id }, title),
      text && el("p", { class: "anywhere" }, text),
      made,
      el("div", { class: "row end" },
        el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
        el("button", { type: "submit", class: danger ? "danger" : "primary" }, confirm))));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Navigation.

/// Starts the page: marks the current entry of the navigation, and shows a view for each address.
///
/// `views`: functions by name. Each gets the part of the address after its name, and a `View`.
/// `route(fragment)`: returns `[name, rest]`.
export function start(views, route) {
  const main = document.querySelector("main");
  const live = document.querySelector("#live");
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  let current = null;
  const show = async () => {
    const [name, rest] = route(location.hash.slice(1));
    current?.end();
    const view = new View(main);
    current = view;
    for (const link of document.querySelectorAll("nav a")) {
      if (link.getAttribute("href") === `#${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    main.replaceChildren(el("p", { class: "quiet" }, "Loading…"));
    try {
      await views[name](rest, view);
    } catch (error) {
      view.show(failure(error));
    }
    const title = main.querySelector("h1")?.textContent ?? name;
    document.title = `${title} – ${document.body.dataset.server}`;
    if (view.isCurrent) live.textContent = title;
    document.body.dataset.shown = location.hash;
  };
  window.addEventListener("hashchange", show);
  document.addEventListener("hearth-reload", show);
  show();
}

export const reload = () => document.dispatchEvent(new Event("hearth-reload"));

/// The place of what is shown now. When another address is shown, it takes nothing more, and its timers end.
export class View {
  constructor(main) {
    this.main = main;
    this.isCurrent = true;
    this.timers = [];
  }

  show(...children) {
    if (this.isCurrent) replace(this.main, children);
  }

  /// Calls `refresh` again and again, `seconds` after it has finished, while the page is visible and no control in it
  /// has the focus, which it would lose. `keepsControls`: `refresh` leaves the control with the focus where it is.
  every(seconds, refresh, keepsControls = false) {
    const next = () => {
      if (!this.isCurrent) return;
      this.timers.push(setTimeout(async () => {
        const focus = !keepsControls && document.activeElement?.closest("main a, main button, main summary");
        if (this.isCurrent && !document.hidden && !focus) await refresh().catch(() => {});
        next();
      }, seconds * 1000));
    };
    next();
  }

  end() {
    this.isCurrent = false;
    this.timers.forEach(clearTimeout);
  }
}

/// Loads the session, shows the user who acts, and lets the user be changed.
export async function startSession(button) {
  const refresh = async () => {
    shared.session = (await data("/ui/session")) ?? {};
    const { user, superuser, administrator, readOnly } = shared.session;
    const role = superuser ? " (superuser)" : administrator ? " (administrator)" : "";
    replace(button, `${user ? `Acting as ${user}` : "No user chosen"}${role}${readOnly ? ", read only" : ""}`);
  };
  button.addEventListener("click", async () => {
    const chosen = await ask({
      title: "Who acts",
      text: "Requests of these pages are made in this user's name. The server does not verify it. Leave it empty for the server's default.",
      fields: [{ name: "user", label: "User name", value: shared.user, pattern: "[A-Za-z_][A-Za-z0-9._\\-]*[$]?" }],
      confirm: "Use this name",
    });
    if (chosen === null) return;
    saveUser(chosen.user.trim());
    try {
      await refresh();
    } catch (error) {
      replace(button, error.message);
    }
    reload();
  });
  try {
    await refresh();
  } catch (error) {
    replace(button, error.message);
  }
}
