/**
 * Reruns the part of the page around a component: in turn, while somebody sees it, never on the way to another page.
 */

import { mountOnce } from '../elements/elements.js';

const WAIT_MS = 2000;
/** Of two parts of the page that tell in the same moment, Streamlit would rerun one only. */
const APART_MS = 100;
const LOOKED_AT_EVERY_MS = 100;
const QUIET_MS = 500;
const PAGE_LINK = 'a[data-testid="stPageLink-NavLink"]';
const DIALOG = '[data-testid="stDialog"]';
let turn = Promise.resolve();
let isLeaving = false;
/** @type {string|null|undefined} */
let left;

// Until the new page's script runs, Streamlit's requests name the old page: one sent then would show neither.
addEventListener('popstate', leave);
document.addEventListener(
  'click',
  (event) => {
    if (event.target instanceof Element && event.target.closest(PAGE_LINK)) leave();
  },
  true,
);

/** Which run of the whole script drew the bar; parts of a page that run alone leave it. */
function runOfPage() {
  return document.querySelector('[data-run]')?.getAttribute('data-run');
}

/** Hold everything back until the new page's script has run, and Streamlit has been at rest for a while. */
export function leave() {
  left = runOfPage();
  if (isLeaving) return;
  isLeaving = true;
  let quietMs = 0;
  const looking = setInterval(() => {
    const isAtRest = document.querySelector('.stApp[data-test-script-state="notRunning"]');
    quietMs = isAtRest && runOfPage() !== left ? quietMs + LOOKED_AT_EVERY_MS : 0;
    if (quietMs < QUIET_MS) return;
    clearInterval(looking);
    isLeaving = false;
  }, LOOKED_AT_EVERY_MS);
}

export class Teller {
  /** @param {{parentElement?: Node, setTriggerValue?: (name: string, value: unknown) => void}} component */
  constructor(component) {
    this.component = component;
  }

  /** @param {number} waitMs gathers what comes meanwhile */
  soon(waitMs) {
    this._timer ??= setTimeout(() => this.tell(), waitMs);
  }

  /** @param {number|null|undefined} seconds none for never */
  every(seconds) {
    clearInterval(this._again);
    if (seconds) this._again = setInterval(() => this.tell(), seconds * 1000);
  }

  tell() {
    clearTimeout(this._timer);
    const mustWait = this._mustWait();
    this._timer = mustWait ? setTimeout(() => this.tell(), WAIT_MS) : undefined;
    if (!mustWait) turn = turn.then(() => this._tellNow()).catch(reportError);
  }

  /**
   * A page that nobody sees waits until somebody does. A part behind a dialog waits until that is closed: of it and a
   * click in the dialog in the same moment, Streamlit would rerun one only, and the dialog might stay open.
   */
  _mustWait() {
    return document.hidden || isLeaving || (document.querySelector(DIALOG) !== null && !this._isInDialog());
  }

  _isInDialog() {
    const root = this.component.parentElement?.getRootNode();
    const place = root instanceof ShadowRoot ? root.host : this.component.parentElement;
    return place instanceof Element && place.closest(DIALOG) !== null;
  }

  destroy() {
    this._hasEnded = true;
    clearInterval(this._again);
    clearTimeout(this._timer);
  }

  /** @returns {Promise<void>} ends when the next one may tell */
  _tellNow() {
    if (this._hasEnded) return Promise.resolve();
    if (this._mustWait()) {
      this.soon(WAIT_MS);
      return Promise.resolve();
    }
    this.component.setTriggerValue?.('changed', true);
    return new Promise((done) => {
      setTimeout(done, APART_MS);
    });
  }
}

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new Refresh(first));

/** The component that asks for its part again every few seconds, as long as that is shown. */
class Refresh {
  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    this._teller = new Teller(component);
    this._teller.every(component.data.every_s);
  }

  /** @param {import('../elements/elements.js').Component} component */
  refresh(component) {
    this._teller.component = component;
  }

  destroy() {
    this._teller.destroy();
  }
}
