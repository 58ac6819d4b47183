// All sessions that run or wait, in one place; every request can be answered here.

import { onAsks, pendingAsks, prepare, showAsks } from "./asks.js";
import { make } from "./dom.js";
import { connect, on, watch } from "./live.js";
import "./notifications.js";

const list = /** @type {HTMLElement} */ (document.querySelector(".live-list"));
const empty = /** @type {HTMLElement} */ (document.querySelector(".live-empty"));
const announcer = /** @type {HTMLElement} */ (document.querySelector(".announce"));
/** @type {Map<string, string>} */
const states = new Map();
/** @type {Map<string, string>} */
const titles = new Map();

/** @param {string} session @returns {HTMLElement} */
function item(session) {
  const existing = list.querySelector(`[data-session="${CSS.escape(session)}"]`);
  if (existing) return /** @type {HTMLElement} */ (existing);
  const created = make("article", { class: "card live-item", "data-session": session },
    make("h2", {}, make("a", { href: `/ui/session/${session}` }, make("bdi", {}, titles.get(session) ?? session)), " ", make("span", { class: "badge live state" })),
    make("div", { class: "asks" }));
  list.append(created);
  return created;
}

function render() {
  const asks = pendingAsks();
  for (const ask of asks) titles.set(ask.session, ask.title);
  const wanted = new Set([...states.keys(), ...asks.map((ask) => ask.session)]);
  for (const element of list.querySelectorAll("[data-session].live-item")) {
    if (!wanted.has(/** @type {HTMLElement} */ (element).dataset.session ?? "")) element.remove();
  }
  for (const session of wanted) {
    const element = item(session);
    const own = asks.filter((ask) => ask.session === session);
    showAsks(/** @type {Element} */ (element.querySelector(".asks")), own);
    const badge = /** @type {HTMLElement} */ (element.querySelector(".state"));
    const words = { busy: "running", retry: "trying again" };
    badge.textContent = own.length ? "waits for you" : words[/** @type {"busy"} */ (states.get(session))] ?? states.get(session) ?? "";
    badge.className = `badge state ${own.length ? "warn" : "live"}`;
  }
  empty.hidden = wanted.size > 0;
}

on("connected", (data) => {
  states.clear();
  for (const [session, status] of Object.entries(data.running)) states.set(session, status.type);
  render();
});
on("status", (data) => {
  if (!data.status || !data.session) return;
  if (data.status.type === "idle") states.delete(data.session);
  else states.set(data.session, data.status.type);
  render();
});
on("session", (data) => {
  titles.set(data.id, data.title);
  const title = list.querySelector(`[data-session="${CSS.escape(data.id)}"] bdi`);
  if (title && data.title) title.textContent = data.title;
});
on("ask", (ask) => { announcer.textContent = `${ask.title} waits for your ${ask.kind === "question" ? "answer" : "permission"}`; });
onAsks(render);
document.querySelectorAll(".ask").forEach((panel) => prepare(/** @type {HTMLElement} */ (panel)));
watch("", /** @type {HTMLElement} */ (document.querySelector("[data-event]")).dataset.event ?? "");
connect();
