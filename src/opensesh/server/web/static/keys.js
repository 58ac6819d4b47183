// Keys of one letter. They act only outside of fields, and can be switched off in the settings.

/** @type {Map<string, () => void>} */
const actions = new Map();
const PAIR_MS = 600;
let waiting = 0;

/**
 * Adds the keys of a page: a key, or "g" and a key after it.
 * @param {Record<string, () => void>} keys
 */
export function onKeys(keys) {
  for (const [key, action] of Object.entries(keys)) actions.set(key, action);
}

/** @param {string} key */
function act(key) {
  const action = actions.get(key);
  action?.();
  return action !== undefined;
}

document.addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  const isField = target.matches?.("textarea, select, [contenteditable], input:not([type=checkbox], [type=radio], [type=button])");
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape" && isField) { target.blur(); return; }
  if (isField || document.documentElement.dataset.keys === "off" || event.key.length !== 1) return;
  if (waiting) {
    clearTimeout(waiting);
    waiting = 0;
    if (act(`g ${event.key}`)) { event.preventDefault(); return; }
  } else if (event.key === "g") {
    // "g" alone acts when no second key follows.
    waiting = setTimeout(() => { waiting = 0; act("g"); }, PAIR_MS);
    event.preventDefault();
    return;
  }
  if (act(event.key)) event.preventDefault();
});
