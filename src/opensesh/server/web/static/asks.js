// Permission requests and questions: shown in full, answered by buttons or, while they have the focus, by keys.

import { notify, parse } from "./dom.js";
import { on } from "./live.js";
import { RequestFailed, send } from "./requests.js";

const GUARD_MS = 500;
/** @typedef {{id: string, kind: string, session: string, ancestors: string[], title: string, html: string}} Ask */
/** @type {Map<string, Ask>} */
const asks = new Map();
/** The sessions that run in this server. @type {Set<string>} */
let running = new Set();
/** @type {Set<() => void>} */
const listeners = new Set();
/** @type {WeakMap<Element, number>} when the buttons of a panel begin to act */
const armedAt = new WeakMap();

/** @returns {Ask[]} the requests that wait, oldest first */
export function pendingAsks() {
  return [...asks.values()].sort((one, other) => (one.id < other.id ? -1 : 1));
}

/** @param {() => void} listener called when the requests that wait have changed */
export function onAsks(listener) {
  listeners.add(listener);
}

function changed() {
  const link = document.querySelector('nav a[href="/ui/live"]');
  if (link) link.textContent = `Live${running.size ? ` (${running.size})` : ""}${asks.size ? ` · ${asks.size} waiting` : ""}`;
  for (const listener of listeners) listener();
}

on("connected", (data) => {
  for (const id of [...asks.keys()]) if (!data.asks.includes(id)) asks.delete(id);
  running = new Set(Object.keys(data.running));
  changed();
});
on("status", (data) => {
  if (!data.status || running.has(data.session) === (data.status.type !== "idle")) return;
  if (data.status.type === "idle") running.delete(data.session);
  else running.add(data.session);
  changed();
});
on("ask", (/** @type {Ask} */ ask) => { asks.set(ask.id, ask); changed(); });
on("answered", (data) => { asks.delete(data.id); changed(); });

/**
 * Shows requests in an element; those that are there already stay as they are.
 * @param {Element} container
 * @param {Ask[]} shown
 * @param {string} [count] what to say about further requests
 */
export function showAsks(container, shown, count = "") {
  const wanted = new Set(shown.map((ask) => ask.id));
  for (const panel of container.querySelectorAll(".ask")) {
    if (!wanted.has(/** @type {HTMLElement} */ (panel).dataset.ask ?? "")) panel.remove();
  }
  for (const ask of shown) {
    if (container.querySelector(`[data-ask="${CSS.escape(ask.id)}"]`)) continue;
    const panel = /** @type {HTMLElement} */ (parse(ask.html).firstElementChild);
    container.append(panel);
    prepare(panel);
  }
  for (const element of container.querySelectorAll(".ask-count")) element.textContent = count;
}

/**
 * Makes a panel act: a panel of the event stream, or one that the server has rendered into the page.
 * @param {HTMLElement} panel
 */
export function prepare(panel) {
  arm(panel);
  panel.addEventListener("click", onClick);
  panel.addEventListener("submit", onSubmit);
  panel.addEventListener("keydown", onKey);
  panel.addEventListener("input", onInput);
}

/** A user who is about to click or to type something else must not answer by accident. @param {Element} panel */
function arm(panel) {
  armedAt.set(panel, Date.now() + GUARD_MS);
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") document.querySelectorAll(".ask").forEach(arm);
});

/** @param {Element} panel */
const isArmed = (panel) => Date.now() >= (armedAt.get(panel) ?? 0);

/** @param {MouseEvent} event */
function onClick(event) {
  const panel = /** @type {HTMLElement} */ (event.currentTarget);
  const button = /** @type {HTMLElement} */ (event.target).closest("button");
  if (!button || (button.type === "submit" && isArmed(panel))) return;
  if (!isArmed(panel)) event.preventDefault();
  else if (button.dataset.reply) reply(panel, button.dataset.reply);
  else if (button.matches(".ask-why")) showReason(panel, true);
  else if (button.matches(".ask-cancel")) showReason(panel, false);
  else if (button.matches(".ask-skip")) answer(panel, "reject");
  else if (button.matches(".ask-back")) step(panel, -1);
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const panel = /** @type {HTMLElement} */ (event.currentTarget);
  const target = /** @type {HTMLElement} */ (event.target);
  if (!isArmed(panel)) {
    if (event.key.length === 1) { arm(panel); event.preventDefault(); }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.key === "Escape") {
    if (panel.dataset.kind === "question") { event.stopPropagation(); answer(panel, "reject"); }
    else if (!panel.querySelector(".ask-reason")?.hasAttribute("hidden")) { event.stopPropagation(); showReason(panel, false); }
    return;
  }
  if (target.closest("textarea, input:not([type=radio], [type=checkbox]), button") && event.key !== "Escape") return;
  const replies = { y: "once", a: "always", r: "reject" };
  const wanted = replies[/** @type {"y" | "a" | "r"} */ (event.key)];
  if (wanted && panel.querySelector(`[data-reply="${wanted}"]`)) { event.preventDefault(); reply(panel, wanted); }
}

/** @param {SubmitEvent} event */
function onSubmit(event) {
  event.preventDefault();
  const panel = /** @type {HTMLElement} */ (event.currentTarget);
  if (!isArmed(panel)) return;
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.matches(".ask-reason")) reply(panel, "reject", form.querySelector("textarea")?.value.trim());
  else if (!step(panel, 1)) answer(panel, "reply", { answers: chosen(panel) });
}

/** Typing another answer chooses it. @param {Event} event */
function onInput(event) {
  const input = /** @type {HTMLInputElement} */ (event.target);
  const fieldset = input.closest("fieldset");
  if (!fieldset) return;
  if (input.matches("[data-other]") && input.value) {
    for (const radio of fieldset.querySelectorAll("input[type=radio]")) /** @type {HTMLInputElement} */ (radio).checked = false;
  } else if (input.type === "radio") {
    const other = /** @type {HTMLInputElement | null} */ (fieldset.querySelector("[data-other]"));
    if (other) other.value = "";
  }
}

/** @param {Element} panel @returns {string[][]} */
function chosen(panel) {
  return [...panel.querySelectorAll("fieldset")].map((fieldset) => {
    const labels = [...fieldset.querySelectorAll("input:checked")].map((input) => /** @type {HTMLInputElement} */ (input).value);
    const other = /** @type {HTMLInputElement | null} */ (fieldset.querySelector("[data-other]"))?.value.trim();
    return other ? [...labels, other] : labels;
  });
}

/** @param {HTMLElement} panel @param {number} by @returns {boolean} whether there was another question */
function step(panel, by) {
  const questions = [...panel.querySelectorAll("fieldset")];
  const next = questions.findIndex((one) => !one.hidden) + by;
  if (next < 0 || next >= questions.length) return false;
  questions.forEach((one, index) => { one.hidden = index !== next; });
  /** @type {HTMLElement} */ (panel.querySelector(".ask-back")).hidden = next === 0;
  /** @type {HTMLElement} */ (panel.querySelector("[type=submit]")).textContent = next === questions.length - 1 ? "Answer" : "Next";
  questions[next].querySelector("input")?.focus();
  return true;
}

/** @param {HTMLElement} panel @param {boolean} isShown */
function showReason(panel, isShown) {
  const form = /** @type {HTMLElement} */ (panel.querySelector(".ask-reason"));
  form.hidden = !isShown;
  /** @type {HTMLElement} */ (panel.querySelector(".ask-buttons:not(form *)")).hidden = isShown;
  if (isShown) form.querySelector("textarea")?.focus();
  else panel.focus();
}

/** @param {HTMLElement} panel @param {string} decision @param {string} [message] */
async function reply(panel, decision, message) {
  await act(panel, `/permission/${panel.dataset.ask}/reply`, message ? { reply: decision, message } : { reply: decision });
}

/** @param {HTMLElement} panel @param {"reply" | "reject"} action @param {any} [body] */
async function answer(panel, action, body = {}) {
  await act(panel, `/question/${panel.dataset.ask}/${action}`, body);
}

/** @param {HTMLElement} panel @param {string} path @param {any} body */
async function act(panel, path, body) {
  if (panel.dataset.busy) return;
  panel.dataset.busy = "true";
  try {
    await send("POST", path, body);
    asks.delete(panel.dataset.ask ?? "");
    changed();
    panel.remove();
  } catch (error) {
    delete panel.dataset.busy;
    if (error instanceof RequestFailed && error.status === 404) {
      asks.delete(panel.dataset.ask ?? "");
      changed();
      panel.remove();
      notify("This request was answered elsewhere.");
    } else notify(`The answer was not sent: ${error instanceof Error ? error.message : error}`, { bad: true });
  }
}
