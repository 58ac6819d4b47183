// Completion in the prompt: @ for files and agents, / for commands. The textarea is the combobox of a listbox.

import { make } from "./dom.js";
import { send } from "./requests.js";

/** @typedef {{value: string, label: string, note: string, kind: string}} Choice */

const DELAY_MS = 80;

/**
 * Completes words of a textarea.
 * @param {HTMLTextAreaElement} input
 * @param {HTMLElement} list
 * @param {{directory: string, agents: () => any[], commands: () => any[], onChoice: (choice: Choice) => void}} options
 * @returns {{isOpen: () => boolean}}
 */
export function attachCompletion(input, list, { directory, agents, commands, onChoice }) {
  /** @type {Choice[]} */
  let choices = [];
  let selected = 0;
  let start = 0;
  let timer = 0;
  let asked = 0;

  function close() {
    clearTimeout(timer);
    asked++;
    choices = [];
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  /** @param {Choice[]} found */
  function open(found) {
    choices = found;
    if (!found.length) { close(); return; }
    list.replaceChildren(...found.map((choice, index) => {
      const option = make("div", { role: "option", id: `choice-${index}`, "aria-selected": "false" },
        make("span", { class: "choice" }, choice.label), make("span", { class: "dim small" }, choice.note));
      option.addEventListener("mousedown", (event) => { event.preventDefault(); accept(index); });
      return option;
    }));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    select(0);
  }

  /** @param {number} index */
  function select(index) {
    selected = (index + choices.length) % choices.length;
    [...list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === selected)));
    list.children[selected]?.scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", `choice-${selected}`);
  }

  /** @param {number} index */
  function accept(index) {
    const choice = choices[index];
    const end = input.selectionStart;
    const text = `${choice.kind === "command" ? "/" : "@"}${choice.value} `;
    input.setRangeText(text, start, end, "end");
    close();
    onChoice(choice);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }

  async function look() {
    const before = input.value.slice(0, input.selectionStart);
    const command = /^\/(\S*)$/.exec(before);
    const mention = /(?:^|\s)@([^\s@]*)$/.exec(before);
    if (!command && !mention) { close(); return; }
    const mine = ++asked;
    const word = (command ?? mention)?.[1] ?? "";
    start = input.selectionStart - word.length - 1;
    const found = command ? matchingCommands(word) : await matchingMentions(word);
    if (mine === asked) open(found.slice(0, 12));
  }

  /** @param {string} word @returns {Choice[]} */
  function matchingCommands(word) {
    return commands().filter((one) => one.name.toLowerCase().includes(word.toLowerCase()))
      .map((one) => ({ value: one.name, label: `/${one.name}`, note: one.description ?? "", kind: "command" }));
  }

  /** @param {string} word @returns {Promise<Choice[]>} */
  async function matchingMentions(word) {
    const people = agents().filter((one) => one.mode !== "primary" && !one.hidden && one.name.includes(word))
      .map((one) => ({ value: one.name, label: `@${one.name}`, note: "agent", kind: "agent" }));
    let files = [];
    try {
      files = await send("GET", `/find/file?query=${encodeURIComponent(word)}&directory=${encodeURIComponent(directory)}`);
    } catch { /* no files are better than no prompt */ }
    return [...people, ...files.map((/** @type {string} */ path) => ({ value: path, label: path, note: path.endsWith("/") ? "folder" : "file", kind: "file" }))];
  }

  input.addEventListener("input", () => { clearTimeout(timer); timer = window.setTimeout(look, DELAY_MS); });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (list.hidden || event.isComposing) return;
    if (event.key === "ArrowDown") select(selected + 1);
    else if (event.key === "ArrowUp") select(selected - 1);
    else if (event.key === "Enter" || event.key === "Tab") accept(selected);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  });
  return { isOpen: () => !list.hidden };
}
