// Notifications of the operating system, if the settings ask for them. They say that a session waits or has ended, and
// nothing of its content. Every tab shows them with the same tag, so that the browser shows each once.

import { on } from "./live.js";

/** @type {Set<string>} */
const running = new Set();

/** @param {string} text @param {string} tag */
function show(text, tag) {
  const isAsked = localStorage.getItem("opensesh-notifications") === "on" && Notification.permission === "granted";
  if (isAsked && document.hidden) new Notification("opensesh", { body: text, tag });
}

on("ask", (ask) => show("A session waits for you.", ask.id));
on("status", (data) => {
  if (!data.status) return;
  if (data.status.type !== "idle") running.add(data.session);
  else if (running.delete(data.session)) show("A session has ended.", data.session);
});
