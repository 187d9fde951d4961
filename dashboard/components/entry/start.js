/**
 * Runs before Streamlit: tells it where the server is and our colours, begins to show notifications where the person
 * allowed them, signs out, here, in other tabs and in pages that the browser has kept, and says on every page when the
 * server does not answer.
 */

const themes = JSON.parse(document.getElementById('themes')?.textContent ?? '{}');
/** @type {any} */ (window).__streamlit = {
  BACKEND_BASE_URL: `${location.origin}/`,
  // With this Streamlit connects at once, not after two questions.
  HOST_CONFIG: { allowedOrigins: [location.origin], useExternalAuthToken: false },
  LIGHT_THEME: themes.light,
  DARK_THEME: themes.dark,
};

// A page is shown when Streamlit has built it: nothing moves under the eyes of somebody who begins to read, and no half
// of the page before stands below it.
const LONGEST_BUILD_MS = 10_000;
const BUILT = '.stApp[data-test-script-state="notRunning"] .st-key-bar';
const page = document.documentElement;
/** @type {ReturnType<typeof setTimeout>|undefined} */
let deadline;
/** The path and the run of the page that is shown. */
let [shownPath, shownRun] = ['', ''];
new MutationObserver(watchBuild).observe(document, {
  subtree: true,
  childList: true,
  attributeFilter: ['data-test-script-state', 'data-form-filled'],
});

function watchBuild() {
  if (page.hasAttribute('data-settled') && isAnother()) {
    for (const name of ['data-settled', 'data-form-filled']) page.removeAttribute(name);
  }
  if (!page.hasAttribute('data-settled')) {
    if (isBuilt()) settle();
    else if (document.querySelector('.st-key-bar')) deadline ??= setTimeout(settle, LONGEST_BUILD_MS);
  }
  watchLoading();
}

/** Whether the script of another page has begun: it draws the bar first. */
function isAnother() {
  return location.pathname !== shownPath && runOfPage() !== shownRun;
}

function isBuilt() {
  return document.querySelector(BUILT) && !document.querySelector('[data-testid="stSkeleton"]') && !awaitsForm();
}

/** Whether a form waits for what this tab has kept of it; kept_form.js says when it has it. */
function awaitsForm() {
  const hasKept = sessionStorage.getItem('rankzero.form') !== null;
  return hasKept && location.pathname.endsWith('/launch') && !page.hasAttribute('data-form-filled');
}

function runOfPage() {
  return document.querySelector('.st-key-bar .logo')?.getAttribute('data-run') ?? '';
}

/** Let pages.css show what was built. */
function settle() {
  clearTimeout(deadline);
  deadline = undefined;
  [shownPath, shownRun] = [location.pathname, runOfPage()];
  for (const name of ['data-settled', 'data-opened']) page.toggleAttribute(name, true);
  lookForServer(); // it may have been lost meanwhile
}

// A sign of loading, for a page and for what a click asks for, but not for what pages refresh by themselves: late
// enough that it never flickers.
const SIGN_AFTER_MS = 300;
const SIGN_LEAST_MS = 400;
const ANSWERS_CLICK_MS = 1000;
const RUNNING = '.stApp[data-test-script-state="running"]';
let clickedAt = -Infinity;
let [isLoading, answersClick] = [false, false];
/** @type {ReturnType<typeof setTimeout>|undefined} */
let sign;
for (const kind of ['click', 'popstate']) {
  addEventListener(kind, () => (clickedAt = performance.now()), { capture: true });
}

function watchLoading() {
  const isRunning = document.querySelector(RUNNING) !== null;
  answersClick = isRunning && (answersClick || performance.now() - clickedAt < ANSWERS_CLICK_MS);
  const now = answersClick || !page.hasAttribute('data-settled');
  if (now === isLoading) return;
  isLoading = now;
  clearTimeout(sign);
  const least = page.hasAttribute('data-loading') ? SIGN_LEAST_MS : 0;
  sign = setTimeout(() => page.toggleAttribute('data-loading', now), now ? SIGN_AFTER_MS : least);
}

if (globalThis.Notification?.permission === 'granted') {
  void import('./notifications.js').then(({ start }) => start());
}

// The server closes the connections of other tabs before the answer tells the first that it is signed out.
const tabs = new BroadcastChannel('rankzero sessions');
let isSigningOut = false;
tabs.addEventListener('message', ({ data }) => {
  isSigningOut = true;
  if (data === 'signed out') leaveSignedOut();
});

// The browser keeps pages for its Back button: none of them may appear again after signing out.
addEventListener('pageshow', (event) => {
  if (!event.persisted) return;
  document.documentElement.hidden = true;
  location.reload();
});

document.addEventListener('click', (event) => {
  const button = event.target instanceof Element ? event.target.closest('button.sign-out') : null;
  if (button instanceof HTMLButtonElement) void signOut(button);
});

// Streamlit leaves the address of its first page empty, which elsewhere is the page one is on; and takes
// every click for its own, also one that asks for a new tab.
const PAGE_LINK = 'a[data-testid="stPageLink-NavLink"]';
for (const kind of ['pointerover', 'focusin']) {
  document.addEventListener(kind, (event) => {
    const link = event.target instanceof Element ? event.target.closest(PAGE_LINK) : null;
    if (link?.getAttribute('href') === '') link.setAttribute('href', '/');
  });
}
document.addEventListener(
  'click',
  (event) => {
    const asksForTab = event.ctrlKey || event.metaKey || event.shiftKey;
    if (asksForTab && event.target instanceof Element && event.target.closest(PAGE_LINK)) event.stopPropagation();
  },
  true,
);

/** What was filled in is nobody else's. */
function leaveSignedOut() {
  isSigningOut = true;
  sessionStorage.removeItem('rankzero.form');
  location.assign('/login?signed-out');
}

/**
 * End the session on the server; says on the button when nobody answered.
 * @param {HTMLButtonElement} button
 */
async function signOut(button) {
  button.disabled = isSigningOut = true;
  tabs.postMessage('signing out');
  const status = await statusOf('/logout', { method: 'POST' });
  if (status === 204 || status === 401) {
    tabs.postMessage('signed out');
    leaveSignedOut();
  } else {
    button.disabled = isSigningOut = false;
    button.textContent = 'No answer: try again';
  }
}

const ANSWERED_WITHIN_MS = 30_000;

/**
 * The status of the server's answer, 0 without one. Not by request.js: once the session has ended, the server gives
 * out no modules.
 * @param {string} path
 * @param {RequestInit} options
 */
function statusOf(path, options) {
  return fetch(path, { ...options, signal: AbortSignal.timeout(ANSWERED_WITHIN_MS) }).then(
    ({ status }) => status,
    () => 0,
  );
}

// Says once, on every page, that the server does not answer, instead of the dialog that Streamlit opens over the page.
const STATE = 'data-test-connection-state';
const SILENT_BEFORE_SHOWN_MS = 1000;
const ASKED_EVERY_MS = 2000;
/** Streamlit's own; a dialog of ours holds a block of elements. */
const DIALOG = '[data-testid="stDialog"]:not(:has([data-testid="stVerticalBlock"]))';
const banner = /** @type {HTMLElement} */ (document.getElementById('away'));
let isAway = false;
/** @type {ReturnType<typeof setTimeout>|undefined} */
let silence;

new MutationObserver(lookForServer).observe(document.body, { subtree: true, attributeFilter: [STATE] });
new MutationObserver(dismiss).observe(document.body, { childList: true });

/** The first connection of a page is no trouble: the page is still being built. */
function lookForServer() {
  const state = document.querySelector(`.stApp[${STATE}]`)?.getAttribute(STATE);
  if (!state || !document.documentElement.hasAttribute('data-settled') || isAway === (state !== 'CONNECTED')) return;
  isAway = !isAway;
  // pages.css hides the dialog from its first frame on.
  document.documentElement.toggleAttribute('data-away', isAway);
  clearTimeout(silence);
  banner.textContent = '';
  if (!isAway) return;
  silence = setTimeout(() => {
    banner.textContent = 'Rankzero does not answer. Trying again…';
  }, SILENT_BEFORE_SHOWN_MS);
  void leaveIfSignedOut();
}

/**
 * A session that has ended elsewhere (another browser, a changed password, a removed person) closes the page's
 * connection; Streamlit would try to connect without end. What was filled in waits in the tab for the same person.
 */
async function leaveIfSignedOut() {
  while (isAway) {
    if ((await statusOf('/api/me', { cache: 'no-store' })) === 401) {
      return isSigningOut ? leaveSignedOut() : leaveEnded();
    }
    await new Promise((later) => setTimeout(later, ASKED_EVERY_MS));
  }
}

function leaveEnded() {
  location.assign(`/login?ended&next=${encodeURIComponent(location.pathname + location.search)}`);
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
