// The data: files, rows that are typed, and their tokens.

import { acting, ask, byId, choice, choose, chosen, make, redraw, removeButton, rowsTable, upload } from "./page.js";

let rowsTyped = 0;

export async function initData() {
  byId("upload-form").addEventListener("submit", acting(async () => {
    await selectNew(await upload(byId("upload-form").elements.file.files[0]));
  }));
  byId("link-form").addEventListener("submit", acting(async () => {
    await selectNew(await ask("link_data", { path: byId("link-form").elements.path.value }));
  }));
  byId("row-form").addEventListener("submit", acting(addRow));
  await refresh();
}

/** Shows the data as tokens, when the section is opened or what decides it has changed. */
export async function lookAgain() {
  const place = byId("look");
  if (!chosen.data || !chosen.model) {
    place.replaceChildren(make("p", { class: "soft" }, "Choose a model and a file to see what is learned."));
    return;
  }
  const { seq_len = "", loss = "sft" } = chosen.options, name = chosen.data;
  const removing = removeButton(`Remove ${name}`, async () => {
    await ask("remove_data", { data: name });
    await refresh();
    await lookAgain();
  });
  try {
    const found = await ask("look_at_data", { model: chosen.model, data: chosen.data, options: { seq_len, loss } });
    place.replaceChildren(rowsTable(found.title, found.table), removing, ...Object.entries(found.splits).map(([name, split]) => splitView(name, split, found.seq_len)));
  } catch (error) {
    place.replaceChildren(removing);
    throw error;
  }
}

async function refresh() {
  const found = await ask("list_data");
  if (!found.data.includes(chosen.data)) choose({ data: found.data[0] ?? "" }); // the newest
  redraw(byId("files"), [found.data, chosen.data], ([names, current]) => names.length
    ? names.map((name) => choice("file", name, name === current, acting(() => select(name))))
    : [make("p", { class: "soft" }, "None yet. Add some below.")]);
}

async function select(name) {
  choose({ data: name });
  await refresh();
  await lookAgain();
}

const selectNew = (found) => select(found.name);

async function addRow() {
  const { data, prompt, completion } = byId("row-form").elements;
  const found = await ask("add_row", { data: data.value, row: { prompt: prompt.value, completion: completion.value } });
  prompt.value = completion.value = "";
  prompt.focus();
  byId("rows-typed").textContent = `${++rowsTyped} added to ${found.name}`;
  await select(found.name);
}

function splitView(name, split, seqLen) {
  const bad = split.bad_rows.map((text) => make("li", {}, text));
  return make(
    "div",
    {},
    make("h3", {}, `Rows of ${name}`),
    lengths(split.histogram, seqLen),
    bad.length ? make("div", { class: "card bad" }, `Rows that cannot be used (${split.bad}):`, make("ul", {}, ...bad)) : null,
    make("p", {}, make("mark", {}, "Learned tokens"), " are highlighted; ", make("del", {}, "tokens beyond the sequence"), " are struck out."),
    ...split.first_rows.map(rowView),
  );
}

function lengths(bins, seqLen) {
  if (!bins.length) return null;
  const most = Math.max(...bins.map((bin) => bin[2]));
  const bars = bins.map(([start, end, count]) => {
    const bar = make("span", { title: `${start} to ${end - 1} tokens, rows: ${count}`, class: start >= seqLen ? "over" : null });
    bar.style.height = `${(100 * count) / most}%`;
    return bar;
  });
  const longest = bins[bins.length - 1][1] - 1;
  const over = bins.filter((bin) => bin[0] >= seqLen).reduce((sum, bin) => sum + bin[2], 0);
  const label = `Rows by length, up to ${longest} tokens; rows longer than ${seqLen}: ${over}`;
  return make("div", { class: "card" }, make("div", { class: "histogram", role: "img", "aria-label": label }, ...bars),
    make("div", { class: "ends" }, make("span", {}, "0"), make("span", {}, `${longest} tokens`)), make("span", { class: "soft" }, label));
}

function rowView(row) {
  const sides = row.sides.map((runs) => make("pre", { tabindex: "0" }, ...runs.map((run) => {
    const text = run.learned ? make("mark", {}, run.text) : run.text;
    return run.cut ? make("del", {}, text) : text;
  })));
  return make("div", {}, make("p", { class: "soft" }, `${row.where.split("/").pop()}: ${row.form}, ${row.learned} of ${row.tokens} tokens learned`), ...sides);
}
