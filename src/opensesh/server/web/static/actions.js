// What can be done with a session: rename, fork, revert, compact, share, export, archive, remove.

import { confirmed, make, notify, visible } from "./dom.js";
import { KEY_NAME, send } from "./requests.js";
import { menuEntries } from "./transcript.js";

/**
 * Makes the buttons of a session's page act.
 * @param {{session: string, facts: any, refresh: () => Promise<void>, isBusy: () => boolean, focusComposer: () => void}} page
 */
export function attachActions({ session, facts, refresh, isBusy, focusComposer }) {
  const own = `/session/${session}`;
  const extended = `/history/sessions/${session}`;

  /** Runs an action, and says what went wrong. @param {() => Promise<unknown>} act */
  const attempt = (act) => act().catch((/** @type {Error} */ error) => notify(error.message, { bad: true }));

  /** @type {Record<string, (detail: any) => unknown>} */
  const actions = {
    rename,
    fork: (message) => attempt(async () => {
      const fork = await send("POST", `${own}/fork`, message ? { messageID: message } : {});
      location.href = `/ui/session/${fork.id}`;
    }),
    revert: (message) => attempt(() => previewRevert(message)),
    unrevert: () => attempt(async () => {
      await send("POST", `${own}/unrevert`, {});
      revertNotice?.remove();
      fillComposer("", revertedPrompt);
      notify("The revert was undone.");
    }),
    compact: () => attempt(async () => {
      const [providerID, ...rest] = (document.querySelector(".composer [name=model]")?.value || facts.model).split("/");
      await send("POST", `${own}/summarize`, { providerID, modelID: rest.join("/") });
      const { info } = (await send("GET", `${own}/message?limit=1`))[0]; // a summary that failed is shown in the transcript
      if (info.summary && !info.error) notify("The session was compacted.", { label: "Undo", action: () => actions["undo-compaction"](null) });
    }),
    "undo-compaction": () => attempt(async () => {
      await send("POST", `${extended}/undo-compaction`, {});
      notify("The compaction was undone.", { label: "Redo", action: () => attempt(() => send("POST", `${extended}/redo-compaction`, {})) });
      await refresh();
    }),
    share: () => attempt(async () => {
      const text = "The conversation is sent to your share server: OpenCode's public one, opncd.ai, unless you have chosen another. Everyone who has the link can read it. Secrets that are recognised are replaced.";
      if (!await confirmed("Share this session?", text, "Share")) return;
      notify("Sharing…", { seconds: 3 });
      const url = (await send("POST", `${own}/share`, {})).share?.url ?? "";
      showShare(url);
      notify(`Shared: ${url}`, { label: "Copy link", action: () => void navigator.clipboard.writeText(url) });
    }),
    unshare: () => attempt(async () => { await send("DELETE", `${own}/share`); showShare(""); notify("The share was taken down."); }),
    export: (format) => attempt(() => download(format)),
    archive: () => attempt(async () => {
      const isArchived = document.querySelector("[data-action=archive]")?.getAttribute("aria-pressed") === "true";
      await send("POST", `${extended}/archive`, { archived: !isArchived });
      const undo = () => attempt(() => send("POST", `${extended}/archive`, { archived: isArchived }));
      notify(isArchived ? "No longer archived." : "Archived.", { label: "Undo", action: undo });
    }),
    remove: () => attempt(async () => {
      if (isBusy() && !await confirmed("This session runs", "Stop it and move it to the trash?", "Stop and move")) return;
      await send("DELETE", own);
      sessionStorage.setItem("opensesh-removed", session);
      location.href = "/ui/";
    }),
  };

  /** Closes the open menu. @param {Node | null} [within] unless it contains this */
  function closeMenus(within = null) {
    const menu = /** @type {HTMLDetailsElement | undefined} */ ([...document.querySelectorAll("details.menu[open]")].find((one) => !one.contains(within)));
    if (menu) menu.open = false;
    return menu;
  }
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && closeMenus();
    if (!menu) return;
    event.preventDefault();
    menu.querySelector("summary")?.focus();
  });
  document.addEventListener("click", (event) => {
    closeMenus(/** @type {Node} */ (event.target));
    const button = /** @type {HTMLElement} */ (event.target).closest("[data-action]");
    if (!button) return;
    const { action = "", value, message } = /** @type {HTMLElement} */ (button).dataset;
    if (!(action in actions)) return;
    event.preventDefault();
    button.closest("details.menu")?.removeAttribute("open");
    actions[action](value ?? message ?? null);
  });
  menuEntries.push((turn, address) => {
    if (!address.endsWith(`/${session}`)) return []; // a turn of a subagent
    const message = turn.id.slice(2);
    const entries = turn.classList.contains("prompt") ? [["fork", "Fork from here"], ["revert", "Revert to before this"]] : [["fork", "Fork from here"]];
    return entries.map(([action, label]) => make("button", { type: "button", "data-action": action, "data-message": message }, label));
  });
  document.addEventListener("opensesh:session", (event) => {
    const data = /** @type {CustomEvent} */ (event).detail;
    if (data.removed) return void notify("This session was removed.", { bad: true });
    const title = document.querySelector("[data-title]");
    if (title && !title.querySelector("input")) title.textContent = visible(data.title);
    document.title = `${visible(data.title)} · opensesh`;
    document.querySelector("[data-action=archive]")?.setAttribute("aria-pressed", String(Boolean(data.archived)));
    showShare(data.share ?? "");
  });

  let revertedPrompt = "";
  /** @type {HTMLElement | null} */
  let revertNotice = null;

  /** Replaces a text in the prompt box, and no other. @param {string} text @param {string} previous */
  function fillComposer(text, previous) {
    const box = /** @type {HTMLTextAreaElement | null} */ (document.getElementById("prompt"));
    if (!box || box.value !== previous) return;
    box.value = text;
    box.dispatchEvent(new Event("input", { bubbles: true }));
  }

  /** @param {string} url */
  function showShare(url) {
    for (const element of document.querySelectorAll("[data-action=share]")) /** @type {HTMLElement} */ (element).hidden = Boolean(url);
    for (const element of document.querySelectorAll("[data-action=unshare]")) /** @type {HTMLElement} */ (element).hidden = !url;
    const link = /** @type {HTMLAnchorElement | null} */ (document.querySelector(".share-link"));
    if (!link) return;
    link.hidden = !url;
    if (/^https?:/.test(url)) link.href = url;
  }

  function rename() {
    const title = /** @type {HTMLElement} */ (document.querySelector("[data-title]"));
    const before = title.textContent ?? "";
    const input = /** @type {HTMLInputElement} */ (make("input", { "aria-label": "Title", maxlength: "300" }));
    input.value = before;
    let isDone = false;
    const end = (/** @type {boolean} */ isWanted) => {
      if (isDone) return;
      isDone = true;
      const after = input.value.trim();
      title.textContent = isWanted && after ? after : before;
      /** @type {HTMLElement | null} */ (document.querySelector(".menu:has([data-action=rename]) > summary"))?.focus();
      if (isWanted && after && after !== before) attempt(() => send("PATCH", own, { title: after }).catch((error) => { title.textContent = before; throw error; }));
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { event.preventDefault(); end(true); }
      else if (event.key === "Escape") { event.preventDefault(); end(false); }
    });
    input.addEventListener("blur", () => end(true));
    title.replaceChildren(input);
    input.focus();
    input.select();
  }

  /** @param {string} format */
  async function download(format) {
    const { checked } = /** @type {HTMLInputElement} */ (document.getElementById("export-redact"));
    const response = await fetch(`${extended}/export?format=${format}&redact=${checked}`, { headers: { "x-opensesh-key": localStorage.getItem(KEY_NAME) ?? "" } });
    if (!response.ok) throw new Error(`The export failed: ${response.status}`);
    const name = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") ?? "")?.[1] ?? session;
    const url = URL.createObjectURL(await response.blob());
    const link = make("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }

  /** Shows what a revert would do, and does exactly that. @param {string} messageID */
  async function previewRevert(messageID) {
    const preview = await send("POST", `${extended}/revert-preview`, { messageID });
    const conflicts = preview.files.filter((/** @type {any} */ file) => file.conflict);
    const dialog = /** @type {HTMLDialogElement} */ (make("dialog", { class: "revert", "aria-labelledby": "revert-title" }));
    const choose = (/** @type {string} */ label, /** @type {any} */ options, kind = "") => {
      const button = make("button", { type: "button", class: kind }, label);
      button.addEventListener("click", () => attempt(async () => {
        try {
          await send("POST", `${extended}/revert`, { messageID, token: preview.token, ...options });
          dialog.close();
          const { parts } = await send("GET", `${own}/message/${messageID}`);
          revertedPrompt = parts.filter((/** @type {any} */ part) => part.type === "text" && !part.synthetic).map((/** @type {any} */ part) => part.text).join("\n");
          fillComposer(revertedPrompt, "");
          revertNotice = notify("Reverted.", { label: "Undo", action: () => actions.unrevert(null) });
          focusComposer();
        } catch (error) {
          dialog.close();
          throw error;
        }
      }));
      return button;
    };
    const cancel = make("button", { type: "button", autofocus: "" }, "Cancel");
    cancel.addEventListener("click", () => dialog.close());
    const changes = preview.files.filter((/** @type {any} */ file) => file.action !== "keep");
    dialog.append(
      make("h2", { id: "revert-title" }, "Revert to before this prompt"),
      make("p", {}, `${preview.messages.length === 1 ? "1 message" : `${preview.messages.length} messages`} and ${changes.length === 1 ? "1 file" : `${changes.length || "no"} files`} will be taken back. The prompt returns to the box below. It can be undone until you send the next one.`),
      make("div", { class: "files" }, ...preview.files.map(fileElement),
        ...preview.outside.map((/** @type {string} */ path) => make("p", { class: "small dim" }, `${path}: outside of the project, left alone`)),
        ...preview.unattributed.map((/** @type {any} */ one) => make("p", { class: "small dim" }, `${one.file}: changed by something else meanwhile, left alone`)),
        ...preview.ignored.slice(0, 20).map((/** @type {string} */ path) => make("p", { class: "small dim" }, `${path}: changed while a command ran and ignored by git, left alone`)),
        ...preview.commands.map((/** @type {string} */ command) => make("p", { class: "small dim" }, `${command}: what this command changed is not known and stays`))),
      make("div", { class: "row" }, cancel, make("span", { class: "grow" }),
        ...(changes.length || conflicts.length ? [choose("Conversation only", { files: false })] : []),
        conflicts.length ? choose("Overwrite and revert", { force: true }, "danger") : choose(changes.length ? "Revert files and conversation" : "Revert", {}, "primary")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }
}

/** @param {any} file */
function fileElement(file) {
  const words = { restore: "restored", create: "created again", delete: "deleted", keep: "left alone" };
  const summary = make("summary", {}, make("span", { class: "mono" }, file.path), make("span", { class: "dim" },
    ` ${words[/** @type {"keep"} */ (file.action)]}${file.additions === null ? "" : ` +${file.additions} −${file.deletions}`}`));
  if (file.conflict) summary.append(make("span", { class: "badge warn" }, `conflict: ${file.reason}`));
  else if (file.reason) summary.append(make("span", { class: "dim small" }, ` (${file.reason})`));
  const lines = (file.diff ?? "").split("\n").slice(4, 2000).map((/** @type {string} */ line) =>
    make("span", { class: line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : line.startsWith("@@") ? "hunk" : "same" }, `${line}\n`));
  const attributes = file.conflict ? { open: "" } : {};
  return make("details", attributes, summary, ...(lines.length ? [make("pre", { class: "diff", tabindex: "0" }, ...lines)] : []));
}
