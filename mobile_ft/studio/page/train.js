// Runs: started, watched live, paused, resumed, laid over each other.

import { acting, ask, byId, chosen, make, onChange, redraw, reporting, seconds, setOptions, settled, tell } from "./page.js";
import { lines } from "./charts.js";

const form = byId("train-form");
const IN_FORM = ["steps", "lr", "loss"], ELSEWHERE = ["budget", "seq_len", "schedule", "optimizer"];
const STATUS = { running: "training", ended: "done", stopped: "stopped", failed: "failed" };
const runs = new Map(); // name -> {run, events, next, colour, pausing}
const shown = new Set();
let options = [];

export async function initTrain(all) {
  options = all;
  form.elements.loss.append(...options.find((option) => option.name === "loss").choices.map((value) => make("option", { value }, value)));
  byId("options").append(...options.filter((option) => ![...IN_FORM, ...ELSEWHERE].includes(option.name)).map(field));
  fill();
  form.elements.name.value = `run-${new Date().toISOString().slice(0, 10)}`;
  form.addEventListener("input", (event) => {
    const { name, value } = event.target;
    if (name !== "name") setOptions({ [name]: value });
  });
  form.addEventListener("submit", acting(start));
  for (const button of document.querySelectorAll("[data-copies]")) {
    button.addEventListener("click", acting(() => navigator.clipboard.writeText(byId(button.dataset.copies).textContent)));
  }
  const show = settled(reporting(showCommands), 300);
  form.elements.name.addEventListener("input", show);
  onChange((changes) => {
    if ("options" in changes) fill();
    show();
  });
  show();
  await poll();
}

export const runNames = () => [...runs.values()].filter(({ run }) => run.trained).map(({ run }) => run);

function field(option) {
  const help = `${option.help}${option.default ? ` (default: ${option.default})` : ""}`;
  const id = `help-${option.name}`;
  const common = { name: option.name, "aria-describedby": id };
  const values = option.type === "flag" ? ["true", "false"] : option.choices;
  const input = values?.length
    ? make("select", common, make("option", { value: "" }, "default"), ...values.map((value) => make("option", { value }, value)))
    : make("input", { ...common, autocomplete: "off", placeholder: option.default });
  return make("div", {}, make("label", {}, option.name.replaceAll("_", " "), input), make("p", { id, class: "help" }, help));
}

function fill() {
  for (const option of options) {
    const input = form.elements[option.name];
    if (!input || document.activeElement === input) continue;
    input.value = chosen.options[option.name] ?? (IN_FORM.includes(option.name) ? option.default : "");
  }
}

async function showCommands() {
  const name = form.elements.name.value;
  if (!chosen.model || !chosen.data || !name) {
    byId("shell").textContent = byId("python").textContent = "Choose a model and data first.";
    return;
  }
  const found = await ask("commands", { model: chosen.model, data: chosen.data, name, options: chosen.options });
  byId("shell").textContent = found.shell;
  byId("python").textContent = found.python;
}

async function start() {
  if (!chosen.model) throw new Error("Choose a model first.");
  if (!chosen.data) throw new Error("Choose data first.");
  const name = form.elements.name.value;
  await ask("start_run", { model: chosen.model, data: chosen.data, name, options: chosen.options });
  shown.clear();
  shown.add(name);
  form.elements.name.value = next(name);
  await poll();
}

function next(name) {
  const found = name.match(/^(.*?)-?(\d{1,3})$/);
  return found && !/\d{4}-\d{2}$/.test(found[1]) ? `${found[1]}-${Number(found[2]) + 1}` : `${name}-2`;
}

let timer = 0;

/** Reads what is new of the runs that are shown, and draws it. Goes on while one of them runs. */
export const poll = reporting(async () => {
  clearTimeout(timer);
  timer = setTimeout(poll, 3000); // if this fails
  const found = await ask("list_runs");
  for (const run of found.runs) {
    const before = runs.get(run.name)?.run.status;
    if (before && before !== run.status) tell(`${run.name}: ${STATUS[run.status]}`);
  }
  for (const name of [...runs.keys()]) if (!found.runs.some((run) => run.name === name)) runs.delete(name);
  for (const run of found.runs) {
    const known = runs.get(run.name) ?? { events: new Map(), next: 0, colour: runs.size };
    known.run = run;
    runs.set(run.name, known);
    if (run.status === "running") shown.add(run.name);
  }
  if (!shown.size && found.runs.length) shown.add(found.runs[0].name);
  for (const name of shown) if (runs.has(name)) await read(name);
  draw();
  document.dispatchEvent(new Event("runs"));
  clearTimeout(timer);
  if (found.runs.some((run) => run.status === "running")) timer = setTimeout(poll, 1000);
});

/** Reads the rest of a run's log, which comes in pieces. */
async function read(name) {
  const known = runs.get(name);
  for (;;) {
    const found = await ask("read_run", { run: name, start: known.next });
    for (const event of found.events) {
      // A resumed run repeats steps since its checkpoint.
      if (event.event === "step" || event.event === "eval") known.events.set(`${event.event} ${event.step}`, event);
      else known[event.event] = event;
    }
    known.run = found.run;
    if (found.next === known.next) return;
    known.next = found.next;
  }
}

function draw() {
  redraw(byId("runs"), [[...runs.values()].map(({ run, pausing }) => [run, pausing]), [...shown]], () => [table()]);
  const visible = [...shown].map((name) => runs.get(name)).filter(Boolean);
  byId("live").replaceChildren(...visible.filter(({ run }) => run.status === "running").map(live));
  const of = (kind, key, more = {}) => visible.map(({ run, events, colour }) => ({
    name: run.name, colour, ...more,
    points: [...events.values()].filter((event) => event.event === kind && typeof event[key] === "number").map((event) => [event.step, event[key]]),
  }));
  const evaluated = of("eval", "loss", { dashed: true }).map((one) => ({ ...one, name: `${one.name} validation` }));
  const planned = visible.filter((one) => one.plan).map(({ run, plan, colour, events }) => ({
    name: `${run.name} planned`, colour, dashed: true,
    points: [...events.values()].filter((event) => event.event === "step").map((event) => [event.step, plan.planned_mb]),
  }));
  const speed = of("step", "seconds").map((one, i) => ({ ...one, points: one.points.map(([step, time]) => [step, visible[i].events.get(`step ${step}`).tokens / time]) }));
  byId("charts").replaceChildren(...[
    lines("Loss", [...of("step", "loss"), ...evaluated], (value) => value.toFixed(3)),
    lines("Memory, MB", [...of("step", "rss_mb"), ...planned], (value) => value.toFixed(0), 0),
    lines("Learning rate", of("step", "lr"), (value) => value.toExponential(1)),
    lines("Tokens per second", speed, (value) => value.toFixed(0)),
  ].filter(Boolean));
}

function live({ run, events, plan }) {
  const steps = [...events.values()].filter((event) => event.event === "step");
  const last = steps[steps.length - 1];
  if (!plan || !last) return make("p", {}, `${run.name}: preparing …`);
  const times = steps.slice(-20).map((event) => event.seconds).sort((a, b) => a - b);
  const left = (plan.steps - last.step) * times[Math.floor(times.length / 2)];
  const text = `${run.name}: step ${last.step} of ${plan.steps}, loss ${last.loss?.toFixed(4)}, ` +
    `${last.rss_mb.toFixed(0)} of ${plan.planned_mb.toFixed(0)} MB planned, ${seconds(left)} left`;
  return make("div", { class: "card" }, text, make("progress", { max: plan.steps, value: last.step, "aria-label": `progress of ${run.name}` }));
}

function table() {
  if (!runs.size) return make("p", { class: "soft" }, "None yet.");
  const act = (action, name) => acting(async () => {
    await ask(action, { run: name });
    if (action === "remove_run") shown.delete(name);
    if (action === "stop_run") runs.get(name).pausing = true;
    if (action === "resume_run") runs.get(name).pausing = false;
    await poll();
  });
  const lines = [...runs.values()].map(({ run, pausing }) => {
    const box = make("input", { type: "checkbox", checked: shown.has(run.name), "aria-label": `show ${run.name}`, change: acting(async (event) => {
      if (event.target.checked) shown.add(run.name); else shown.delete(run.name);
      await poll();
    }) });
    const button = (text, action) => make("button", { type: "button", click: act(action, run.name), "aria-label": `${text} ${run.name}` }, text);
    const buttons = [
      run.status === "running" && !pausing ? button("Pause", "stop_run") : null,
      run.can_resume && run.status !== "running" ? button("Resume", "resume_run") : null,
      run.status !== "running" ? button("Remove", "remove_run") : null,
    ];
    const status = run.status === "running" && pausing ? "pausing after its step …" : STATUS[run.status];
    return make("tr", {}, make("td", {}, box), make("th", { scope: "row" }, run.name), make("td", {}, run.model),
      make("td", {}, status, run.error ? make("span", { class: "bad" }, `: ${run.error}`) : null),
      make("td", {}, make("div", { class: "buttons" }, ...buttons.filter(Boolean))));
  });
  const head = ["show", "run", "model", "status", "actions"].map((name) => make("th", { scope: "col" }, name));
  return make("div", { class: "table" }, make("table", { class: "stacked" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines)));
}
