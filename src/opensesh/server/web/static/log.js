// The turns of a session in chunks: loaded when they are near the window, unloaded when they are far from it.
import { make, notify, parse } from "./dom.js";
import { scrollToEnd, stopFollowing } from "./following.js";
import { fetchHtml } from "./requests.js";

const NEAR = 1500;
const FAR = 8000;
const SLICE = 8;
const log = /** @type {HTMLElement} */ (document.getElementById("log"));
export const address = log.dataset.address ?? "";
export const sessionId = log.dataset.session ?? "";
const size = Number(log.dataset.chunk);
const show = log.dataset.show ?? "";
/** Chunks that may not be unloaded, because something points into them. @type {Set<Element>} */
export const pinned = new Set();

/** @param {Element} chunk */
const isLoaded = (chunk) => !chunk.classList.contains("unloaded");

/** @param {Element} chunk */
function mayUnload(chunk) {
  const selection = getSelection();
  const isSelected = selection && !selection.isCollapsed && selection.containsNode(chunk, true);
  return isLoaded(chunk) && !pinned.has(chunk) && !isSelected && !chunk.contains(document.activeElement)
    && !chunk.querySelector("details[open], .streaming") && chunk !== log.lastElementChild;
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) void load(entry.target);
}, { rootMargin: `${NEAR}px 0px` });
const far = new IntersectionObserver((entries) => {
  for (const entry of entries) if (!entry.isIntersecting && mayUnload(entry.target)) unload(/** @type {HTMLElement} */ (entry.target));
}, { rootMargin: `${FAR}px 0px` });

/** @param {Element} chunk */
function watch(chunk) {
  near.observe(chunk);
  far.observe(chunk);
}

/** @param {HTMLElement} chunk */
function unload(chunk) {
  chunk.style.height = `${chunk.getBoundingClientRect().height}px`; // what is below must not move
  chunk.style.minHeight = "";
  chunk.replaceChildren();
  chunk.classList.add("unloaded");
  near.unobserve(chunk);
  near.observe(chunk);
}

/**
 * Loads a chunk if it is not there.
 * @param {Element} chunk
 * @param {string} [html] what the server answered already
 */
async function load(chunk, html) {
  const element = /** @type {HTMLElement} */ (chunk);
  if (isLoaded(element) || (element.dataset.loading && html === undefined)) return;
  element.dataset.loading = "1";
  try {
    const content = html ?? await fetchHtml(`${address}/turns?from=${element.dataset.from}&show=${show}`);
    if (isLoaded(element) || (html === undefined && isFar(element))) return;
    await insert(element, [...(parse(content).querySelector("section")?.children ?? [])], html === undefined);
    log.dispatchEvent(new CustomEvent("chunk", { detail: element }));
  } catch (error) {
    notify(`Turns could not be loaded: ${/** @type {Error} */ (error).message}`, {
      bad: true, label: "Try again", action: () => void load(element),
    });
  } finally {
    delete element.dataset.loading;
  }
}

/** Whether the window has moved away while a chunk was being loaded. @param {Element} chunk */
function isFar(chunk) {
  const { top, bottom } = chunk.getBoundingClientRect();
  return bottom < -FAR || top > innerHeight + FAR;
}

/**
 * Puts turns into a chunk, a few in a frame, so that scrolling is never held up.
 * @param {HTMLElement} chunk
 * @param {Element[]} turns
 * @param {boolean} slowly
 */
async function insert(chunk, turns, slowly) {
  chunk.classList.remove("unloaded");
  chunk.style.minHeight = chunk.style.height;
  chunk.style.height = "";
  while (turns.length) {
    chunk.append(...turns.splice(0, slowly ? SLICE : turns.length));
    if (turns.length) await new Promise((resolve) => requestAnimationFrame(resolve));
  }
  chunk.style.minHeight = "";
}

function addPlaceholders() {
  const loaded = /** @type {HTMLElement[]} */ ([...log.querySelectorAll(":scope > .chunk")]);
  if (!loaded.length) return;
  const turns = loaded.reduce((sum, chunk) => sum + Number(chunk.dataset.to) - Number(chunk.dataset.from), 0);
  const height = loaded.reduce((sum, chunk) => sum + chunk.offsetHeight, 0) / Math.max(turns, 1);
  const total = Number(log.dataset.total);
  const first = Number(loaded[0].dataset.from);
  const end = Number(loaded[loaded.length - 1].dataset.to);
  /** @param {number} from */
  const placeholder = (from) => {
    const to = Math.min(from + size, total);
    const chunk = make("section", { class: "chunk unloaded", "data-from": String(from), "data-to": String(to) });
    chunk.style.height = `${Math.round(height * (to - from))}px`;
    return chunk;
  };
  const before = document.createDocumentFragment();
  const after = document.createDocumentFragment();
  for (let from = 0; from < first; from += size) before.append(placeholder(from));
  for (let from = end; from < total; from += size) after.append(placeholder(from));
  log.prepend(before);
  log.append(after);
}

/**
 * Scrolls to an element and keeps it in place while what is above it gets its real height.
 * @param {Element} element
 */
export function settleOn(element) {
  stopFollowing();
  let frames = 12;
  const settle = () => {
    const before = element.getBoundingClientRect().top;
    element.scrollIntoView();
    frames -= 1;
    if (frames > 0 && element.isConnected && (frames > 8 || Math.abs(element.getBoundingClientRect().top - before) > 1)) requestAnimationFrame(settle);
  };
  settle();
}

/**
 * Shows a turn, or one of its parts, wherever it is in the session.
 * @param {string} message
 * @param {string} [part]
 * @returns {Promise<HTMLElement | null>}
 */
export async function goTo(message, part = "") {
  if (!document.getElementById(`t-${message}`)) {
    const html = await fetchHtml(`${address}/turns?around=${encodeURIComponent(message)}&show=${show}`);
    const from = parse(html).querySelector("section")?.dataset.from;
    const chunk = log.querySelector(`:scope > .chunk[data-from="${from}"]`);
    if (chunk) await load(chunk, html);
  }
  const turn = document.getElementById(`t-${message}`);
  const target = (part && document.getElementById(`p-${part}`)) || turn;
  if (!turn || !target) return null;
  for (let fold = target.closest("details"); fold; fold = fold.parentElement?.closest("details") ?? null) fold.open = true;
  select(turn);
  settleOn(target);
  return turn;
}

/** The turn that keys act on. @returns {HTMLElement | null} */
export const current = () => log.querySelector(".turn.current");

/** @param {Element} turn */
export function select(turn) {
  current()?.classList.remove("current");
  turn.classList.add("current");
}

/**
 * The first turn at one of these heights of the window.
 * @param {number[]} heights
 */
function turnAt(heights) {
  const middle = log.getBoundingClientRect().left + log.offsetWidth / 2;
  for (const y of heights) {
    const turn = document.elementFromPoint(middle, y)?.closest("#log > .chunk > .turn");
    if (turn) return turn;
  }
  return null;
}

const steps = [8, 48, 88, 128, 208, 308, 458];

/** The turn at the top of the window. */
export const topTurn = () => {
  const bar = document.querySelector(".bar")?.getBoundingClientRect().bottom ?? 0;
  return turnAt(steps.map((step) => bar + step));
};

/** The turn at the bottom of the window. */
export const bottomTurn = () => turnAt(steps.map((step) => innerHeight - step));

function followAddress() {
  const [, kind, id] = /^#(t|p)-(.+)$/.exec(decodeURIComponent(location.hash)) ?? [];
  const at = log.dataset.at;
  if (kind === "t") void goTo(id);
  else if (kind === "p" && at) void goTo(at, id);
  else if (at) void goTo(at);
  else return false;
  return true;
}

addPlaceholders();
if (!followAddress() && !new URLSearchParams(location.search).has("from")) scrollToEnd();
addEventListener("hashchange", followAddress);
for (const chunk of log.querySelectorAll(":scope > .chunk")) watch(chunk);
