// What all parts of the page use: elements, requests, what was chosen, errors.

export const byId = (id) => document.getElementById(id);

/** Makes an element. Attributes that are functions are listeners; null and false leave an attribute out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

let errorOf = null;

/** Shows an error above everything, or none. `source` is what failed: when that succeeds, its error goes. */
export function showError(message = "", source = null) {
  const place = byId("error");
  errorOf = message ? source : null;
  if (place.textContent === message) return;
  place.textContent = message;
  place.hidden = message === "";
  if (message) place.scrollIntoView({ block: "nearest" });
}

async function reach(address, request) {
  try {
    return await fetch(address, request);
  } catch {
    throw new Error("The studio's server does not answer. A training goes on without it; start the studio again to watch it.");
  }
}

async function checked(response) {
  const text = await response.text();
  let found = null;
  try {
    found = JSON.parse(text);
  } catch {
    if (response.ok) throw new Error("The server's answer was cut off.");
  }
  if (!response.ok) throw new Error(found?.error || text || response.statusText);
  return found;
}

/** Asks the server for an action, by the names of its values. */
export async function ask(action, values = {}) {
  const headers = { "content-type": "application/json" };
  return checked(await reach(`/do/${action}`, { method: "POST", headers, body: JSON.stringify(values) }));
}

export async function upload(file) {
  const name = file.name.replace(/[^\p{L}\p{N}_.-]|^\./gu, "-").replace(/^-/, "_");
  return checked(await reach(`/upload/${encodeURIComponent(name)}`, { method: "PUT", body: file }));
}

/** Does what a person asked for by a click or a change. Shows its error, in place of an earlier one. */
export function acting(work) {
  return (event) => {
    event?.preventDefault();
    showError();
    return reporting(work)(event);
  };
}

/** Does what nobody asked for just now, such as an update. Shows its error; without one, an earlier error stays. */
export function reporting(work) {
  return async (...values) => {
    try {
      await work(...values);
      if (errorOf === work) showError();
    } catch (error) {
      showError(error.message, work);
    }
  };
}

const drawn = new WeakMap();

/** What finds an element again after it was drawn anew. */
function selectorOf(element) {
  const label = element.getAttribute("aria-label");
  if (label) return `[aria-label="${CSS.escape(label)}"]`;
  return element.value ? `[value="${CSS.escape(element.value)}"]` : null;
}

/** Draws what is made of a value, if the value has changed. A button or box that had the focus keeps it. */
export function redraw(place, value, draw) {
  const text = JSON.stringify(value);
  if (drawn.get(place) === text) return;
  drawn.set(place, text);
  const selector = place.contains(document.activeElement) ? selectorOf(document.activeElement) : null;
  place.replaceChildren(...draw(value));
  if (selector) place.querySelector(selector)?.focus();
}

/** What was chosen: model, data, and options of the training by name. It survives the page. */
export const chosen = { model: "", data: "", device: "", options: {} };
const KEY = "mobile-ft-studio";
const listeners = [];

export function restore() {
  try {
    Object.assign(chosen, JSON.parse(localStorage.getItem(KEY) ?? "{}"));
  } catch {
    localStorage.removeItem(KEY);
  }
}

export function onChange(listener) {
  listeners.push(listener);
}

/** Changes what is chosen, and tells all parts what changed. */
export function choose(changes) {
  Object.assign(chosen, changes);
  localStorage.setItem(KEY, JSON.stringify(chosen));
  for (const listener of listeners) listener(changes);
}

/** What options are if they are not set, by name. */
export const defaults = {};

/** Sets options by name. One that is "" or its default is not set. */
export function setOptions(changes) {
  const options = { ...chosen.options, ...changes };
  for (const name of Object.keys(options)) if (["", defaults[name]].includes(options[name])) delete options[name];
  choose({ options });
}

/** A table of names and values. */
export function rowsTable(title, rows) {
  const lines = Object.entries(rows).map(([name, value]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, String(value))),
  );
  return make("div", { class: "card table" }, make("h3", {}, title), make("table", {}, make("tbody", {}, ...lines)));
}

/** A button that removes something, after a question. */
export function removeButton(text, remove) {
  return make("button", { type: "button", class: "remove", click: (event) => confirm(`${text}?`) && acting(remove)(event) }, text);
}

/** Tells screen readers what happened. */
export function tell(text) {
  byId("status").textContent = text;
}

/** A card to choose one of several. */
export function choice(group, name, isChosen, onChoose) {
  const input = make("input", { type: "radio", name: group, value: name, checked: isChosen, change: onChoose });
  return make("label", { class: "card" }, input, make("span", {}, name));
}

export function seconds(value) {
  if (value < 1) return `${Math.round(1000 * value)} ms`;
  if (value < 90) return `${value.toFixed(value < 10 ? 2 : 0)} s`;
  const minutes = Math.round(value / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Waits with the latest call until there were no others for some milliseconds. */
export function settled(work, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), milliseconds);
  };
}
