// The settings of this browser, in a cookie that the server reads when it renders a page.
import { notify } from "./dom.js";
import { send } from "./requests.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("view"));
const notifications = /** @type {HTMLInputElement} */ (document.getElementById("notifications"));

form.addEventListener("change", (event) => {
  if (event.target === notifications) return;
  const values = new URLSearchParams(/** @type {any} */ (new FormData(form)));
  document.cookie = `opensesh_view=${values}; path=/ui; max-age=31536000; samesite=strict`;
  for (const [name, value] of values) document.documentElement.dataset[name] = value;
});

notifications.checked = localStorage.getItem("opensesh-notifications") === "on" && Notification.permission === "granted";
notifications.addEventListener("change", async () => {
  if (notifications.checked && (await Notification.requestPermission()) !== "granted") {
    notifications.checked = false;
    notify("This browser does not allow notifications of this page.", { bad: true });
  }
  localStorage.setItem("opensesh-notifications", notifications.checked ? "on" : "off");
});

document.getElementById("browsers")?.addEventListener("click", async (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest("button");
  if (!button) return;
  try {
    await send("DELETE", `/ui/browsers/${button.dataset.end}`);
    if ("own" in button.dataset) location.reload();
    else button.closest("tr")?.remove();
  } catch (error) {
    notify(String(/** @type {Error} */ (error).message), { bad: true });
  }
});
