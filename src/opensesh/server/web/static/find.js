// Find in the session: the server searches, because most turns are not in the page.
import { fill, make, notify } from "./dom.js";
import { address, goTo, pinned } from "./log.js";
import { markMatches } from "./map.js";
import { fetchHtml } from "./requests.js";
import { loadBody } from "./transcript.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("find"));
const input = /** @type {HTMLInputElement} */ (document.getElementById("find-words"));
const count = /** @type {HTMLOutputElement} */ (document.getElementById("find-count"));
const buttons = ["find-previous", "find-next"].map((id) => /** @type {HTMLButtonElement} */ (document.getElementById(id)));
const hits = make("div", { class: "hits", hidden: "" });
document.querySelector(".session-tools")?.after(hits);
let at = -1;
/** @type {AbortController | null} */
let running = null;
let timer = 0;

const links = () => /** @type {HTMLAnchorElement[]} */ ([...hits.querySelectorAll("a[data-turn]")]);

async function find() {
  running?.abort();
  running = new AbortController();
  at = -1;
  const words = input.value.trim();
  if (!words) return close();
  try {
    fill(hits, await fetchHtml(`${address}/find?q=${encodeURIComponent(words)}`, running.signal));
  } catch (error) {
    if (/** @type {Error} */ (error).name !== "AbortError") notify(/** @type {Error} */ (error).message, { bad: true });
    return;
  }
  hits.hidden = false;
  const found = links();
  count.textContent = found.length ? `${found.length}` : "nothing found";
  for (const button of buttons) button.hidden = found.length < 1;
  markMatches(found.map((link) => link.dataset.turn ?? ""));
  highlight();
}

function close() {
  hits.hidden = true;
  hits.replaceChildren();
  count.textContent = "";
  for (const button of buttons) button.hidden = true;
  pinned.clear();
  markMatches([]);
  highlight();
}

/** @param {number} step */
async function go(step) {
  const found = links();
  if (!found.length) return;
  at = (at + step + found.length) % found.length;
  const link = found[at];
  hits.querySelector("[aria-current]")?.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  link.scrollIntoView({ block: "nearest" });
  count.textContent = `${at + 1} of ${found.length}`;
  const turn = await goTo(link.dataset.turn ?? "", link.dataset.part ?? "");
  const chunk = turn?.closest(".chunk");
  if (!turn || !chunk) return;
  pinned.clear();
  pinned.add(chunk);
  const part = document.getElementById(`p-${link.dataset.part}`);
  if (part instanceof HTMLDetailsElement) {
    part.open = true;
    await loadBody(part);
  }
  highlight();
}

/** Marks the words in the turns that are in the page. */
function highlight() {
  if (!("highlights" in CSS)) return;
  const words = input.value.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter(Boolean);
  const marks = new Highlight();
  let left = words.length ? 1000 : 0;
  const walker = document.createTreeWalker(/** @type {Node} */ (document.getElementById("log")), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && left > 0; node = walker.nextNode()) {
    const text = (node.textContent ?? "").toLowerCase();
    if (text.length !== node.textContent?.length) continue;
    for (const word of words) {
      for (let start = text.indexOf(word); start >= 0 && left > 0; start = text.indexOf(word, start + word.length)) {
        const range = new Range();
        range.setStart(node, start);
        range.setEnd(node, start + word.length);
        marks.add(range);
        left -= 1;
      }
    }
  }
  CSS.highlights.set("found", marks);
}

input.addEventListener("input", () => {
  clearTimeout(timer);
  timer = window.setTimeout(find, 150);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  void (links().length && !hits.hidden ? go(1) : find().then(() => go(1)));
});
input.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  input.value = "";
  close();
  input.blur();
});
buttons[0].addEventListener("click", () => void go(-1));
buttons[1].addEventListener("click", () => void go(1));
hits.addEventListener("click", (event) => {
  const link = /** @type {Element} */ (event.target).closest("a[data-turn]");
  if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  at = links().indexOf(link) - 1;
  void go(1);
});
for (const change of ["chunk", "filled"]) document.getElementById("log")?.addEventListener(change, highlight);
if (input.value) highlight(); // the page was opened from a search
/** Moves the focus to the box. */
export function focusFind() {
  input.focus();
  input.select();
}
