// Answers side by side, thumbs, losses on the same rows, and adapters to take away.

import { acting, ask, byId, chosen, make, redraw, rowsTable } from "./page.js";
import { runNames } from "./train.js";

const BASE = "base";
const picked = new Set([BASE]);
let stopping = null;
let thumbs = 0;

export function initCompare() {
  byId("ask-form").addEventListener("submit", acting(askAll));
  byId("stop-answer").addEventListener("click", () => stopping?.abort());
  byId("compare-form").addEventListener("submit", acting(compareLosses));
  byId("make-form").addEventListener("submit", acting(takeAway));
  document.addEventListener("runs", () => refreshSides());
}

/** Lists the runs of the chosen model, whenever they change. */
export async function refreshCompare() {
  const { data } = await ask("list_data");
  const select = byId("compare-form").elements.data;
  const before = select.value || chosen.data;
  select.replaceChildren(...data.map((value) => make("option", { value, selected: value === before }, value)));
  refreshSides();
}

function refreshSides() {
  const names = runNames().filter((run) => run.model === chosen.model).map((run) => run.name);
  if (picked.size === 1 && picked.has(BASE) && names.length) picked.add(names[0]);
  redraw(byId("sides"), [BASE, ...names], (sides) => sides.map((name) => {
    const change = (event) => (event.target.checked ? picked.add(name) : picked.delete(name));
    return make("label", {}, make("input", { type: "checkbox", value: name, checked: picked.has(name), change }), ` ${name === BASE ? "base model" : name}`);
  }));
  const select = byId("make-form").elements.run;
  const before = select.value;
  redraw(select, names, () => names.map((value) => make("option", { value, selected: value === before }, value)));
}

const sides = () => [...byId("sides").querySelectorAll(":checked")].map((input) => input.value);

async function askAll() {
  if (!chosen.model) throw new Error("Choose a model first.");
  if (!sides().length) throw new Error("Choose who answers: the base model, a run, or both.");
  const { prompt, max_tokens, temp } = byId("ask-form").elements;
  const question = prompt.value;
  const columns = new Map(sides().map((side) => [side, column(side, question)]));
  byId("answers").replaceChildren(...[...columns.values()].map(({ box }) => box));
  stopping = new AbortController();
  byId("stop-answer").disabled = false;
  byId("ask-form").querySelector("[type=submit]").disabled = true;
  try {
    const options = { max_tokens: max_tokens.value, temp: temp.value };
    const body = JSON.stringify({ model: chosen.model, sides: [...columns.keys()], prompt: question, options });
    const headers = { "content-type": "application/json" };
    const response = await fetch("/answer", { method: "POST", headers, body, signal: stopping.signal });
    if (!response.ok) throw new Error((await response.json()).error);
    for await (const line of linesOf(response.body)) {
      if (line.error) throw new Error(line.error);
      const { text, buttons } = columns.get(line.side);
      text.textContent += line.text ?? "";
      if (line.end) buttons.hidden = false;
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  } finally {
    byId("stop-answer").disabled = true;
    byId("ask-form").querySelector("[type=submit]").disabled = false;
  }
}

async function* linesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

function column(side, question) {
  const text = make("div", { class: "answer" });
  const rate = (label, name) => make("button", { type: "button", click: acting(async (event) => {
    const found = await ask("thumb", { prompt: question, answer: text.textContent, label });
    for (const button of event.target.parentElement.children) button.disabled = true;
    byId("thumbs").textContent = `${++thumbs} rated; they are rows of ${found.name}. To learn from them, choose that file and "kto".`;
  }), "aria-label": `${name} the answer of ${side}` }, name);
  const buttons = make("div", { class: "buttons", hidden: true }, rate(true, "Like"), rate(false, "Dislike"));
  const box = make("div", { class: "card" }, make("h3", {}, side === BASE ? "base model" : side), text, buttons);
  return { box, text, buttons };
}

async function compareLosses() {
  const runs = sides().filter((side) => side !== BASE);
  if (!runs.length) throw new Error("Choose at least one run above.");
  byId("compared").textContent = "Computing …";
  try {
    const found = await ask("compare_runs", { model: chosen.model, runs, data: byId("compare-form").elements.data.value });
    byId("compared").replaceChildren(rowsTable(found.title, found.rows));
  } catch (error) {
    byId("compared").replaceChildren();
    throw error;
  }
}

async function takeAway(event) {
  const run = byId("make-form").elements.run.value, target = event.submitter.value, place = byId("made");
  if (!run) throw new Error("There is no run with an adapter yet.");
  place.textContent = "Writing …";
  try {
    const found = await ask("make", { run, target, data: target === "phone" ? chosen.data : "" });
    if (found.folder) place.textContent = `Written to ${found.folder}`;
    else place.replaceChildren(make("a", { href: `/made/${encodeURIComponent(found.file)}`, download: found.file }, `Download ${found.file}`));
  } catch (error) {
    place.replaceChildren();
    throw error;
  }
}
