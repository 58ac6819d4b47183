// The list of sessions while sessions run: badges change at once, rows that would move wait for a click.
import { onAsks, pendingAsks, showAsks } from "./asks.js";
import { make, visible } from "./dom.js";
import { connect, on, watch } from "./live.js";
import "./notifications.js";

/**
 * Keeps the rows up to date.
 * @param {HTMLElement} rows
 * @param {() => void} reload shows the newest rows
 * @returns {() => void} shows the requests again, in rows that are new
 */
export function follow(rows, reload) {
  /** @type {Set<string>} */
  const newer = new Set();
  const button = make("button", { type: "button", class: "newer" });
  button.addEventListener("click", () => { newer.clear(); button.remove(); reload(); });

  /** @param {string} id @returns {HTMLElement | null} */
  const row = (id) => rows.querySelector(`[data-id="${CSS.escape(id)}"]`);

  /** @param {string} id @param {string} kind @param {string} text */
  function setBadge(id, kind, text) {
    const known = row(id)?.querySelector("[data-live]");
    if (!text) { known?.remove(); return; }
    const badge = known ?? make("a", { "data-live": "", href: `/ui/session/${id}` });
    badge.className = `badge ${kind}`;
    badge.textContent = text;
    if (!known) row(id)?.querySelector(".title")?.after(badge);
  }

  on("status", (data) => setBadge(data.session, "live", !data.status || data.status.type === "idle" ? "" : "running"));
  on("ask", (ask) => setBadge(ask.session, "warn", "waits for you"));
  on("answered", (data) => setBadge(data.session, "live", "running"));
  on("session", (data) => {
    const known = row(data.id);
    if (data.removed) { known?.remove(); return; }
    const title = known?.querySelector(".title bdi");
    if (title && data.title) title.textContent = visible(data.title);
    if (known || data.parent) return;
    newer.add(data.id);
    button.textContent = `${newer.size} newer ↑`;
    rows.querySelector(".summary")?.append(button);
  });
  // Requests are answered in their row; those of a subagent in the row of the session that started it.
  function renderAsks() {
    const asks = pendingAsks();
    for (const element of rows.querySelectorAll("[data-id]")) {
      const id = /** @type {HTMLElement} */ (element).dataset.id ?? "";
      const own = asks.filter((ask) => ask.session === id || ask.ancestors.includes(id));
      let box = element.querySelector(".asks");
      if (!own.length) { box?.remove(); continue; }
      if (!box) element.append(box = make("div", { class: "asks" }));
      showAsks(box, own.slice(0, 1), own.length > 1 ? `1 of ${own.length}` : "");
    }
  }
  onAsks(renderAsks);
  watch("", "");
  connect();
  return renderAsks;
}
