/** A button that opens a panel over the page; Escape and a click beside it close it. */

import { el, htmlIn, setAttribute } from '../elements/elements.js';

export class Panel {
  /**
   * @param {string} name of the button and the panel
   * @param {() => Node[]} build the content, anew each time it opens
   */
  constructor(name, build) {
    this._build = build;
    this._button = el('button', {
      type: 'button',
      class: 'opens',
      text: name,
      'aria-haspopup': 'dialog',
      onclick: () => this.open(this._panel.hidden === true),
    });
    this._panel = el('div', { class: 'panel', role: 'dialog', 'aria-label': name, hidden: true });
    this.root = el('div', { class: 'panelled', onkeydown: (event) => this._pressed(event) }, this._button, this._panel);
    this._beside = (/** @type {Event} */ event) => {
      if (!event.composedPath().includes(this.root)) this.open(false);
    };
    this.open(false);
  }

  destroy() {
    document.removeEventListener('pointerdown', this._beside);
  }

  /** @param {boolean} isOpen */
  open(isOpen) {
    this._panel.hidden = !isOpen;
    setAttribute(this._button, 'aria-expanded', String(isOpen));
    document.removeEventListener('pointerdown', this._beside);
    if (!isOpen) return;
    document.addEventListener('pointerdown', this._beside);
    this.rebuild();
    (this._panel.querySelector('input') ?? this._panel.querySelector('button'))?.focus();
  }

  /**
   * The content is another; the element that has this label gets the focus.
   * @param {string|null} [focused]
   */
  rebuild(focused = null) {
    this._panel.replaceChildren(...this._build());
    if (focused) htmlIn(this._panel, `[aria-label="${CSS.escape(focused)}"]`)[0]?.focus();
  }

  /** @param {KeyboardEvent} event */
  _pressed(event) {
    if (event.key !== 'Escape' || this._panel.hidden) return;
    event.stopPropagation();
    this.open(false);
    this._button.focus();
  }
}
