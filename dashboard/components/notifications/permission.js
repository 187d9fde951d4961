/** Whether this browser shows the notifications of alerts, in words, and the button that asks the person. */

import { el } from '../elements/elements.js';
import { mountOnce } from '../elements/mounting.js';
import { isAllowed, start } from './notifier.js';

const HINT = 'They come while a tab of the dashboard is open, and wait for a day otherwise.';
const WORDS = {
  granted: `This browser shows notifications. ${HINT}`,
  default: `This browser has not been asked whether it shows notifications. ${HINT}`,
  denied:
    'This browser refuses notifications of this page. Allow them in its settings for this site ' +
    '(the sign beside the address), then reload.',
  impossible:
    'Browsers show notifications only for pages at https:// or on their own machine (localhost), ' +
    'and this page is neither.',
  unknown: 'This browser has no notifications.',
};

/** @param {import('../elements/mounting.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new Permission(first));

class Permission {
  /** @param {import('../elements/mounting.js').Component} component */
  constructor({ parentElement }) {
    this._words = el('span', { role: 'status' });
    this._button = el('button', {
      type: 'button',
      text: 'Allow notifications',
      onclick: () => void this._ask(),
    });
    this._root = el('div', { class: 'permission' }, this._words, this._button);
    parentElement.append(this._root);
    this._show();
    void this._watch();
  }

  destroy() {
    if (this._status) this._status.onchange = null;
    this._root.remove();
  }

  /** The person may change it in the browser's settings. */
  async _watch() {
    this._status = await navigator.permissions?.query({ name: 'notifications' }).catch(() => null);
    if (this._status) this._status.onchange = () => this._show();
  }

  async _ask() {
    await Notification.requestPermission();
    this._show();
  }

  _show() {
    const state = stateNow();
    this._words.textContent = WORDS[state];
    this._root.dataset.state = state;
    this._button.hidden = state !== 'default';
    if (isAllowed()) start();
  }
}

/** @returns {keyof typeof WORDS} */
function stateNow() {
  if (!isSecureContext) return 'impossible';
  return 'Notification' in window ? Notification.permission : 'unknown';
}
