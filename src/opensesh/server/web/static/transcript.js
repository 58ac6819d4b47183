// What every transcript can do: load folded parts when they are unfolded, copy code, and the menu of a turn.
import { fill, make, notify } from "./dom.js";
import { fetchHtml } from "./requests.js";

document.documentElement.classList.add("scripted");

/**
 * Loads what is inside a folded part, once.
 * @param {Element} details
 */
export async function loadBody(details) {
  const link = details.querySelector(":scope > .body > a.load:only-child");
  if (link instanceof HTMLAnchorElement && !link.dataset.loading) await replaceBody(link);
}

/** @param {HTMLAnchorElement} link */
async function replaceBody(link) {
  const body = link.closest(".body, .part");
  if (!body || link.dataset.loading) return;
  link.dataset.loading = "1";
  try {
    const html = await fetchHtml(link.href);
    const hadFocus = link === document.activeElement;
    fill(body, html);
    if (hadFocus) /** @type {HTMLElement | null} */ (body.querySelector("[tabindex]"))?.focus({ preventScroll: true });
    body.dispatchEvent(new CustomEvent("filled", { bubbles: true }));
  } catch (error) {
    delete link.dataset.loading;
    notify(`This part could not be loaded: ${/** @type {Error} */ (error).message}`, { bad: true });
  }
}

/** @param {Element} button */
async function copyCode(button) {
  await copyText(button.closest("figure")?.querySelector("pre")?.textContent ?? "");
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

/** @param {string} text */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    notify("The browser did not permit to copy.", { bad: true });
  }
}

/**
 * The entries of a turn's menu; other modules add to them.
 * @type {((turn: HTMLElement, address: string) => HTMLElement[])[]}
 */
export const menuEntries = [
  (turn, address) => {
    const id = turn.id.slice(2);
    const link = make("button", { type: "button" }, "Copy link");
    link.addEventListener("click", () => copyText(`${location.origin}${address}?at=${encodeURIComponent(id)}#${turn.id}`));
    const markdown = make("button", { type: "button" }, "Copy as Markdown");
    markdown.addEventListener("click", async () => {
      const response = await fetch(`${address}/turns/${encodeURIComponent(id)}?form=markdown`);
      await copyText(await response.text());
    });
    const raw = make("a", { href: `${address}/turns/${encodeURIComponent(id)}` }, "Raw JSON");
    const entries = [link, markdown, raw];
    if (turn.classList.contains("prompt")) {
      entries.push(make("a", { href: `${address}/changes?prompt=${encodeURIComponent(id)}` }, "Changes of this prompt"));
    } else {
      entries.push(make("a", { href: `${address}/context?message=${encodeURIComponent(id)}` }, "Context of this step"));
    }
    return entries;
  },
];

/** @param {HTMLElement} button */
export function openMenu(button) {
  closeMenu();
  const turn = button.closest(".turn");
  const address = button.closest("[data-address]")?.getAttribute("data-address");
  if (!(turn instanceof HTMLElement) || !address) return;
  const menu = make("div", { class: "turn-menu", role: "menu", id: "turn-menu" });
  for (const entry of menuEntries.flatMap((entries) => entries(turn, address))) {
    entry.setAttribute("role", "menuitem");
    entry.tabIndex = -1;
    menu.append(entry);
  }
  document.body.append(menu);
  const place = button.getBoundingClientRect();
  menu.style.top = `${scrollY + place.bottom}px`;
  menu.style.left = `${Math.max(8, scrollX + place.right - menu.offsetWidth)}px`;
  button.setAttribute("aria-haspopup", "menu");
  button.setAttribute("aria-expanded", "true");
  /** @type {HTMLElement | null} */ (menu.firstElementChild)?.focus();
}

function closeMenu() {
  document.getElementById("turn-menu")?.remove();
  const button = document.querySelector(".more[aria-expanded]");
  button?.removeAttribute("aria-expanded");
  return /** @type {HTMLElement | null} */ (button);
}

document.addEventListener("toggle", (event) => {
  const details = /** @type {HTMLDetailsElement} */ (event.target);
  if (details.open) void loadBody(details);
}, true);

document.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  const load = target.closest("a.load.all");
  const more = target.closest("button.more");
  if (target.closest("button.copy")) void copyCode(/** @type {Element} */ (target.closest("button.copy")));
  if (load instanceof HTMLAnchorElement && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    void replaceBody(load);
  }
  if (more instanceof HTMLElement && !more.hasAttribute("aria-expanded")) openMenu(more);
  else if (target.closest("#turn-menu")) closeMenu()?.focus(); // what the entry opens gives the focus back there
  else closeMenu();
});

document.addEventListener("keydown", (event) => {
  const menu = document.getElementById("turn-menu");
  if (!menu) return;
  const entries = /** @type {HTMLElement[]} */ ([...menu.children]);
  const at = entries.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  const steps = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 };
  if (event.key in steps) {
    event.preventDefault();
    entries.at(steps[/** @type {keyof steps} */ (event.key)] % entries.length)?.focus();
  } else if (event.key === "Escape" || event.key === "Tab") {
    closeMenu()?.focus();
  }
});
