/** Keeps what is filled into a form in this tab, and hands it back once to a session that begins without it. */

import { mountOnce } from '../elements/elements.js';

const KEPT = 'rankzero.form';

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) =>
  mountOnce(
    {
      data: null,
      parentElement: component.parentElement,
      setTriggerValue: component.setTriggerValue,
      form: component.data,
    },
    (first) => new KeptForm(first),
  );

class KeptForm {
  /** @type {string|undefined} */
  _answered;

  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    this.refresh(component);
  }

  /**
   * A session that has not filled the form in asks for what was kept, and must not overwrite it before.
   * @param {import('../elements/elements.js').Component} component
   */
  refresh(component) {
    const { values, asked_by: askedBy } = component.form;
    if (askedBy) return this._handBack(component, askedBy);
    document.documentElement.toggleAttribute('data-form-filled', true); // start.js waits for it
    if (Object.keys(values).length) sessionStorage.setItem(KEPT, JSON.stringify(values));
    else sessionStorage.removeItem(KEPT);
  }

  /** @param {import('../elements/elements.js').Component} component @param {string} askedBy */
  _handBack(component, askedBy) {
    if (askedBy === this._answered) return;
    this._answered = askedBy;
    const kept = sessionStorage.getItem(KEPT);
    if (kept) component.setTriggerValue?.('kept', JSON.parse(kept));
  }

  destroy() {}
}
