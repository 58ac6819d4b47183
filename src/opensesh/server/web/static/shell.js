// What every page has: keys that lead to other pages, and the palette.
import { onKeys } from "./keys.js";
import { openPalette } from "./palette.js";

/** @param {string} path */
const go = (path) => () => location.assign(path);

onKeys({
  "/": () => document.getElementById("search-everything")?.focus(),
  "?": go("/ui/keys"),
  "g s": go("/ui/"),
  "g l": go("/ui/live"),
  "g p": go("/ui/projects"),
  "g c": go("/ui/costs"),
  "g d": go("/ui/doctor"),
});

document.addEventListener("keydown", (event) => {
  const isFree = event.target === document.body && !document.querySelector("dialog[open]");
  if (event.key === "Escape" && isFree && location.pathname === "/ui/keys") history.back();
  if ((event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
  }
});
