// The check of the store with its repairs, and the trash.

import { confirmed, fill, notify } from "./dom.js";
import { fetchHtml, send } from "./requests.js";

const report = document.getElementById("report");

async function check() {
  if (!report) return;
  report.setAttribute("aria-busy", "true");
  try {
    fill(report, await fetchHtml("/ui/doctor/report"));
  } catch (error) {
    notify(`The check failed: ${/** @type {Error} */ (error).message}`, { bad: true });
  }
  report.setAttribute("aria-busy", "false");
}

/** @type {Record<string, (value: string) => Promise<string>>} */
const actions = {
  async fix() {
    const result = await send("POST", "/history/doctor/fix", {});
    await check();
    return `${result.fixed} repaired.`;
  },
  async undo(undo) {
    const result = await send("POST", "/history/doctor/undo", { undo });
    await check();
    return result.left.length ? `Not everything could be undone: ${result.left[0].reason}` : "The repair was undone.";
  },
  async restore(session) {
    const result = await send("POST", "/history/trash/restore", { sessions: [session] });
    if (result.left.length) return `Not everything could be restored: ${result.left[0].reason}`;
    location.reload();
    return "Restored.";
  },
  async empty(count) {
    const sessions = count === "1" ? "1 session" : `${count} sessions`;
    if (!await confirmed(`Delete ${sessions} for good?`, "This cannot be undone.", "Delete")) return "";
    await send("POST", "/history/trash/empty", {});
    location.reload();
    return "Deleted.";
  },
};

document.addEventListener("click", async (event) => {
  const button = event.target instanceof Element ? event.target.closest("button") : null;
  const name = button && Object.keys(actions).find((key) => key in button.dataset);
  if (!button || !name || button.ariaBusy) return;
  button.ariaBusy = "true"; // not disabled: a dialog gives the focus back to it
  try {
    const text = await actions[name](button.dataset[name] ?? "");
    if (text) notify(text);
  } catch (error) {
    notify(/** @type {Error} */ (error).message, { bad: true });
  }
  button.ariaBusy = null;
});

if (report?.getAttribute("aria-busy") === "true") await check();
