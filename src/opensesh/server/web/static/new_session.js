// Begins a session in a folder.

import { notify } from "./dom.js";
import { send } from "./requests.js";

const form = /** @type {HTMLFormElement} */ (document.querySelector(".new-session"));
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const directory = /** @type {HTMLInputElement} */ (form.elements.namedItem("directory")).value.trim();
  try {
    const session = await send("POST", `/session?directory=${encodeURIComponent(directory)}`, {});
    location.href = `/ui/session/${session.id}`;
  } catch (error) {
    notify(`No session was created: ${/** @type {Error} */ (error).message}`, { bad: true });
  }
});
