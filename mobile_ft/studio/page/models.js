// The model: bundles, exports, and what `info` says.

import { acting, ask, byId, choice, choose, chosen, defaults, make, redraw, removeButton, reporting, rowsTable, setOptions, tell } from "./page.js";

const form = byId("add-model-form");

export async function initModels() {
  form.elements.source.addEventListener("input", suggestName);
  form.addEventListener("submit", acting(add));
  byId("describe-source").addEventListener("click", acting(describeSource));
  await refresh();
}

function suggestName() {
  const last = form.elements.source.value.split("/").filter(Boolean).pop() ?? "";
  form.elements.name.value = last.replace(/\.gguf$/, "").replace(/[^A-Za-z0-9._-]/g, "-");
}

async function refresh() {
  const found = await ask("list_models");
  byId("builtin").replaceChildren(...found.builtin.map((name) => make("option", { value: name })));
  if (!found.models.includes(chosen.model)) choose({ model: found.models[0] ?? "" }); // the newest
  redraw(byId("models"), [found.models, chosen.model], ([names, current]) => names.length
    ? names.map((name) => choice("model", name, name === current, acting(() => select(name))))
    : [make("p", { class: "soft" }, "None yet. Add one below.")]);
  redraw(byId("exports"), found.exports, (all) => Object.entries(all).map(([name, job]) => exporting(name, job)));
  if (chosen.model && byId("model-info").childElementCount === 0) await reporting(describe)(chosen.model);
  if (Object.values(found.exports).some((job) => job.running)) setTimeout(reporting(() => follow(found.exports)), 700);
}

/** Goes on showing exports until they end. One that ended well is chosen. */
async function follow(before) {
  await refresh();
  const { models } = await ask("list_models");
  for (const name of Object.keys(before)) {
    if (!before[name].running || !models.includes(name)) continue;
    tell(`${name} is exported`);
    await select(name);
  }
}

function exporting(name, job) {
  if (!job.running) {
    const dismiss = make("button", { type: "button", click: acting(() => remove(name)), "aria-label": `Dismiss ${name}` }, "Dismiss");
    return make("p", { class: "card bad" }, `${name}: ${job.error || job.line} `, dismiss);
  }
  const bar = make("progress", { max: 1, value: job.progress, "aria-label": `export of ${name}` });
  return make("div", { class: "card" }, `Exporting ${name} `, bar, make("span", { class: "soft" }, job.line));
}

async function select(name) {
  choose({ model: name });
  byId("model-info").replaceChildren();
  await refresh();
}

async function describe(name) {
  const found = await ask("describe_model", { model: name });
  if (found.max_seq_len < Number(chosen.options.seq_len ?? defaults.seq_len)) setOptions({ seq_len: String(found.max_seq_len) });
  byId("model-info").replaceChildren(rowsTable(name, found.rows), removeButton(`Remove the bundle ${name}`, () => remove(name)));
}

async function remove(name) {
  byId("model-info").replaceChildren();
  await ask("remove_model", { model: name });
  await refresh();
}

async function describeSource() {
  const source = form.elements.source.value;
  byId("source-info").textContent = "Reading …";
  try {
    const found = await ask("describe_source", { source });
    byId("source-info").replaceChildren(rowsTable(found.title, found.rows));
  } catch (error) {
    byId("source-info").replaceChildren();
    throw error;
  }
}

async function add() {
  const { source, name, lora_rank, lora_alpha, max_seq_len } = form.elements;
  const options = { lora_rank: lora_rank.value, lora_alpha: lora_alpha.value, max_seq_len: max_seq_len.value };
  const found = await ask("add_model", { source: source.value, name: name.value, options });
  if (found.models.includes(name.value)) await select(name.value);
  else await refresh();
}
