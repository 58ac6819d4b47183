// A session in the browser, live: its stream, what it does now, requests, and the prompt box.

import { attachActions } from "./actions.js";
import { onAsks, pendingAsks, showAsks } from "./asks.js";
import { attachComposer } from "./composer.js";
import { fill, make, notify, visible } from "./dom.js";
import { scrollToEnd } from "./following.js";
import { onKeys } from "./keys.js";
import { connect, currentConnection, on, reconnect, watch } from "./live.js";
import "./notifications.js";
import { attach, discard, enqueue } from "./operations.js";
import { deliver, messageId } from "./outbox.js";
import { RequestFailed, send } from "./requests.js";
import { refreshPanel } from "./session.js";

const dock = /** @type {HTMLElement} */ (document.querySelector(".dock"));
const log = /** @type {HTMLElement} */ (document.getElementById("log"));
const session = dock.dataset.session ?? "";
const form = /** @type {HTMLFormElement} */ (dock.querySelector(".composer"));
/** Whether the session can be continued: its folder exists, and its store can be written. */
const isContinuable = !form.hidden;
const stateRow = /** @type {HTMLElement} */ (dock.querySelector(".run-state"));
const stopButton = /** @type {HTMLButtonElement} */ (dock.querySelector(".stop"));
const sendButton = /** @type {HTMLButtonElement} */ (form.querySelector(".send"));
const announcer = /** @type {HTMLElement} */ (dock.querySelector(".announce"));
/** @type {any} */
let status = JSON.parse(dock.dataset.status ?? "null") ?? { type: "idle" };
/** The error that ended the session, also long ago. @type {any} */
let failure = JSON.parse(dock.dataset.failure ?? "null");
let holder = dock.dataset.holder ?? "";
let since = Number(dock.dataset.since) || Date.now();
let isSending = false;
let run = (dock.dataset.event ?? "").split(".")[0];
let revert = dock.dataset.revert ?? "";
let lastAnnounced = 0;
let escapedAt = 0;
/** Sessions of subagents: their requests are shown here too. */
const family = new Set([session]);

const isBusy = () => status.type !== "idle";
const ownAsks = () => pendingAsks().filter((ask) => family.has(ask.session) || ask.ancestors.includes(session));

/** Tells users of screen readers, at most once in two seconds. @param {string} text */
function announce(text) {
  const wait = Math.max(0, lastAnnounced + 2000 - Date.now());
  lastAnnounced = Date.now() + wait;
  setTimeout(() => { announcer.textContent = text; }, wait);
}

/** @param {string} label @param {() => void} action */
function button(label, action) {
  const element = make("button", { type: "button" }, label);
  element.addEventListener("click", action);
  return element;
}

/** @param {number} milliseconds */
const clock = (milliseconds) => {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
};

/** @returns {[string, string, ...(Node | string)[]]} kind, text, buttons */
function describe() {
  const connection = currentConnection();
  const asks = ownAsks();
  if (connection.state === "lost") {
    const seconds = Math.max(0, Math.ceil((connection.retryAt - Date.now()) / 1000));
    return ["lost", seconds ? `Connection lost, trying again in ${seconds} s` : "Connection lost, trying again", button("Now", reconnect)];
  }
  if (holder) return ["held", `${holder} runs this session. You can read along.`, button("Fork here", forkHere)];
  if (asks.length) return ["waits", asks[0].kind === "question" ? "Waits for your answer" : "Waits for your permission"];
  if (status.type === "retry") {
    const wait = status.next ? ` in ${Math.max(0, Math.ceil((status.next - Date.now()) / 1000))} s` : "";
    return ["retry", `Trying again${wait}, attempt ${status.attempt ?? 1}: ${status.message ?? ""}`];
  }
  if (isBusy()) {
    const prompts = log.querySelectorAll(".turn.prompt, .turn.separator");
    const isCompacting = prompts[prompts.length - 1]?.querySelector(".cut-mark");
    return ["busy", `${isCompacting ? "Compacting" : "Running"} ${clock(Date.now() - since)}`];
  }
  if (isSending) return ["sending", "Sending"];
  if (failure) {
    const text = failure.data?.message ?? failure.message ?? failure.name ?? "The run failed";
    const details = () => navigator.clipboard.writeText(JSON.stringify(failure, null, 2)).then(() => notify("Copied."));
    const again = failure.isRefused ? () => form.requestSubmit() : tryAgain; // a refused prompt is still in its box
    const isShown = [...log.querySelectorAll(".turn > .failure")].at(-1)?.textContent === text; // right above
    return ["failed", isShown ? "The answer failed" : text, button("Try again", again), button("Copy details", details)];
  }
  return ["idle", ""];
}

function render() {
  const [kind, words, ...buttons] = describe();
  const text = visible(words);
  const isSame = stateRow.dataset.kind === kind && stateRow.childElementCount === buttons.length + 1;
  if (!isSame) stateRow.replaceChildren(make("span", { class: "state-text" }), ...buttons);
  const label = /** @type {HTMLElement} */ (stateRow.firstElementChild);
  if (label.textContent !== text) label.textContent = text;
  if (stateRow.dataset.kind !== kind) {
    if (kind === "waits") announce(text);
    if (kind === "failed") announce(`Failed: ${text}`);
    if (kind === "lost") announce("Connection lost");
    if (kind === "idle" && ["busy", "retry"].includes(stateRow.dataset.kind ?? "")) announce("Answer finished");
  }
  stateRow.dataset.kind = kind;
  stateRow.hidden = kind === "idle";
  stopButton.hidden = !isBusy() || Boolean(holder);
  sendButton.textContent = isBusy() ? "Queue ⏎" : "Send ⏎";
  sendButton.disabled = kind === "lost" || isSending || Boolean(holder);
  if (sendButton.disabled) form.dataset.blocked = "true";
  else delete form.dataset.blocked;
  log.setAttribute("aria-busy", String(isBusy()));
  document.documentElement.dataset.run = kind;
  renderQueue();
}

/** Prompts that wait until the model takes them up. */
function renderQueue() {
  const list = /** @type {HTMLElement} */ (dock.querySelector(".queued"));
  const turns = [...log.querySelectorAll(".turn:not(.blank)")];
  const lastAnswer = turns.findLastIndex((turn) => turn.classList.contains("answer"));
  const waiting = isBusy() && lastAnswer >= 0 ? turns.slice(lastAnswer + 1).filter((turn) => turn.classList.contains("prompt")) : [];
  list.hidden = !waiting.length;
  const ids = waiting.map((turn) => turn.id.slice(2));
  if (list.dataset.ids === ids.join()) return;
  list.dataset.ids = ids.join();
  list.replaceChildren(...waiting.map((turn, at) => {
    const text = turn.querySelector(".part.text")?.textContent?.trim() ?? "";
    return make("li", {}, make("span", { class: "cut grow" }, text), button("Edit", () => withdraw(ids[at], true)), button("Remove", () => withdraw(ids[at], false)));
  }));
}

/** Takes a queued prompt back, into the prompt box if it is to be edited. @param {string} id @param {boolean} isEdited */
async function withdraw(id, isEdited) {
  try {
    const { parts } = await send("GET", `/session/${session}/message/${id}`);
    await send("DELETE", `/history/sessions/${session}/queue/${id}`);
    if (isEdited) composer.insert(parts);
    else if (isContinuable) composer.focus();
  } catch (error) {
    notify(/** @type {Error} */ (error).message, { bad: true });
  }
}

function renderAsks() {
  const asks = ownAsks();
  const box = /** @type {HTMLElement} */ (dock.querySelector(".asks"));
  const before = box.querySelector(".ask");
  const hadFocus = form.contains(document.activeElement) || document.activeElement === document.body || box.contains(document.activeElement);
  showAsks(box, asks.slice(0, 1), asks.length > 1 ? `1 of ${asks.length}` : "");
  form.hidden = asks.length > 0 || !isContinuable;
  const after = /** @type {HTMLElement | null} */ (box.querySelector(".ask"));
  if (after !== before && hadFocus) (after ?? form.querySelector("textarea"))?.focus();
  render();
}

/** Reads the transcript again and continues from there: after a revert, or when events were lost. */
async function refresh() {
  discard();
  try {
    const chunks = /** @type {HTMLElement[]} */ ([...log.querySelectorAll(":scope > .chunk:not(.unloaded)")]);
    let event = "";
    for (let chunk = chunks.shift(); chunk; ) {
      const fresh = await send("GET", `/history/sessions/${session}/live-turns?from=${chunk.dataset.from}&show=${log.dataset.show ?? ""}`);
      event ||= fresh.event;
      discard();
      fill(chunk, fresh.html);
      chunk.dataset.to = fresh.to;
      log.dataset.total = fresh.total;
      const next = chunks.shift();
      if (!next && fresh.to < fresh.total && chunk === log.lastElementChild) {
        log.append(chunk = make("section", { class: "chunk", "data-from": String(fresh.to) }));
      } else chunk = next;
    }
    watch(session, event);
    render();
    refreshFigures();
  } catch (error) {
    if (error instanceof RequestFailed) notify(`The session could not be read again: ${error.message}`, { bad: true, label: "Reload", action: () => location.reload() });
    else setTimeout(refresh, 1000);
  }
}

let figuresTimer = 0;
let figuresWait = 1500;
/** Loads the figures and the map again, soon. */
function refreshFigures() {
  clearTimeout(figuresTimer);
  figuresTimer = window.setTimeout(async () => {
    const begun = Date.now();
    await refreshPanel().catch(() => {});
    figuresWait = Math.max(1500, 10 * (Date.now() - begun)); // a long session must not keep the server busy with its figures
  }, figuresWait);
}

async function tryAgain() {
  const messages = await send("GET", `/session/${session}/message?limit=20`);
  const prompt = messages.findLast((/** @type {any} */ one) => one.info.role === "user");
  if (!prompt) return;
  if (prompt.parts.some((/** @type {any} */ part) => part.type === "compaction")) {
    /** @type {HTMLElement | null} */ (document.querySelector("[data-action=compact]"))?.click();
    return;
  }
  const parts = prompt.parts.filter((/** @type {any} */ part) => ["text", "file"].includes(part.type) && !part.synthetic)
    .map(({ type, text, mime, url, filename }) => (type === "text" ? { type, text } : { type, mime, url, filename }));
  const id = messageId();
  const { agent, model, variant } = prompt.info;
  const body = { messageID: id, agent, model: model && { providerID: model.providerID, modelID: model.modelID }, variant, parts };
  failure = null;
  await deliver({ id, session, path: `/session/${session}/prompt_async`, body, text: "" }).catch(fail);
}

async function forkHere() {
  const fork = await send("POST", `/session/${session}/fork`, {});
  localStorage.setItem(`opensesh-draft-${fork.id}`, composer.text());
  location.href = `/ui/session/${fork.id}`;
}

/** @param {Error} error @param {boolean} [isRefused] whether a prompt was not accepted */
function fail(error, isRefused = false) {
  const busy = error instanceof RequestFailed && error.status === 409 && !isBusy() ? / is being run by (.*)/s.exec(error.message) : null;
  if (busy) holder = busy[1];
  else failure = { message: error.message, name: error.name, isRefused };
  render();
}

async function abort() {
  announce("Stopping");
  await send("POST", `/session/${session}/abort`, {}).catch(fail);
}

const facts = { session, directory: dock.dataset.directory ?? "", agent: dock.dataset.agent ?? "", model: dock.dataset.model ?? "", variant: dock.dataset.variant ?? "" };
const composer = isContinuable ? attachComposer(form, facts, {
  onSending: (value) => { isSending = value; if (value) { failure = null; scrollToEnd(); } render(); },
  onFailure: (error) => fail(error, true),
}) : { focus() {}, insert() {}, text: () => "" };
attachActions({ session, facts, refresh, isBusy, focusComposer: composer.focus });
attach(log, () => renderQueue());

on("op", (data) => { if (data.session === session) enqueue(data); });
on("status", (data) => {
  if (data.session !== session) return;
  if (data.error) failure = data.error.name === "MessageAbortedError" ? null : data.error;
  if (data.status) {
    if (data.status.type !== "idle" && !isBusy()) { since = Date.now(); failure = null; }
    if (data.status.type !== status.type) refreshFigures();
    status = data.status;
  }
  render();
});
on("session", (data) => {
  if (data.parent && family.has(data.parent)) family.add(data.id);
  if (data.id !== session) return;
  const changed = JSON.stringify(data.revert ?? null);
  if ((revert || "null") !== changed) { revert = changed; failure = null; refresh(); }
  document.dispatchEvent(new CustomEvent("opensesh:session", { detail: data }));
});
on("connected", (data, event) => {
  status = data.running[session] ?? { type: "idle" };
  if (run && run !== event.id.split(".")[0]) notify("The server was restarted. Other pages need 'opensesh web' once more.");
  run = event.id.split(".")[0];
  render();
});
on("reset", refresh);
on("usage", refreshFigures);
on("todo", refreshFigures);
onKeys({ i: composer.focus });
on("connection", render);
onAsks(renderAsks);
stopButton.addEventListener("click", abort);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || !isBusy()) return;
  if (Date.now() - escapedAt < 600) abort();
  escapedAt = Date.now();
});
setInterval(render, 1000);
render();
watch(session, dock.dataset.event ?? "");
connect();
