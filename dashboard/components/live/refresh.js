/** Asks for a part of the page again every few seconds, as long as that part is shown. */

import { mountOnce } from '../elements/mounting.js';
import { Teller } from './telling.js';

/** @param {import('../elements/mounting.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new Refresh(first));

class Refresh {
  /** @param {import('../elements/mounting.js').Component} component */
  constructor(component) {
    this._teller = new Teller(component);
    this._teller.every(component.data.every_s);
  }

  /** @param {import('../elements/mounting.js').Component} component */
  refresh(component) {
    this._teller.component = component;
  }

  destroy() {
    this._teller.destroy();
  }
}
