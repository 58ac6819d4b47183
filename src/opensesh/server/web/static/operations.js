// Applies operations of the event stream to the transcript, once a frame.

import { parse } from "./dom.js";
import { addUnseen } from "./following.js";

/** @type {any[]} */
let queue = [];
let isScheduled = false;
/** @type {HTMLElement} */
let log;
/** @type {(turn: HTMLElement) => void} */
let onTurn = () => {};

/**
 * Begins to apply operations to a transcript.
 * @param {HTMLElement} element
 * @param {(turn: HTMLElement) => void} listener called for each turn that is inserted or changed
 */
export function attach(element, listener) {
  log = element;
  onTurn = listener;
}

/** @param {any} operation */
export function enqueue(operation) {
  queue.push(operation);
  if (isScheduled) return;
  isScheduled = true;
  // A hidden tab gets no frames; it must not collect operations forever.
  if (document.hidden) setTimeout(flush, 250);
  else requestAnimationFrame(flush);
}

/** Forgets operations that were not applied, because the transcript is read again. */
export function discard() {
  queue = [];
}

function flush() {
  isScheduled = false;
  const operations = merged(queue);
  queue = [];
  let added = 0;
  for (const operation of operations) added += apply(operation);
  addUnseen(added);
}

/**
 * Leaves out what later operations of the same frame replace.
 * @param {any[]} operations
 */
function merged(operations) {
  const result = [];
  const replaced = new Set();
  for (let index = operations.length - 1; index >= 0; index--) {
    const operation = operations[index];
    const tail = `tail ${operation.part}`;
    const part = `part ${operation.part}`;
    if (operation.part && replaced.has(part)) continue;
    if (operation.op === "part") replaced.add(part);
    if (operation.op === "settle") replaced.add(tail);
    if (operation.op === "tail" || operation.op === "text") {
      if (replaced.has(tail)) continue;
      if (operation.op === "tail") replaced.add(tail);
    }
    result.push(operation);
  }
  return result.reverse();
}

/** @param {any} operation @returns {number} how many turns or parts were added */
function apply(operation) {
  if (operation.op === "turn") return applyTurn(operation);
  const part = document.getElementById(`p-${operation.part}`);
  if (operation.op === "part") return applyPart(operation, part);
  const tail = part?.querySelector(".tail");
  if (!part || !tail) return 0;
  if (operation.op === "settle") {
    part.querySelector(".settled")?.append(parse(operation.html));
    tail.replaceChildren();
  } else if (operation.op === "tail") {
    tail.replaceChildren(parse(operation.html));
  } else {
    appendText(tail.querySelector("code") ?? tail, operation.s);
  }
  return 0;
}

/**
 * Appends to the last text node: a new node for each piece would be thousands of them.
 * @param {Element} element
 * @param {string} text
 */
function appendText(element, text) {
  const last = element.lastChild;
  if (last instanceof Text && last.length < 8000) last.appendData(text);
  else element.append(text);
  const pre = element.closest("pre");
  if (pre && pre.scrollHeight - pre.scrollTop - pre.clientHeight < 60) pre.scrollTop = pre.scrollHeight;
}

/** @param {any} operation @param {HTMLElement | null} existing */
function applyPart(operation, existing) {
  const next = /** @type {HTMLElement | null} */ (parse(operation.html).firstElementChild);
  if (!next) {
    existing?.remove();
    return 0;
  }
  if (existing) {
    if (existing instanceof HTMLDetailsElement && next instanceof HTMLDetailsElement && existing.open) keepOpen(existing, next);
    const hadFocus = existing.contains(document.activeElement);
    existing.replaceWith(next);
    if (hadFocus) (next.querySelector("summary") ?? next).focus();
    return 0;
  }
  const turn = document.getElementById(`t-${operation.turn}`);
  if (!turn) return 0;
  const failure = turn.querySelector(":scope > :is(.failure, .stopped)");
  if (failure) failure.before(next);
  else turn.append(next);
  turn.classList.remove("blank");
  markSeparator(turn);
  onTurn(turn);
  return 1;
}

/** A prompt that only asks for a compaction is a line between turns. @param {Element} turn */
function markSeparator(turn) {
  turn.classList.toggle("separator", turn.querySelector(":scope > .part.cut-mark:nth-last-child(1):nth-child(2)") !== null);
}

/** @param {HTMLDetailsElement} existing @param {HTMLDetailsElement} next */
function keepOpen(existing, next) {
  next.open = true;
  const isStreaming = existing.classList.contains("streaming");
  const body = existing.querySelector(":scope > .body");
  const link = next.querySelector(":scope > .body > .load");
  // What was loaded or streamed stays until the new body is there.
  if (body && link && !body.querySelector(":scope > .load") && isStreaming) link.replaceWith(...body.childNodes);
}

/** @param {any} operation */
function applyTurn(operation) {
  const existing = document.getElementById(`t-${operation.turn}`);
  if (!operation.html) {
    existing?.remove();
    return 0;
  }
  const next = /** @type {HTMLElement} */ (parse(operation.html).querySelector(".turn"));
  const isBlank = next.classList.contains("blank");
  if (existing) {
    const parts = existing.querySelectorAll(":scope > .part");
    const isStep = existing.classList.contains("step");
    existing.className = next.className;
    existing.classList.toggle("step", isStep);
    existing.classList.toggle("blank", isBlank && !parts.length);
    markSeparator(existing);
    replaceChild(existing, next, ".head");
    replaceChild(existing, next, ":is(.failure, .stopped)");
    onTurn(existing);
    return 0;
  }
  const chunks = log.querySelectorAll(":scope > .chunk");
  const end = /** @type {HTMLElement} */ (chunks[chunks.length - 1] ?? log);
  if (end.classList.contains("unloaded")) return 1; // it is read as a whole when it comes near
  log.querySelector(":scope > .empty")?.remove();
  end.dataset.to = log.dataset.total = String(Number(log.dataset.total) + 1);
  const turns = end.querySelectorAll(".turn:not(.blank)");
  const previous = turns[turns.length - 1];
  const isStep = previous?.classList.contains("answer") && next.classList.contains("answer")
    && previous.querySelector(".who")?.textContent === next.querySelector(".who")?.textContent;
  next.classList.toggle("step", Boolean(isStep));
  end.append(next);
  onTurn(next);
  return 1;
}

/** @param {Element} existing @param {Element} next @param {string} selector */
function replaceChild(existing, next, selector) {
  const before = existing.querySelector(`:scope > ${selector}`);
  const after = next.querySelector(`:scope > ${selector}`);
  if (before && after) {
    if (before.outerHTML !== after.outerHTML) before.replaceWith(after);
  } else if (after) existing.append(after);
  else before?.remove();
}
