// Exchanges the ticket in the fragment of the address, or the code that was typed, for a cookie and a key.
import { KEY_NAME } from "./requests.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("enter"));
const failure = /** @type {HTMLElement} */ (document.getElementById("failure"));

/** @param {string} code */
async function enter(code) {
  const response = await fetch("/ui/enter", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ code }),
  });
  const answer = await response.json();
  if (response.ok) {
    localStorage.setItem(KEY_NAME, answer.key);
    location.replace("/ui/");
  } else {
    failure.textContent = answer.data.message;
    failure.hidden = false;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  void enter(String(new FormData(form).get("code")));
});

const ticket = location.hash.slice(1);
if (ticket) {
  history.replaceState(null, "", location.pathname); // so that it is in no history
  void enter(ticket);
}
