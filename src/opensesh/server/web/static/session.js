// The session page: the log in chunks, its side panel, its map, find, and its keys.
import { fill, notify } from "./dom.js";
import { focusFind } from "./find.js";
import { scrollToEnd } from "./following.js";
import { onKeys } from "./keys.js";
import { address, current, goTo, select, sessionId, settleOn, topTurn } from "./log.js";
import { drawMap, isMapShown } from "./map.js";
import { fetchHtml, send } from "./requests.js";
import { loadBody, openMenu } from "./transcript.js";

const panel = /** @type {HTMLElement} */ (document.getElementById("panel"));
const log = /** @type {HTMLElement} */ (document.getElementById("log"));

/** Loads the figures of the session again, and its map, for which the server reads the same messages. */
export async function refreshPanel() {
  fill(panel, await fetchHtml(`${panel.dataset.source}${isMapShown() ? "?map=1" : ""}`));
  const lines = panel.querySelector(".map-lines");
  if (lines) drawMap(lines.textContent ?? "");
  lines?.remove();
  const line = panel.querySelector("details");
  if (line && matchMedia("(width <= 60rem)").matches) line.open = false;
}

panel.addEventListener("click", (event) => {
  const link = /** @type {Element} */ (event.target).closest("a[data-turn]");
  if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  void goTo(link.dataset.turn ?? "");
});

/**
 * Goes to the next or previous turn that is in the page.
 * @param {number} step
 * @param {string} selector
 */
function move(step, selector) {
  const turns = [...log.querySelectorAll(selector)].filter((turn) => turn.getClientRects().length);
  const start = current() ?? topTurn();
  let at = start ? turns.indexOf(start) : -1;
  if (at < 0 && start) {
    const follows = turns.findIndex((turn) => start.compareDocumentPosition(turn) & Node.DOCUMENT_POSITION_FOLLOWING);
    at = step > 0 ? (follows < 0 ? turns.length : follows) - 1 : follows < 0 ? turns.length : follows;
  }
  const turn = turns[Math.min(Math.max(at + step, 0), turns.length - 1)];
  if (!turn) return;
  select(turn);
  settleOn(turn);
}

function unfold(all = false) {
  const turn = current() ?? topTurn();
  const folds = /** @type {HTMLDetailsElement[]} */ ([...((all ? log : turn)?.querySelectorAll("details.part") ?? [])]);
  const open = folds.some((fold) => !fold.open);
  for (const fold of folds) {
    fold.open = open;
    if (open) void loadBody(fold);
  }
}

function goToFirst() {
  const first = log.querySelector(".chunk");
  if (!first) return;
  scrollTo(0, 0);
  settleOn(first);
}

/**
 * Opens the session before or after this one in the list of all sessions.
 * @param {number} step
 */
async function openNeighbour(step) {
  const { items } = await send("GET", "/history/sessions?limit=500");
  const at = items.findIndex((/** @type {{id: string}} */ item) => item.id === sessionId);
  const neighbour = at < 0 ? undefined : items[at + step];
  if (neighbour) location.assign(`/ui/session/${neighbour.id}`);
  else notify("There is no further session in the list.");
}

onKeys({
  "[": () => void openNeighbour(-1),
  "]": () => void openNeighbour(1),
  j: () => move(1, ".turn"),
  k: () => move(-1, ".turn"),
  n: () => move(1, ".turn.prompt"),
  p: () => move(-1, ".turn.prompt"),
  g: goToFirst,
  G: scrollToEnd,
  f: focusFind,
  o: () => unfold(),
  O: () => unfold(true),
  t: () => /** @type {HTMLElement | null} */ (document.querySelector('.toggle[data-show="reasoning"]'))?.click(),
  c: () => location.assign(`${address}/changes`),
  ".": () => {
    const button = (current() ?? topTurn())?.querySelector("button.more");
    if (button instanceof HTMLElement) openMenu(button);
  },
});

document.addEventListener("keydown", (event) => {
  if (!(event.ctrlKey || event.metaKey) || event.key !== "f") return;
  event.preventDefault();
  focusFind();
});

for (const link of document.querySelectorAll(".toggle")) {
  link.addEventListener("click", () => {
    const turn = current() ?? topTurn();
    const target = new URL(/** @type {HTMLAnchorElement} */ (link).href);
    if (turn) target.searchParams.set("at", turn.id.slice(2));
    /** @type {HTMLAnchorElement} */ (link).href = target.href;
  });
}

refreshPanel().catch((error) => notify(`The figures could not be loaded: ${error.message}`, { bad: true }));
