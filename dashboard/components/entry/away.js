/**
 * Says once, on every page, that the server does not answer, instead of the dialog that Streamlit opens over
 * the page.
 */

const STATE = 'data-test-connection-state';
const SILENT_BEFORE_SHOWN_MS = 1000;
/** Streamlit's own; a dialog of ours holds a block of elements. */
const DIALOG = '[data-testid="stDialog"]:not(:has([data-testid="stVerticalBlock"]))';
const banner = /** @type {HTMLElement} */ (document.getElementById('away'));
let isAway = false;
/** @type {ReturnType<typeof setTimeout>|undefined} */
let timer;

new MutationObserver(look).observe(document.body, { subtree: true, attributeFilter: [STATE] });
new MutationObserver(dismiss).observe(document.body, { childList: true });

/** The first connection of a page is no trouble: the page is still being built. */
function look() {
  const state = document.querySelector(`.stApp[${STATE}]`)?.getAttribute(STATE);
  if (!state || !document.documentElement.hasAttribute('data-settled') || isAway === (state !== 'CONNECTED')) return;
  isAway = !isAway;
  // pages.css hides the dialog from its first frame on.
  document.documentElement.toggleAttribute('data-away', isAway);
  clearTimeout(timer);
  if (isAway)
    timer = setTimeout(() => {
      banner.textContent = 'Rankzero does not answer. Trying again…';
    }, SILENT_BEFORE_SHOWN_MS);
  else banner.textContent = '';
}

/**
 * A dialog that is only hidden would keep the focus, and the page from scrolling; closed, it stays away until
 * the next time.
 */
function dismiss() {
  if (!isAway) return;
  /** @type {NodeListOf<HTMLElement>} */
  const buttons = document.querySelectorAll(`${DIALOG} button[aria-label="Close"]`);
  for (const button of buttons) button.click();
}
