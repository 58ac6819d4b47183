// Results while one types. The address always says what is shown.
import { fill, make, notify, parse } from "./dom.js";
import { onKeys } from "./keys.js";
import { fetchHtml } from "./requests.js";

const box = /** @type {HTMLInputElement} */ (document.getElementById("search-everything"));
const options = /** @type {HTMLFormElement} */ (document.getElementById("search-options"));
const results = /** @type {HTMLElement} */ (document.getElementById("results"));
const SILENCE_MS = 80;
const BUILDING_MS = 1500;
const RECENT = "opensesh-searches";
const RECENT_COUNT = 8;
let pending = new AbortController();
let timer = 0;

/** Returns the address of the search that the fields describe. */
function address() {
  const values = new URLSearchParams();
  if (box.value.trim()) values.set("q", box.value);
  for (const [name, value] of new FormData(options)) {
    if (value && name !== "q" && !(name === "mode" && value === "words")) values.set(name, String(value));
  }
  return values.size ? `/ui/search?${values}` : "/ui/search";
}

/** @param {string} path @param {boolean} [typing] */
async function show(path, typing = false) {
  pending.abort();
  pending = new AbortController();
  const asked = path + (path.includes("?") ? "&" : "?") + "fragment=results" + (typing ? "&typing=1" : "");
  try {
    fill(results, await fetchHtml(asked, pending.signal));
  } catch (error) {
    if (/** @type {Error} */ (error).name !== "AbortError") notify(/** @type {Error} */ (error).message, { bad: true });
    return;
  }
  performance.mark("opensesh-results");
  afterShow();
}

function afterShow() {
  showRecent();
  if (results.querySelector("[data-building]")) {
    clearTimeout(timer);
    timer = setTimeout(() => void show(address()), BUILDING_MS);
  }
}

/** @param {boolean} typing */
function ask(typing) {
  clearTimeout(timer);
  timer = setTimeout(() => {
    const path = address();
    history.replaceState(null, "", path);
    void show(path, typing);
  }, SILENCE_MS);
}

box.addEventListener("input", () => ask(true));
options.addEventListener("input", () => ask(false));
options.addEventListener("submit", (event) => event.preventDefault());
box.form?.addEventListener("submit", (event) => {
  event.preventDefault();
  const first = /** @type {HTMLElement | null} */ (results.querySelector("a.hit"));
  remember();
  first?.focus();
});

function remember() {
  const text = box.value.trim();
  if (!text) return;
  const known = recent().filter((one) => one !== text);
  localStorage.setItem(RECENT, JSON.stringify([text, ...known].slice(0, RECENT_COUNT)));
}

/** @returns {string[]} */
function recent() {
  try {
    const known = JSON.parse(localStorage.getItem(RECENT) ?? "[]");
    return Array.isArray(known) ? known.map(String) : [];
  } catch {
    return [];
  }
}

function showRecent() {
  const section = document.getElementById("recent");
  const known = recent();
  if (!section || !known.length) return;
  section.hidden = false;
  section.querySelector("ul")?.replaceChildren(...known.map((text) =>
    make("li", {}, make("a", { href: `/ui/search?q=${encodeURIComponent(text)}` }, text))));
}

results.addEventListener("click", async (event) => {
  const link = /** @type {HTMLAnchorElement | null} */ (/** @type {HTMLElement} */ (event.target).closest("a"));
  if (!link) return;
  if (link.matches(".hit, .title")) remember();
  if (link.rel !== "next") return;
  event.preventDefault();
  const html = parse(await fetchHtml(`${link.getAttribute("href")}&fragment=results`));
  const hits = html.querySelector(".hits");
  link.closest(".more")?.remove();
  results.querySelector(".hits")?.append(...(hits?.childNodes ?? []));
});

/** @param {number} step */
function move(step) {
  const hits = /** @type {HTMLElement[]} */ ([...results.querySelectorAll("a.hit")]);
  const current = hits.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  hits[Math.min(Math.max(current + step, 0), hits.length - 1)]?.focus();
}

box.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") { event.preventDefault(); move(1); }
});
onKeys({ j: () => move(1), k: () => move(-1) });
if (!box.value) box.focus();
afterShow();
