// Sends prompts exactly once. A prompt has an id before it is sent, and the server refuses an id that it has: whatever
// happens to the connection, it can be sent again, or looked up.

import { currentConnection, on } from "./live.js";
import { RequestFailed, send } from "./requests.js";

const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
let counter = 0;

/** @typedef {{id: string, session: string, path: string, body: any, text: string}} Letter */

/** @returns {string} a new id of a message, in OpenCode's form */
export function messageId() {
  counter = (counter + 1) % 0x1000;
  const time = ((BigInt(Date.now()) * 0x1000n + BigInt(counter)) & 0xffffffffffffn).toString(16).padStart(12, "0");
  const random = crypto.getRandomValues(new Uint8Array(14));
  return `msg_${time}${[...random].map((byte) => LETTERS[byte % 62]).join("")}`;
}

/** @param {string} session */
const prefix = (session) => `opensesh-outbox-${session}-`;

/**
 * Sends a prompt, also if that takes several attempts; it has arrived when this returns. Throws what the server refuses.
 * @param {Letter} letter
 */
export async function deliver(letter) {
  const key = prefix(letter.session) + letter.id;
  localStorage.setItem(key, JSON.stringify({ ...letter, body: null }));
  try {
    await withLock(letter.id, () => attempts(letter));
  } finally {
    localStorage.removeItem(key);
  }
}

/** @param {Letter} letter */
async function attempts(letter) {
  for (let isFirst = true; ; isFirst = false) {
    try {
      if (!isFirst && await hasArrived(letter)) return;
      await post(letter);
      return;
    } catch (error) {
      if (error instanceof RequestFailed) {
        if (error.status === 400 && await hasArrived(letter)) return;
        if (error.status !== 503) throw error; // the server is stopping; another one may follow
      }
      await connectionIsOpen();
    }
  }
}

/**
 * Sends a prompt. Commands are answered when they have ended: their connection is given up once the prompt is there.
 * @param {Letter} letter
 */
async function post(letter) {
  if (letter.path.endsWith("/prompt_async")) {
    await send("POST", letter.path, letter.body);
    return;
  }
  const controller = new AbortController();
  const arrived = new Promise((resolve) => {
    on("op", (data) => { if (data.op === "turn" && data.turn === letter.id) resolve(true); });
    on("status", (data) => { if (data.session === letter.session && data.status?.type === "busy") resolve(true); });
  });
  const answered = send("POST", letter.path, letter.body, controller.signal);
  answered.catch(() => {});
  await Promise.race([answered, arrived]);
  controller.abort();
}

/** @param {Letter} letter @returns {Promise<boolean>} */
async function hasArrived(letter) {
  try {
    await send("GET", `/session/${letter.session}/message/${letter.id}`);
    return true;
  } catch (error) {
    if (error instanceof RequestFailed) return false;
    throw error;
  }
}

function connectionIsOpen() {
  return new Promise((resolve) => {
    const timer = setInterval(check, 500);
    function check() {
      if (currentConnection().state !== "open") return;
      clearInterval(timer);
      resolve(undefined);
    }
  });
}

/** @param {string} name @param {() => Promise<void>} act */
async function withLock(name, act) {
  if (navigator.locks) await navigator.locks.request(`opensesh-outbox-${name}`, act);
  else await act();
}

/**
 * Returns the texts of prompts that no tab sends any more and that have not arrived: the page was closed meanwhile.
 * @param {string} session
 * @returns {Promise<string[]>}
 */
export async function abandonedPrompts(session) {
  const texts = [];
  for (const key of Object.keys(localStorage).filter((one) => one.startsWith(prefix(session)))) {
    const letter = /** @type {Letter} */ (JSON.parse(localStorage.getItem(key) ?? "{}"));
    const look = async (/** @type {unknown} */ lock) => {
      if (lock === null) return; // another tab sends it now
      if (!await hasArrived(letter)) texts.push(letter.text);
      localStorage.removeItem(key);
    };
    try {
      if (navigator.locks) await navigator.locks.request(`opensesh-outbox-${letter.id}`, { ifAvailable: true }, look);
      else await look({});
    } catch { /* not connected; the next page looks again */ }
  }
  return texts;
}
