// The event stream of the server, one for all tabs of this browser: the tab that holds a lock reads it and passes
// every event on. A stream that is silent for too long counts as lost, also if the connection still seems to exist.

import { KEY_NAME } from "./requests.js";

const DEADLINE_MS = 25_000;
const WAITS_MS = [500, 1000, 2000, 3000, 5000, 10_000];
const tab = crypto.randomUUID();
const channel = new BroadcastChannel("opensesh-live");

/** @typedef {{id: string, name: string, data: any}} LiveEvent */
/** @typedef {{state: "connecting" | "open" | "lost", retryAt: number}} Connection */

/** @type {Map<string, {session: string, after: string}>} what each tab shows, and the event that it has seen last */
const views = new Map();
/** @type {Map<string, Set<(data: any, event: LiveEvent) => void>>} */
const listeners = new Map();
/** @type {Connection} */
let connection = { state: "connecting", retryAt: 0 };
let isLeader = false;
let lastId = "";
let restart = () => {};
let seenAt = Date.now();
let view = { session: "", after: "" };

/**
 * Calls a function for each event of a name; "connection" for changes of the connection, "*" for all.
 * @param {string} name
 * @param {(data: any, event: LiveEvent) => void} listener
 */
export function on(name, listener) {
  if (!listeners.has(name)) listeners.set(name, new Set());
  listeners.get(name)?.add(listener);
}

/**
 * Shows a session in this tab from now on, as it was at an event.
 * @param {string} session
 * @param {string} after
 */
export function watch(session, after) {
  view = { session, after };
  announce();
}

/** Tries to connect at once. */
export function reconnect() {
  if (isLeader) restart();
  else channel.postMessage({ type: "reconnect" });
}

/** @returns {Connection} */
export function currentConnection() {
  return connection;
}

function announce() {
  const message = { type: "view", tab, view };
  channel.postMessage(message);
  receive(message);
}

/** @param {LiveEvent} event */
function dispatch(event) {
  seenAt = Date.now();
  for (const listener of [...(listeners.get(event.name) ?? []), ...(listeners.get("*") ?? [])]) listener(event.data, event);
}

/** @param {Connection} next */
function setConnection(next) {
  connection = next;
  if (isLeader) channel.postMessage({ type: "connection", connection });
  dispatch({ id: "", name: "connection", data: connection });
}

/** @param {any} message */
function receive(message) {
  if (message.type === "event" && !isLeader) dispatch(message.event);
  else if (message.type === "connection" && !isLeader) setConnection(message.connection);
  else if (message.type === "leader" && !isLeader) announce();
  else if (message.type === "reconnect" && isLeader) restart();
  else if (message.type === "close") views.delete(message.tab);
  else if (message.type === "view") {
    views.set(message.tab, message.view);
    if (isLeader) {
      // The tab may have been rendered before the newest event: everything since then is sent again.
      if (message.view.after && isOlder(message.view.after, lastId)) lastId = message.view.after;
      restart();
    }
  }
}

/** @param {string} one @param {string} other */
function isOlder(one, other) {
  const [run, number] = one.split(".");
  const [otherRun, otherNumber] = other.split(".");
  return run !== otherRun || Number(number) < Number(otherNumber);
}

/** Reads the stream for all tabs, as long as this tab exists. */
async function lead() {
  isLeader = true;
  views.set(tab, view);
  lastId = view.after;
  channel.postMessage({ type: "leader" });
  for (let failures = 0; ; ) {
    const controller = new AbortController();
    let isWanted = false;
    restart = () => { isWanted = true; controller.abort(); };
    let received = false;
    try {
      await read(controller, () => { received = true; });
    } catch { /* lost, too silent, or restarted */ }
    if (isWanted) { failures = 0; continue; }
    failures = received ? 0 : failures + 1;
    const wait = WAITS_MS[Math.min(failures, WAITS_MS.length - 1)];
    await pause(wait);
  }
}

/** @param {number} wait */
async function pause(wait) {
  setConnection({ state: "lost", retryAt: Date.now() + wait });
  await new Promise((resolve) => {
    const timer = setTimeout(resolve, wait);
    restart = () => { clearTimeout(timer); resolve(undefined); };
  });
}

/**
 * Reads one stream until it ends or has been silent for too long.
 * @param {AbortController} controller
 * @param {() => void} onReceived
 */
async function read(controller, onReceived) {
  const sessions = [...new Set([...views.values()].map((one) => one.session).filter(Boolean))];
  const headers = new Headers({ "x-opensesh-key": localStorage.getItem(KEY_NAME) ?? "" });
  if (lastId) headers.set("last-event-id", lastId);
  let timer = setTimeout(() => controller.abort(), DEADLINE_MS);
  try {
    const query = `as=html&session=${encodeURIComponent(sessions.join(","))}`;
    const response = await fetch(`/history/events?${query}`, { headers, signal: controller.signal, cache: "no-store" });
    if (!response.ok || !response.body) throw new Error(`${response.status}`);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => controller.abort(), DEADLINE_MS);
      const frames = (rest + value).split("\n\n");
      rest = frames.pop() ?? "";
      if (frames.length && connection.state !== "open") setConnection({ state: "open", retryAt: 0 });
      if (frames.length) onReceived();
      for (const frame of frames) pass(frame);
    }
  } finally {
    clearTimeout(timer);
    controller.abort();
  }
}

/** @param {string} frame */
function pass(frame) {
  /** @type {Record<string, string>} */
  const fields = {};
  for (const line of frame.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  if (!fields.event) return;
  const event = { id: fields.id ?? "", name: fields.event, data: JSON.parse(fields.data ?? "null") };
  lastId = event.id || lastId;
  channel.postMessage({ type: "event", event });
  dispatch(event);
}

channel.addEventListener("message", (message) => receive(message.data));
addEventListener("pagehide", () => channel.postMessage({ type: "close", tab }));
addEventListener("pageshow", (event) => { if (event.persisted) announce(); });
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible" && Date.now() - seenAt > DEADLINE_MS) reconnect();
});
addEventListener("online", () => reconnect());

/** Begins, once the page has said what it shows. */
export function connect() {
  if (navigator.locks) navigator.locks.request("opensesh-live", lead);
  else lead();
  announce();
}
