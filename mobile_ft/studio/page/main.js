// One section at a time, by the address's hash; and the chosen model, data and budget above all.

import { ask, byId, chosen, defaults, onChange, reporting, restore } from "./page.js";
import { initModels } from "./models.js";
import { initData, lookAgain } from "./data.js";
import { initBudget, plan, stepNames } from "./budget.js";
import { initTrain, poll } from "./train.js";
import { initCompare, refreshCompare } from "./compare.js";

const SECTIONS = ["model", "data", "budget", "train", "compare"];
const OPENED = { data: lookAgain, budget: plan, train: poll, compare: refreshCompare };
let shown = "";

/** The section that the address names. Another place on the page, such as where the skip link leads, changes none. */
function current() {
  const name = location.hash.slice(1);
  return SECTIONS.includes(name) ? name : shown || SECTIONS[0];
}

async function show() {
  shown = current();
  for (const name of SECTIONS) byId(name).classList.toggle("shown", name === current());
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${current()}`) link.setAttribute("aria-current", "step");
    else link.removeAttribute("aria-current");
  }
  await OPENED[current()]?.();
}

function showChosen() {
  const { model, data, options } = chosen;
  const parts = [model || "no model", data || "no data", options.budget ? `budget ${options.budget}` : "no budget"];
  byId("chosen").textContent = parts.join(" · ");
}

restore();
onChange(showChosen);
showChosen();
reporting(async () => {
  const { options } = await ask("list_options");
  for (const option of options) {
    defaults[option.name] = option.default;
    if (option.group === "step") stepNames.add(option.name);
  }
  const showing = reporting(show);
  window.addEventListener("hashchange", () => {
    if (current() !== shown) window.scrollTo(0, 0);
    showing();
  });
  // A part that fails says so, and leaves the others alone.
  for (const init of [initModels, initData, initBudget, initTrain, initCompare]) await reporting(init)(options);
  await showing();
})();
