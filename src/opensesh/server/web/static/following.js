// Keeps the end of a session in view, whatever grows above or below it, until the user scrolls away from it.

const NEAR_END_PX = 80;
const root = document.documentElement;
const jump = /** @type {HTMLElement} */ (document.querySelector(".jump-end"));
let follows = false;
let lastTop = 0;
let unseen = 0;

/** Shows the end, and stays there. */
export function scrollToEnd() {
  follows = true;
  keepEnd();
}

/** Stays where the page is, because something else is shown. */
export function stopFollowing() {
  follows = false;
}

/**
 * Says that turns or parts were added at the end, if it is not in view.
 * @param {number} count
 */
export function addUnseen(count) {
  setUnseen(follows ? 0 : unseen + count);
}

/** @param {number} count */
function setUnseen(count) {
  if (count === unseen) return;
  unseen = count;
  jump.hidden = count === 0;
  jump.textContent = `${count} new ↓`;
}

function keepEnd() {
  if (follows) root.scrollTop = root.scrollHeight;
}

addEventListener("scroll", () => {
  const isNear = root.scrollHeight - root.scrollTop - root.clientHeight <= NEAR_END_PX;
  // What grows moves the end away as well; only a user, or a link, scrolls up.
  if (isNear) follows = true;
  else if (root.scrollTop < lastTop) follows = false;
  lastTop = root.scrollTop;
  if (isNear) setUnseen(0);
}, { passive: true });
addEventListener("resize", keepEnd);
// After the layout and before the paint: nothing is shown in between, and nothing has to be laid out twice.
const grown = new ResizeObserver(keepEnd);
for (const element of document.querySelectorAll("#log, .dock")) grown.observe(element, { box: "border-box" });
jump.addEventListener("click", scrollToEnd);
