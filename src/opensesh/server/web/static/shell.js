// What every page has.
document.addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.closest("input, textarea, select, [contenteditable]") || document.documentElement.dataset.keys === "off") return;
  event.preventDefault();
  document.getElementById("search-everything")?.focus();
});
