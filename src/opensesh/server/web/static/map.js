// The map of a session: a mark for each turn, as tall as the turn is large; click or drag to go there.
import { bottomTurn, goTo, topTurn } from "./log.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 1000;
const map = /** @type {HTMLElement} */ (document.getElementById("map"));
/** @typedef {{kind: string, size: number, id: string}} Row */
/** @type {Row[]} */
let rows = [];
/** Where each turn begins, and the end of the last. @type {number[]} */
let tops = [];
/** @type {Map<string, number>} */
let positions = new Map();
/** @type {SVGRectElement | null} */
let frame = null;

/** @param {string} name @param {Record<string, string>} attributes */
function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function draw() {
  const weights = rows.map(({ size }) => 1 + Math.log2(1 + size / 200));
  const scale = HEIGHT / Math.max(weights.reduce((sum, weight) => sum + weight, 0), 1);
  tops = [0];
  for (const weight of weights) tops.push(tops[tops.length - 1] + weight * scale);
  /** @type {Record<string, string[]>} */
  const paths = { answer: [], prompt: [], compaction: [], error: [] };
  /** @type {Record<string, number>} */
  const drawn = {};
  rows.forEach(({ kind }, at) => {
    const height = tops[at + 1] - tops[at];
    // Marks of a kind that would be drawn on the same line of pixels are drawn once.
    if (height < 1 && tops[at] - (drawn[kind] ?? -9) < 1) return;
    drawn[kind] = tops[at];
    paths[kind].push(`M${kind === "answer" ? 6 : 0} ${tops[at].toFixed(1)}h${kind === "answer" ? 10 : 16}v${Math.max(height - 0.6, 0.8).toFixed(1)}h-${kind === "answer" ? 10 : 16}z`);
  });
  const svg = shape("svg", { viewBox: `0 0 16 ${HEIGHT}`, preserveAspectRatio: "none" });
  for (const [kind, path] of Object.entries(paths)) svg.append(shape("path", { class: kind, d: path.join("") }));
  svg.append(shape("path", { class: "match", d: "" }));
  frame = /** @type {SVGRectElement} */ (shape("rect", { class: "window", x: "0.5", width: "15", y: "0", height: "1" }));
  svg.append(frame);
  map.replaceChildren(svg);
  outlineWindow();
}

/**
 * Marks the turns with a match.
 * @param {string[]} ids
 */
export function markMatches(ids) {
  const path = ids.map((id) => positions.get(id)).filter((at) => at !== undefined)
    .map((at) => `M0 ${tops[/** @type {number} */ (at)].toFixed(1)}h16v3h-16z`);
  map.querySelector(".match")?.setAttribute("d", path.join(""));
}

function outlineWindow() {
  const first = positions.get(topTurn()?.id.slice(2) ?? "");
  if (!frame || first === undefined) return;
  const last = Math.max(positions.get(bottomTurn()?.id.slice(2) ?? "") ?? first, first);
  frame.setAttribute("y", String(tops[first]));
  frame.setAttribute("height", String(Math.max(tops[last + 1] - tops[first], 4)));
  markPrompt(first);
}

/** @param {number} at */
function markPrompt(at) {
  const list = document.querySelector(".prompt-list");
  if (!list) return;
  while (at >= 0 && rows[at].kind !== "prompt") at -= 1;
  list.querySelector("[aria-current]")?.removeAttribute("aria-current");
  if (at >= 0) list.querySelector(`[data-turn="${CSS.escape(rows[at].id)}"]`)?.setAttribute("aria-current", "true");
}

/** @param {PointerEvent} event */
function jump(event) {
  const place = map.getBoundingClientRect();
  const y = (HEIGHT * (event.clientY - place.top)) / place.height;
  let at = tops.findIndex((top) => top > y) - 1;
  if (at < 0) at = rows.length - 1;
  if (rows[at]) void goTo(rows[at].id);
}

let waiting = false;
addEventListener("scroll", () => {
  if (waiting || !frame) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; outlineWindow(); });
}, { passive: true });
map.addEventListener("pointerdown", (event) => {
  map.setPointerCapture(event.pointerId);
  jump(event);
});
map.addEventListener("pointermove", (event) => { if (event.buttons) jump(event); });

/** Whether the window is wide enough for the map. */
export const isMapShown = () => getComputedStyle(map).display !== "none";

/**
 * Draws the map again, from a line for each turn: its kind, its size and its id.
 * @param {string} lines
 */
export function drawMap(lines) {
  rows = lines.split("\n").map((line) => {
    const [kind, size, id] = line.split(" ");
    return { kind, size: Number(size), id };
  });
  positions = new Map(rows.map(({ id }, at) => [id, at]));
  draw();
}
