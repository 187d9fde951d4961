/** Draws the page again for a component: while somebody sees it, after a click, never on the way to another page. */

/** Between two looks whether the page may be drawn again now. */
const WAIT_MS = 500;
/** Long enough for Streamlit to begin what a click, a key or a component has asked for. */
const TOUCHED_MS = 2000;
const ASKED_MS = 500;
const LOOKED_AT_EVERY_MS = 100;
const QUIET_MS = 500;
const AT_REST = '.stApp[data-test-script-state="notRunning"]';
const PAGE_LINK = 'a[data-testid="stPageLink-NavLink"]';
const DIALOG = '[data-testid="stDialog"]';
let quietUntil = 0;
let isLeaving = false;
/** @type {string|null|undefined} */
let left;

// What a click opens is drawn first: Streamlit may lose what a run says at its end to one that is asked for then.
for (const kind of ['pointerdown', 'keydown', 'input']) {
  document.addEventListener(kind, () => holdBack(TOUCHED_MS), { capture: true, passive: true });
}
// Until the new page's script runs, Streamlit's requests name the old page: one sent then would show neither.
addEventListener('popstate', leave);
document.addEventListener(
  'click',
  (event) => {
    if (event.target instanceof Element && event.target.closest(PAGE_LINK)) leave();
  },
  true,
);

/** @param {number} ms */
function holdBack(ms) {
  quietUntil = Math.max(quietUntil, performance.now() + ms);
}

/** Which run of the whole script drew the bar; a page that is drawn again leaves it. */
function runOfPage() {
  return document.querySelector('[data-run]')?.getAttribute('data-run');
}

function isAtRest() {
  return document.querySelector(AT_REST) !== null;
}

/** Hold everything back until the new page's script has run, and Streamlit has been at rest for a while. */
export function leave() {
  left = runOfPage();
  if (isLeaving) return;
  isLeaving = true;
  let quietMs = 0;
  const looking = setInterval(() => {
    quietMs = isAtRest() && runOfPage() !== left ? quietMs + LOOKED_AT_EVERY_MS : 0;
    if (quietMs < QUIET_MS) return;
    clearInterval(looking);
    isLeaving = false;
  }, LOOKED_AT_EVERY_MS);
}

/**
 * A page that nobody sees waits until somebody does, and one behind a dialog until that is closed: of it and a click in
 * the dialog in the same moment, Streamlit would rerun one only, and the dialog might stay open.
 */
function mustWait() {
  const isTouched = performance.now() < quietUntil;
  return document.hidden || isLeaving || isTouched || !isAtRest() || document.querySelector(DIALOG) !== null;
}

export class Redraws {
  _due = Infinity;

  /** @param {{setTriggerValue?: (name: string, value: unknown) => void}} component */
  constructor(component) {
    this.component = component;
  }

  /** @param {number} waitMs gathers what comes meanwhile */
  soon(waitMs) {
    const due = performance.now() + waitMs;
    if (due >= this._due) return;
    this._due = due;
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this.ask(), waitMs);
  }

  /** @param {number|null|undefined} seconds none for never */
  every(seconds) {
    clearInterval(this._again);
    if (seconds) this._again = setInterval(() => this.soon(0), seconds * 1000);
  }

  ask() {
    clearTimeout(this._timer);
    this._due = Infinity;
    if (mustWait()) return this.soon(WAIT_MS);
    holdBack(ASKED_MS);
    this.component.setTriggerValue?.('changed', true);
  }

  destroy() {
    clearInterval(this._again);
    clearTimeout(this._timer);
  }
}
