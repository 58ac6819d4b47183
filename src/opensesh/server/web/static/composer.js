// The prompt box: text, mentions, attachments, agent, model and variant, drafts, sending and stopping.

import { attachCompletion } from "./complete.js";
import { make, notify } from "./dom.js";
import { abandonedPrompts, deliver, messageId } from "./outbox.js";
import { send } from "./requests.js";

const MAX_FILE_BYTES = 10 << 20;
const LONG_PASTE = 20_000;
const RECENT_MODELS = "opensesh-recent-models";
/** @typedef {{kind: "file" | "text", name: string, mime: string, url: string, text: string}} Attachment */

/**
 * Makes the prompt box of a session act.
 * @param {HTMLFormElement} form
 * @param {{session: string, directory: string, agent: string, model: string, variant: string}} facts
 * @param {{onSending: (isSending: boolean) => void, onFailure: (error: Error) => void}} handlers
 */
export function attachComposer(form, facts, { onSending, onFailure }) {
  const query = `directory=${encodeURIComponent(facts.directory)}`;
  const input = /** @type {HTMLTextAreaElement} */ (form.querySelector("textarea"));
  const agentPicker = /** @type {HTMLSelectElement} */ (form.querySelector("[name=agent]"));
  const modelPicker = /** @type {HTMLSelectElement} */ (form.querySelector("[name=model]"));
  const variantPicker = /** @type {HTMLSelectElement} */ (form.querySelector("[name=variant]"));
  const chips = /** @type {HTMLElement} */ (form.querySelector(".chips"));
  const files = /** @type {HTMLInputElement} */ (form.querySelector("[type=file]"));
  const draftKey = `opensesh-draft-${facts.session}`;
  /** @type {Attachment[]} */
  const attachments = [];
  /** @type {Map<string, string>} mentions that were chosen, and what they are */
  const mentions = new Map();
  /** @type {any[]} */
  let agents = [];
  /** @type {any[]} */
  let commands = [];
  /** @type {Map<string, any>} */
  const models = new Map();
  let isSending = false;

  const completion = attachCompletion(input, /** @type {HTMLElement} */ (form.querySelector(".completions")), {
    directory: facts.directory,
    agents: () => agents,
    commands: () => commands,
    onChoice: (choice) => mentions.set(choice.value, choice.kind),
  });

  async function load() {
    const [agentList, commandList, catalogue] = await Promise.all(
      ["/agent", "/command", "/config/providers"].map((path) => send("GET", `${path}?${query}`)));
    agents = agentList;
    commands = commandList;
    const primary = agents.filter((one) => one.mode !== "subagent" && !one.hidden);
    fillPicker(agentPicker, primary.map((one) => [one.name, one.name]), facts.agent || "build");
    fillModels(catalogue);
  }

  /** @param {any} catalogue */
  function fillModels(catalogue) {
    modelPicker.replaceChildren();
    for (const provider of catalogue.providers) {
      const group = make("optgroup", { label: provider.name || provider.id });
      for (const model of Object.values(provider.models)) {
        const name = `${provider.id}/${model.id}`;
        models.set(name, model);
        group.append(make("option", { value: name }, model.name || model.id));
      }
      if (group.childElementCount) modelPicker.append(group);
    }
    if (facts.model && !models.has(facts.model)) models.set(facts.model, { name: facts.model }); // that of the session so far
    const recent = [...new Set([facts.model, ...recentModels()])].filter((name) => models.has(name));
    if (recent.length) {
      modelPicker.prepend(make("optgroup", { label: "Recent" },
        ...recent.map((name) => make("option", { value: name }, models.get(name).name || name))));
    }
    const [provider, model] = Object.entries(catalogue.default ?? {})[0] ?? [];
    const standard = recent[0] ?? `${provider}/${model}`;
    if (models.has(standard)) modelPicker.value = standard;
    modelPicker.hidden = !models.size;
    fillVariants(facts.variant);
  }

  /** @param {string} [chosen] */
  function fillVariants(chosen = "") {
    const names = Object.keys(models.get(modelPicker.value)?.variants ?? {});
    variantPicker.hidden = !names.length;
    fillPicker(variantPicker, [["", "default"], ...names.map((name) => /** @type {[string, string]} */ ([name, name]))], chosen);
  }

  /** @returns {string[]} */
  function recentModels() {
    return JSON.parse(localStorage.getItem(RECENT_MODELS) ?? "[]");
  }

  /** @param {Attachment} attachment */
  function attach(attachment) {
    attachments.push(attachment);
    const remove = make("button", { type: "button", class: "plain", "aria-label": `Remove ${attachment.name}` }, "×");
    const chip = make("span", { class: "chip" }, make("bdi", {}, attachment.name), remove);
    remove.addEventListener("click", () => {
      attachments.splice(attachments.indexOf(attachment), 1);
      chip.remove();
      input.focus();
    });
    if (attachment.kind === "text") {
      const open = make("button", { type: "button", class: "plain" }, "Open");
      open.addEventListener("click", () => { remove.click(); input.setRangeText(attachment.text, input.selectionStart, input.selectionEnd, "end"); changed(); });
      remove.before(open);
    }
    chips.append(chip);
  }

  /** Adds a prompt that was sent, to be edited. @param {any[]} parts */
  function insert(parts) {
    const own = parts.filter((part) => !part.synthetic);
    input.value = [input.value, ...own.filter((part) => part.type === "text").map((part) => part.text)].filter(Boolean).join("\n\n");
    for (const { mime, url, filename, source } of own.filter((part) => part.type === "file")) {
      if (source) mentions.set(filename, "file"); // its text names it
      else attach({ kind: "file", name: filename, mime, url, text: "" });
    }
    changed();
    input.focus();
  }

  /** @param {Iterable<File>} chosen */
  async function attachFiles(chosen) {
    for (const file of chosen) {
      if (file.size > MAX_FILE_BYTES) {
        notify(`${file.name} is larger than 10 MB and was not attached.`, { bad: true });
        continue;
      }
      const reader = new FileReader();
      await new Promise((resolve) => { reader.onload = resolve; reader.readAsDataURL(file); });
      const mime = file.type || "application/octet-stream";
      attach({ kind: "file", name: file.name || "picture", mime, url: String(reader.result), text: "" });
    }
  }

  function changed() {
    const isShell = input.value.startsWith("!");
    form.classList.toggle("shell", isShell);
    /** @type {HTMLElement} */ (form.querySelector(".shell-mode")).hidden = !isShell;
    if (input.value) localStorage.setItem(draftKey, input.value);
    else localStorage.removeItem(draftKey);
  }

  /** @returns {{path: string, body: any}} */
  function request(/** @type {string} */ id) {
    const text = input.value;
    const [providerID, ...rest] = modelPicker.value.split("/");
    const model = modelPicker.value ? { providerID, modelID: rest.join("/") } : undefined;
    const variant = variantPicker.value || undefined;
    const agent = agentPicker.value || undefined;
    const fileParts = attachments.filter((one) => one.kind === "file")
      .map((one) => ({ type: "file", mime: one.mime, filename: one.name, url: one.url }));
    if (text.startsWith("!")) {
      return { path: `/session/${facts.session}/shell`, body: { agent: agent ?? "build", command: text.slice(1), model } };
    }
    const command = /^\/(\S+)\s*([^]*)$/.exec(text);
    if (command && commands.some((one) => one.name === command[1])) {
      const body = { command: command[1], arguments: command[2], agent, variant, messageID: id, model: modelPicker.value || undefined, parts: fileParts };
      return { path: `/session/${facts.session}/command`, body };
    }
    const texts = attachments.filter((one) => one.kind === "text").map((one) => ({ type: "text", text: one.text }));
    const parts = [...(text.trim() ? [{ type: "text", text }] : []), ...texts, ...fileParts, ...mentionParts(text)];
    return { path: `/session/${facts.session}/prompt_async`, body: { messageID: id, agent, model, variant, parts } };
  }

  /** @param {string} text */
  function mentionParts(text) {
    return [...mentions].flatMap(([name, kind]) => {
      const value = `@${name}`;
      const start = text.indexOf(value);
      if (start < 0 || kind === "command") return [];
      const source = { value, start, end: start + value.length };
      if (kind === "agent") return [{ type: "agent", name, source }];
      const path = `${facts.directory.replace(/\/$/, "")}/${name}`;
      const url = `file://${path.split("/").map(encodeURIComponent).join("/")}`;
      const mime = name.endsWith("/") ? "application/x-directory" : "text/plain";
      return [{ type: "file", mime, filename: name, url, source: { type: "file", path, text: source } }];
    });
  }

  async function submit() {
    if (isSending || form.dataset.blocked || (!input.value.trim() && !attachments.length)) return;
    const id = messageId();
    const { path, body } = request(id);
    setSending(true);
    try {
      await deliver({ id, session: facts.session, path, body, text: input.value });
      if (modelPicker.value) localStorage.setItem(RECENT_MODELS, JSON.stringify([...new Set([modelPicker.value, ...recentModels()])].slice(0, 5)));
      input.value = "";
      attachments.length = 0;
      mentions.clear();
      chips.replaceChildren();
      changed();
    } catch (error) {
      onFailure(/** @type {Error} */ (error)); // the text stays
    } finally {
      setSending(false);
      if (document.activeElement === document.body) input.focus();
    }
  }

  /** @param {boolean} value */
  function setSending(value) {
    isSending = value;
    input.readOnly = value;
    form.classList.toggle("sending", value);
    onSending(value);
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  input.addEventListener("input", changed);
  input.addEventListener("keydown", (event) => {
    const isTouch = matchMedia("(pointer: coarse)").matches;
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || isTouch || completion.isOpen()) return;
    event.preventDefault();
    submit();
  });
  input.addEventListener("paste", (event) => {
    const pasted = [...(event.clipboardData?.files ?? [])];
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (pasted.length) { event.preventDefault(); attachFiles(pasted); }
    else if (text.length > LONG_PASTE) {
      event.preventDefault();
      attach({ kind: "text", name: `pasted text, ${text.split("\n").length} lines`, mime: "text/plain", url: "", text });
    }
  });
  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => { event.preventDefault(); attachFiles(event.dataTransfer?.files ?? []); });
  form.querySelector(".attach")?.addEventListener("click", () => files.click());
  files.addEventListener("change", async () => { await attachFiles(files.files ?? []); files.value = ""; });
  modelPicker.addEventListener("change", () => fillVariants());

  input.value = localStorage.getItem(draftKey) ?? "";
  changed();
  abandonedPrompts(facts.session).then((texts) => {
    if (texts.length) { input.value = [input.value, ...texts].filter(Boolean).join("\n\n"); changed(); }
  });
  load().catch((error) => notify(`Agents and models could not be read: ${error.message}`, { bad: true }));
  return { focus: () => input.focus(), insert, text: () => input.value };
}

/** @param {HTMLSelectElement} picker @param {[string, string][]} choices @param {string} chosen */
function fillPicker(picker, choices, chosen) {
  picker.replaceChildren(...choices.map(([value, label]) => make("option", { value }, label)));
  if (choices.some(([value]) => value === chosen)) picker.value = chosen;
}
