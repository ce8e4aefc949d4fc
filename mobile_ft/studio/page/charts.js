// Pictures: a stacked bar of memory, and lines over the steps of runs.

import { make } from "./page.js";

const COLOURS = 8, MOST_POINTS = 1000;
const WIDTH = 480, HEIGHT = 220, LEFT = 52, BOTTOM = 26, TOP = 10, RIGHT = 12;

/** Parts of the memory, the largest first, on a bar that is `most` long, with a mark at the budget. */
export function stack(parts, most, budget) {
  const shown = parts.filter((part) => part.size > 0).sort((a, b) => b.size - a.size);
  const named = shown.slice(0, COLOURS - 1);
  const rest = shown.slice(COLOURS - 1).reduce((sum, part) => sum + part.size, 0);
  if (rest > 0) named.push({ name: "other", size: rest });
  const bars = named.map((part, i) => {
    const bar = make("span", { class: `k${i}`, title: `${part.name}: ${part.size.toFixed(1)} MB` });
    bar.style.width = `${(100 * part.size) / most}%`;
    return bar;
  });
  const text = named.map((part) => `${part.name} ${part.size.toFixed(1)} MB`).join(", ");
  const legend = named.map((part, i) => make("li", {}, make("i", { class: `k${i}` }), `${part.name} ${part.size.toFixed(1)} MB`));
  const label = `Memory by component: ${text}${budget ? `; budget ${budget} MB` : ""}`;
  return make("div", {}, make("div", { class: "bar", role: "img", "aria-label": label }, ...bars), make("ul", { class: "legend" }, ...legend));
}

function drawn(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** At most so many points as a picture can show; the last one stays. */
function thinned(points) {
  const every = Math.ceil(points.length / MOST_POINTS);
  return every > 1 ? points.filter((point, i) => i % every === 0 || i === points.length - 1) : points;
}

/** Lines over steps. A series is {name, colour, dashed, points: [[step, value], ...]}. `from` is the least value shown. */
export function lines(title, series, format, from = Infinity) {
  series = series.map((one) => ({ ...one, points: thinned(one.points) }));
  const points = series.flatMap((one) => one.points);
  if (!points.length) return null;
  const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs, Math.min(...xs) + 1)];
  const low = Math.min(...ys, from), high = Math.max(...ys);
  const room = high > low ? 0.05 * (high - low) : Math.abs(high) * 0.1 + 1e-9;
  const [y0, y1] = [low - room, high + room];
  const x = (value) => LEFT + ((value - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + ((y1 - value) / (y1 - y0)) * (HEIGHT - TOP - BOTTOM);
  const last = series.filter((one) => one.points.length).map((one) => `${one.name}: ${format(one.points[one.points.length - 1][1])}`);
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}; last ${last.join(", ")}` });
  for (const value of [low, (low + high) / 2, high]) {
    svg.append(drawn("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
    svg.append(drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  svg.append(drawn("text", { x: LEFT, y: HEIGHT - 6 }, `step ${x0}`));
  svg.append(drawn("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, `step ${x1}`));
  for (const one of series) {
    const path = one.points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" ");
    const dash = one.dashed ? { "stroke-dasharray": "5 4" } : {};
    svg.append(drawn("polyline", { points: path, fill: "none", class: `s${one.colour % COLOURS}`, "stroke-width": 2, ...dash }));
  }
  const legend = series.filter((one) => one.points.length).map((one) =>
    make("li", {}, make("i", { class: `k${one.colour % COLOURS}` }), `${one.name}${one.dashed ? " (dashed)" : ""}`));
  const figure = make("figure", { class: "chart" }, make("figcaption", {}, title));
  figure.append(svg, make("ul", { class: "legend" }, ...legend));
  return figure;
}
