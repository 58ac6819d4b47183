// The list of sessions: filters as one types, more rows, selection and what is done with it.
import { fill, notify, parse } from "./dom.js";
import { fetchHtml, send } from "./requests.js";
import { onKeys } from "./keys.js";
import { follow } from "./list_live.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("filters"));
const rows = /** @type {HTMLElement} */ (document.getElementById("rows"));
const bulk = /** @type {HTMLElement} */ (document.getElementById("bulk"));
const SILENCE_MS = 80;
let pending = new AbortController();
let timer = 0;
let hasMore = false;

/** Returns the address of the list with the filters of the form. */
function address() {
  const values = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (value && !(name === "sort" && value === "updated")) values.set(name, String(value));
  }
  const limit = new URLSearchParams(location.search).get("limit");
  if (limit) values.set("limit", limit);
  return values.size ? `/ui/?${values}` : "/ui/";
}

/** @param {string} path */
const fragment = (path) => path + (path.includes("?") ? "&" : "?") + "fragment=rows";

/** @param {string} path @param {boolean} [keepsSelection] @param {string} [known] the version that is shown */
async function show(path, keepsSelection = false, known = "") {
  pending.abort();
  pending = new AbortController();
  const chosen = new Set(keepsSelection ? selected() : []);
  try {
    const html = await fetchHtml(fragment(path), pending.signal, known);
    if (!html) { rows.querySelector("[data-stale]")?.removeAttribute("data-stale"); return; }
    const id = focused()?.dataset.id;
    const active = /** @type {HTMLElement | null} */ (document.activeElement);
    // Requests stay as they are: one may have the focus, or a reason in it.
    const requests = [...rows.querySelectorAll(".session > .asks")].map((box) => ({ box, id: box.closest("li")?.dataset.id ?? "" }));
    fill(rows, html);
    for (const request of requests) row(request.id)?.append(request.box);
    renderAsks();
    if (active && rows.contains(active)) active.focus();
    else if (id) /** @type {HTMLElement | null} */ (row(id)?.querySelector("a.title"))?.focus();
  } catch (error) {
    if (/** @type {Error} */ (error).name !== "AbortError") notify(/** @type {Error} */ (error).message, { bad: true });
    return;
  }
  hasMore = false;
  for (const id of chosen) {
    const box = row(id)?.querySelector("input");
    if (box) box.checked = true;
  }
  showBulk();
  refreshIfStale();
}

/** The server answers at once with what it knows; if something changed meanwhile, the rows are asked for again. */
function refreshIfStale() {
  const stale = /** @type {HTMLElement | null} */ (rows.querySelector("[data-stale]"));
  const path = address();
  // Further pages must not vanish, and what was typed meanwhile is being asked for.
  const isWhole = () => stale?.isConnected && !hasMore && address() === path;
  if (isWhole()) setTimeout(() => { if (isWhole()) void show(path, true, stale?.dataset.stale); }, 400);
}

form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const path = address();
    history.replaceState(null, "", path);
    void show(path);
  }, SILENCE_MS);
});
// On a phone, the filters are folded unless some are set.
const folding = /** @type {HTMLElement} */ (document.getElementById("more-filters"));
folding.hidden = false;
if ([...new URLSearchParams(location.search).keys()].every((name) => name === "q")) folding.setAttribute("aria-expanded", "false");
folding.addEventListener("click", () => folding.setAttribute("aria-expanded", String(folding.getAttribute("aria-expanded") !== "true")));
form.addEventListener("submit", (event) => event.preventDefault());

rows.addEventListener("click", async (event) => {
  const link = /** @type {HTMLElement} */ (event.target).closest("a[rel=next]");
  if (!link) return;
  event.preventDefault();
  hasMore = true;
  const html = parse(await fetchHtml(fragment(/** @type {HTMLAnchorElement} */ (link).getAttribute("href") ?? "")));
  const groups = [...rows.querySelectorAll("h2.day")];
  const first = html.querySelector("h2.day");
  html.querySelector(".list-head")?.remove();
  // A day that both parts have stays one group.
  if (first && first.textContent === groups.at(-1)?.textContent) {
    const list = html.querySelector("ul.sessions");
    rows.querySelectorAll("ul.sessions").item(rows.querySelectorAll("ul.sessions").length - 1).append(...(list?.children ?? []));
    list?.remove();
    first.remove();
  }
  link.closest(".more")?.remove();
  const next = html.querySelector(".session a.title") ?? rows.querySelector("ul.sessions:last-of-type .session:last-child a.title");
  rows.append(html);
  /** @type {HTMLElement | null} */ (next)?.focus();
});

// A click anywhere in a row opens its session, except where there is something else to click, or text was selected.
rows.classList.add("clickable");
rows.addEventListener("click", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (target.closest("a, button, label, input, textarea, summary, .asks") || String(getSelection())) return;
  /** @type {HTMLElement | null | undefined} */ (target.closest(".session")?.querySelector("a.title"))?.click();
});

/** @param {string} id */
const row = (id) => rows.querySelector(`[data-id="${CSS.escape(id)}"]`);
/** @returns {string[]} */
const selected = () => [...rows.querySelectorAll(".pick :checked")].map((box) => /** @type {HTMLElement} */ (box.closest(".session")).dataset.id ?? "");

function showBulk() {
  const count = selected().length;
  bulk.hidden = count === 0;
  /** @type {HTMLElement} */ (document.getElementById("bulk-count")).textContent = `${count} selected`;
}
rows.addEventListener("change", showBulk);

/** @param {string[]} sessions @param {boolean} archived */
async function archive(sessions, archived) {
  const answer = await send("POST", "/history/sessions/archive", { sessions, archived });
  for (const left of answer.left) notify(`${left.id}: ${left.reason}`, { bad: true });
  await show(address());
  if (archived && answer.sessions.length) {
    undo = () => void archive(answer.sessions, false);
    notify(`${answer.sessions.length} archived.`, { label: "Undo", action: undo });
  }
}

/** @type {(() => void) | null} */
let undo = null;

/** @param {string[]} sessions */
async function remove(sessions) {
  const answer = await send("POST", "/history/sessions/remove", { sessions });
  for (const left of answer.left) notify(`${left.id}: ${left.reason}`, { bad: true });
  await show(address());
  if (answer.undo.length) offerRestore(answer.sessions);
}

/** @param {string[]} sessions */
function offerRestore(sessions) {
  undo = async () => {
    await send("POST", "/history/trash/restore", { sessions });
    await show(address());
  };
  notify(`${sessions.length} moved to the trash.`, { label: "Undo", action: undo });
}

bulk.addEventListener("click", async (event) => {
  const action = /** @type {HTMLElement} */ (event.target).closest("button")?.dataset.do;
  const sessions = selected();
  const format = /** @type {HTMLSelectElement} */ (document.getElementById("bulk-format")).value;
  const { checked } = /** @type {HTMLInputElement} */ (document.getElementById("bulk-redact"));
  try {
    if (action === "archive") await archive(sessions, true);
    if (action === "remove") await remove(sessions);
    if (action === "export") location.assign(`/ui/export?ids=${sessions.join(",")}&format=${format}&redact=${checked}`);
    if (action === "clear") for (const box of rows.querySelectorAll(".pick input")) /** @type {HTMLInputElement} */ (box).checked = false;
  } catch (error) {
    notify(/** @type {Error} */ (error).message, { bad: true });
  }
  showBulk();
});

/** @param {number} step */
function move(step) {
  const titles = /** @type {HTMLElement[]} */ ([...rows.querySelectorAll(".session a.title")]);
  const current = titles.findIndex((title) => title.closest(".session")?.contains(document.activeElement));
  titles[Math.min(Math.max(current + step, 0), titles.length - 1)]?.focus();
}
const focused = () => /** @type {HTMLElement | null} */ (document.activeElement?.closest(".session"));

onKeys({
  j: () => move(1),
  k: () => move(-1),
  x: () => focused()?.querySelector("input")?.click(),
  e: () => {
    const sessions = selected().length ? selected() : [focused()?.dataset.id ?? ""].filter(Boolean);
    if (sessions.length) void archive(sessions, true);
  },
  u: () => { undo?.(); undo = null; },
});

const renderAsks = follow(rows, () => void show(address(), true));
window.addEventListener("pageshow", (event) => { if (event.persisted) void show(address(), true); });
const removed = sessionStorage.getItem("opensesh-removed");
if (removed) {
  sessionStorage.removeItem("opensesh-removed");
  offerRestore([removed]);
}
refreshIfStale();
