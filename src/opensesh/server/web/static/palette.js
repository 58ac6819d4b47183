// The palette: sessions, projects, pages and a search, by a few letters.
import { make } from "./dom.js";
import { send } from "./requests.js";

const SILENCE_MS = 80;
/** @type {[string, string][]} */
const PAGES = [
  ["Sessions", "/ui/"], ["Live", "/ui/live"], ["Projects", "/ui/projects"], ["Costs", "/ui/costs"], ["Doctor", "/ui/doctor"],
  ["Trash", "/ui/trash"], ["Search", "/ui/search"], ["Settings", "/ui/settings"], ["Keys", "/ui/keys"],
];

/**
 * Shows characters that change the direction of a text, or that one does not see, by their numbers.
 * @param {string} text
 */
const visible = (text) => text.replace(/[\u0000-\u001f\u200b\u202a-\u202e\u2060-\u2069]/g,
  (one) => `[U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);

/**
 * Returns what tells sessions with the same title apart.
 * @param {{projectName: string, updated: number, archived: boolean}} session
 */
function sessionNote(session) {
  const day = new Date(session.updated).toLocaleDateString("sv"); // 2026-11-19
  return [visible(session.projectName), day, ...(session.archived ? ["archived"] : [])].join(" · ");
}

/** Opens the palette; the focus returns to where it was when it closes. */
export function openPalette() {
  if (document.querySelector("dialog.palette")) return;
  const input = /** @type {HTMLInputElement} */ (make("input", {
    type: "text", role: "combobox", placeholder: "Session, project or page", "aria-label": "Session, project or page",
    "aria-controls": "palette-list", "aria-expanded": "true", "aria-autocomplete": "list", autocomplete: "off",
  }));
  const list = make("ul", { id: "palette-list", class: "palette-list", role: "listbox", "aria-label": "Results" });
  const dialog = /** @type {HTMLDialogElement} */ (make("dialog", { class: "palette", "aria-label": "Palette" }, input, list));
  let pending = new AbortController();
  let timer = 0;
  let position = 0;

  /** @param {{kind: string, label: string, note: string, path: string}[]} entries */
  function show(entries) {
    list.replaceChildren(...entries.map((entry, index) => {
      return make("li", { role: "option", id: `palette-${index}`, "aria-selected": "false", "data-path": entry.path },
        make("span", { class: "palette-kind" }, entry.kind), make("bdi", { class: "cut" }, visible(entry.label)), make("span", { class: "dim small cut" }, entry.note));
    }));
    select(0);
  }

  /** @param {Element | null | undefined} option */
  function open(option) {
    const path = /** @type {HTMLElement | null | undefined} */ (option)?.dataset.path;
    if (path) location.assign(path);
  }

  /** @param {number} index */
  function select(index) {
    const options = [...list.children];
    position = Math.min(Math.max(index, 0), options.length - 1);
    options.forEach((option, number) => option.setAttribute("aria-selected", String(number === position)));
    input.setAttribute("aria-activedescendant", options.length ? `palette-${position}` : "");
    options[position]?.scrollIntoView({ block: "nearest" });
  }

  async function load() {
    const text = input.value.trim();
    const pages = PAGES.filter(([name]) => name.toLowerCase().includes(text.toLowerCase()))
      .map(([name, path]) => ({ kind: "page", label: name, note: "", path }));
    pending.abort();
    pending = new AbortController();
    let found = { projects: [], sessions: [] };
    try {
      found = await send("GET", `/history/suggest?q=${encodeURIComponent(text)}`, undefined, pending.signal);
    } catch (error) {
      if (/** @type {Error} */ (error).name === "AbortError") return;
    }
    const sessions = found.sessions.map((/** @type {any} */ one) => ({ kind: "session", label: one.title, note: sessionNote(one), path: `/ui/session/${one.id}` }));
    const projects = found.projects.map((/** @type {string} */ name) => ({ kind: "project", label: name, note: "", path: `/ui/?project=${encodeURIComponent(name)}` }));
    const search = text ? [{ kind: "search", label: `Search all texts for “${text}”`, note: "", path: `/ui/search?q=${encodeURIComponent(text)}` }] : [];
    show(text ? [...sessions, ...projects, ...pages, ...search] : [...pages, ...sessions]);
  }

  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => void load(), SILENCE_MS); });
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); select(position + step); }
    if (event.key === "Enter") { event.preventDefault(); open(list.children[position]); }
  });
  list.addEventListener("click", (event) => open(/** @type {Element} */ (event.target).closest("li")));
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => { pending.abort(); dialog.remove(); });
  document.body.append(dialog);
  dialog.showModal();
  void load();
}
