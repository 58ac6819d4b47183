// All sessions that run or wait, in one place; every request can be answered here.

import { onAsks, pendingAsks, prepare, showAsks } from "./asks.js";
import { notify, parse } from "./dom.js";
import { connect, on, watch } from "./live.js";
import { fetchHtml } from "./requests.js";
import "./notifications.js";

/** Processes that do not run in this server send no events. */
const OTHERS_MS = 5000;
const list = /** @type {HTMLElement} */ (document.querySelector(".live-list"));
const announcer = /** @type {HTMLElement} */ (document.querySelector(".announce"));
let timer = 0;

/** Reads the list again, soon. Requests that are shown stay as they are: one may have the focus, or a reason in it. */
function refresh() {
  clearTimeout(timer);
  timer = window.setTimeout(async () => {
    try {
      const items = parse(await fetchHtml("/ui/live?fragment=items"));
      for (const item of items.querySelectorAll(".live-item")) {
        const session = /** @type {HTMLElement} */ (item).dataset.session ?? "";
        const box = list.querySelector(`[data-session="${CSS.escape(session)}"] .asks`);
        if (box?.childElementCount) item.querySelector(".asks")?.replaceWith(box);
        else item.querySelectorAll(".ask").forEach((panel) => prepare(/** @type {HTMLElement} */ (panel)));
      }
      const focused = /** @type {HTMLElement | null} */ (document.activeElement);
      list.replaceChildren(items);
      if (focused && list.contains(focused)) focused.focus(); // an element that is moved loses it
      renderAsks();
    } catch (error) {
      if (error instanceof Error && error.name !== "TypeError") notify(error.message, { bad: true });
    }
  }, 150);
}

function renderAsks() {
  const asks = pendingAsks();
  for (const item of list.querySelectorAll(".live-item")) {
    const own = asks.filter((ask) => ask.session === /** @type {HTMLElement} */ (item).dataset.session);
    showAsks(/** @type {Element} */ (item.querySelector(".asks")), own);
  }
}

on("connected", refresh);
on("status", refresh);
on("session", refresh);
on("ask", (ask) => { announcer.textContent = `${ask.title} waits for your ${ask.kind === "question" ? "answer" : "permission"}`; });
onAsks(() => { renderAsks(); refresh(); });
document.querySelectorAll(".ask").forEach((panel) => prepare(/** @type {HTMLElement} */ (panel)));
setInterval(() => { if (!document.hidden) refresh(); }, OTHERS_MS);
watch("", /** @type {HTMLElement} */ (document.querySelector("[data-event]")).dataset.event ?? "");
connect();
