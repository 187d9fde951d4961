/** Draws the page again every few seconds, as its script asks, and when the server's trouble is not the one shown. */

import { mountOnce } from '../elements/elements.js';
import { read } from '../server/request.js';
import { Redraws } from './redraws.js';

const LOOK_FOR_TROUBLE_MS = 15_000;
const LOOK_FOR_ITS_END_MS = 3000;
const GONE = 'the server cannot answer';
const WARNING = 'X-Rankzero-Warning';

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) =>
  mountOnce(
    {
      data: null,
      parentElement: component.parentElement,
      setTriggerValue: component.setTriggerValue,
      asked: component.data,
    },
    (first) => new Refresh(first),
  );

class Refresh {
  /** @param {any} component */
  constructor(component) {
    this._redraws = new Redraws(component);
    this.refresh(component);
  }

  /** The script ran, and asks for something else. @param {any} component */
  refresh(component) {
    const { every_s: everyS, trouble } = component.asked;
    this._redraws.component = component;
    this._redraws.every(everyS);
    clearInterval(this._looking);
    const everyMs = trouble ? LOOK_FOR_ITS_END_MS : LOOK_FOR_TROUBLE_MS;
    this._looking = setInterval(() => void this._look(trouble), everyMs);
  }

  /** @param {string} shown start.js says where there is no answer; that the store is gone, the page does */
  async _look(shown) {
    if (document.hidden) return;
    const options = { method: 'HEAD', cache: /** @type {const} */ ('no-store') };
    const trouble = await read('api/health', options, warningOf).catch(({ status }) => (status >= 500 ? GONE : shown));
    if (trouble !== shown && this._looking) this._redraws.soon(0);
  }

  destroy() {
    this._redraws.destroy();
    clearInterval(this._looking);
    this._looking = undefined;
  }
}

/** @param {Response} answer */
async function warningOf({ headers }) {
  return headers.get(WARNING) ?? '';
}
