// The only module that turns text into elements, and it accepts only what this server rendered.

/** @type {{createHTML: (html: string) => any}} */
const policy = /** @type {any} */ (window).trustedTypes?.createPolicy("opensesh", {
  createHTML: (/** @type {string} */ html) => html,
}) ?? { createHTML: (html) => html };

/**
 * Returns HTML of the server as nodes.
 * @param {string} html
 * @returns {DocumentFragment}
 */
export function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return template.content;
}

/**
 * Replaces the content of an element by HTML of the server.
 * @param {Element} element
 * @param {string} html
 */
export function fill(element, html) {
  element.replaceChildren(parse(html));
}

/** As in visible_text.py: what cannot be seen, or changes how other text is seen. */
const HIDDEN = /([\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\u2028\u2029\u2060-\u2064\ufeff\u{e0000}-\u{e007f}\ud800-\udfff])\1*/gu;

/**
 * Returns a text with the code points of its hidden characters, so that no name looks like another one.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(HIDDEN, (run, /** @type {string} */ first) => {
    const name = `U+${(first.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
    return run.length > first.length ? `[${name}*${run.length / first.length}]` : `[${name}]`;
  });
}

/**
 * Makes an element with attributes and children; texts stay texts, and hidden characters in them are shown.
 * @param {string} name
 * @param {Record<string, string>} [attributes]
 * @param {...(Node | string)} children
 */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
  return element;
}

/**
 * Asks before something that others see or that ends something.
 * @param {string} title
 * @param {string} text
 * @param {string} label of the button that does it
 * @returns {Promise<boolean>}
 */
export function confirmed(title, text, label) {
  const dialog = /** @type {HTMLDialogElement} */ (make("dialog", { class: "confirm", "aria-labelledby": "confirm-title" }));
  const buttons = [["", "Cancel", ""], ["yes", label, "primary"]].map(([value, words, kind]) => make("button", { value, class: kind }, words));
  dialog.append(make("form", { method: "dialog" }, make("h2", { id: "confirm-title" }, title), make("p", {}, text), make("div", { class: "row" }, ...buttons)));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "yes"); });
  });
}

/**
 * Shows a message for some seconds, with an optional button.
 * @param {string} text
 * @param {{bad?: boolean, label?: string, action?: () => void, seconds?: number}} [options]
 */
export function notify(text, { bad = false, label = "", action, seconds = 10 } = {}) {
  const toast = make("div", { class: bad ? "toast bad" : "toast" }, make("span", {}, text));
  if (label && action) {
    const button = make("button", { type: "button" }, label);
    button.addEventListener("click", () => { toast.remove(); action(); });
    toast.append(button);
  }
  document.querySelector(".toasts")?.append(toast);
  setTimeout(() => toast.remove(), seconds * 1000);
  return toast;
}
