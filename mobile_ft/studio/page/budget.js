// The budget: what a step needs, how it fits, and what would save memory.

import { ask, byId, chosen, make, onChange, redraw, reporting, seconds, setOptions, settled } from "./page.js";
import { stack } from "./charts.js";

const form = byId("budget-form");
const LABELS = {
  code: "code", weights_window: "weights in use", resident_weights: "weights kept", heap: "heap", lora: "adapter",
  no_adapter: "empty adapter", side_tensors: "shared tensors", start: "adapter before", gradients: "gradients",
  spare_gradients: "accumulated gradients", optimizer: "optimizer", kernel_scratch: "kernels", arena: "program",
  saved_activations: "stored activations", activations: "residual stream", checkpoints: "unit inputs",
};
const NAMES = { schedule: "layers trained per step", optimizer: "optimizer", max_grad_norm: "gradient clipping", ratio: "share of layers" };
let latest = 0;

export async function initBudget(options) {
  for (const name of ["schedule", "optimizer"]) {
    const option = options.find((entry) => entry.name === name);
    form.elements[name].append(...option.choices.map((value) => make("option", { value }, value)));
  }
  const { devices } = await ask("list_devices");
  form.elements.device.append(make("option", { value: "" }, "none"), ...devices.map((value) => make("option", { value }, value)));
  const replan = settled(reporting(plan), 150);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    const { slider, budget } = form.elements;
    if (event.target === slider) budget.value = slider.value;
    if (event.target === budget) slider.value = budget.value;
    chosen.device = form.elements.device.value;
    setOptions({ budget: budget.value ? `${budget.value}MB` : "", ...read("seq_len", "schedule", "optimizer") });
  });
  onChange((changes) => {
    if ("model" in changes || "options" in changes || "device" in changes) replan();
  });
}

const read = (...names) => Object.fromEntries(names.map((name) => [name, form.elements[name].value]));

/** Plans what is chosen. An answer that comes after a later question is dropped. */
export async function plan() {
  const place = byId("plan");
  if (!chosen.model) {
    place.replaceChildren(make("p", { class: "soft" }, "Choose a model first."));
    return;
  }
  const turn = ++latest;
  const { model, device } = chosen;
  const options = Object.fromEntries(Object.entries(chosen.options).filter(([name]) => stepNames.has(name)));
  let found = null;
  try {
    found = await ask("plan_step", { model, device, options });
  } catch (error) {
    if (turn === latest) redraw(place, "", () => []); // no plan of other options
    throw error;
  }
  if (turn !== latest) return;
  fill(found.plan);
  redraw(place, found, view);
}

export const stepNames = new Set();

/** Sets the form to what is chosen. The slider goes from the smallest budget to where all fits. */
function fill(plan) {
  const { slider, budget, seq_len, schedule, optimizer, device } = form.elements;
  const megabytes = parseFloat(chosen.options.budget ?? "");
  slider.min = Math.max(1, Math.floor(0.8 * plan.smallest_budget_mb));
  slider.max = Math.max(Number(slider.max), Math.ceil(1.2 * plan.planned_mb), megabytes || 0);
  slider.value = megabytes || Math.ceil(plan.planned_mb);
  seq_len.max = plan.max_seq_len;
  const values = [[budget, megabytes || ""], [seq_len, chosen.options.seq_len ?? plan.options.seq_len]];
  for (const [input, value] of values) if (document.activeElement !== input) input.value = value;
  schedule.value = chosen.options.schedule ?? plan.options.schedule;
  optimizer.value = chosen.options.optimizer ?? plan.options.optimizer;
  device.value = chosen.device;
}

function view({ plan, fits, there }) {
  const most = Math.max(plan.planned_mb, plan.budget_mb ?? 0);
  const parts = Object.entries(plan.components_mb).map(([name, size]) => ({ name: LABELS[name] ?? name, size }));
  const fitting = fits ? [] : [make("p", { class: "bad", role: "alert" },
    `Too small: the smallest budget that works is ${Math.ceil(plan.smallest_budget_mb)} MB. Raise it, or use one of the options below.`)];
  return [...fitting, stack(parts, most, plan.budget_mb), figures(plan, there), savings(plan)];
}

function figures(plan, there) {
  const stored = Object.values(plan.stored).reduce((sum, count) => sum + count, 0);
  const units = Object.values(plan.units).reduce((sum, count) => sum + count, 0);
  const rows = {
    "planned memory": `${plan.planned_mb.toFixed(1)} MB`,
    "of it anonymous": `${plan.planned_anon_mb.toFixed(1)} MB`,
    "a step here": seconds(plan.step_seconds),
    "against everything stored": `${plan.relative_time.toFixed(2)} times`,
    "units stored": `${stored} of ${units}`,
    "units recomputed": String(units - stored),
    "inputs offloaded to a file": String(plan.offloaded),
    "smallest budget": `${Math.ceil(plan.smallest_budget_mb)} MB`,
    "longest sequence": plan.longest_seq_len ? `${plan.longest_seq_len} tokens` : "none fits",
  };
  if (there) {
    const { device } = there;
    rows[`a step on ${device.name}`] = `${seconds(there.step_seconds)}, hot ${seconds(device.hot_step_seconds)} (estimate)`;
  }
  return make("dl", { class: "figures" }, ...Object.entries(rows).map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

function savings(plan) {
  if (!plan.savings.length) return make("p", { class: "soft" }, "No other option saves memory.");
  const lines = plan.savings.map((row) => {
    const text = Object.entries(row.options).map(([name, value]) => `${NAMES[name] ?? name}: ${value}`).join(", ");
    const use = () => setOptions(Object.fromEntries(Object.entries(row.options).map(([name, value]) => [name, String(value)])));
    return make("tr", {}, make("th", { scope: "row" }, text), make("td", { class: "short", "data-name": "planned" }, `${row.planned_mb.toFixed(1)} MB`),
      make("td", { class: "short", "data-name": "a step" }, seconds(row.step_seconds)), make("td", { class: "short", "data-name": "smallest budget" }, `${Math.ceil(row.smallest_budget_mb)} MB`),
      make("td", {}, make("button", { type: "button", click: use, "aria-label": `Use ${text}` }, "Use")));
  });
  const head = ["option", "planned", "a step", "smallest budget", ""].map((name) =>
    name ? make("th", { scope: "col" }, name) : make("td", {}));
  return make("div", { class: "table" }, make("h3", {}, "What would save memory"),
    make("table", { class: "stacked" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines)));
}
