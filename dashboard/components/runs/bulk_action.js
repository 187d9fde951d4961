/**
 * What is done to many runs at once, by the server: begun here or in another tab, followed, cancelled, told.
 */

import { el, setText } from '../elements/elements.js';
import { count, size } from '../elements/numbers.js';
import { request, sentenceOf } from '../server/request.js';

const ASKED_EVERY_MS = 400;
const AGAIN_MS = 2000;
const KEPT = 'rankzero.bulk-action';
const [BEGUN, DONE] = [0, 1];
const WORDS = {
  stop: ['Asking to stop', 'asked to stop'],
  delete: ['Deleting', 'deleted'],
  archive: ['Archiving', 'archived'],
  unarchive: ['Listing again', 'listed again'],
  tag: ['Tagging', 'tagged'],
  untag: ['Removing the tag', 'no longer tagged'],
};

/**
 * @typedef {{run: string, name: string, message: string}} Refusal
 * @typedef {{id: string, action: keyof typeof WORDS, tag: string|null, state: 'running'|'done'|'cancelled',
 *   total: number, done: number, changed: string[], refused: Refusal[], freed_bytes: number}} Action
 */

export class BulkAction {
  /** @type {string|undefined} */
  _id;
  /** @type {string|undefined} the last action whose end was told */
  _told;
  /** @type {string|undefined} */
  _begun;
  _hasLeft = false;

  /**
   * @param {() => void} onShown follows when something else is shown
   * @param {(action: Action|null) => void} onEnded with null where nothing is known of it
   */
  constructor(onShown, onEnded) {
    this._onShown = onShown;
    this._onEnded = onEnded;
    this.isBusy = false;
    this._bar = el('progress', { 'aria-label': 'Runs done' });
    this._status = el('span', { role: 'status' });
    this._refused = el('details', {}, el('summary', {}), el('ul', {}));
    this._cancel = el('button', {
      type: 'button',
      text: 'Cancel',
      onclick: () => void this._post(`/${this._id}/cancel`, {}),
    });
    this._close = el('button', { type: 'button', text: 'Close', onclick: () => this.tell('') });
    this.root = el('div', { class: 'outcome' }, this._bar, this._status, this._refused, this._cancel, this._close);
    this._list([]);
    this._show();
    const kept = sessionStorage.getItem(KEPT);
    if (kept) this.follow(kept);
  }

  destroy() {
    this._hasLeft = true;
    clearTimeout(this._timer);
  }

  get isEmpty() {
    return !this.isBusy && !this._status.textContent;
  }

  /**
   * Begin an action, unless the server refuses.
   * @param {{action: keyof typeof WORDS, tag?: string, runs: string[]}} request
   */
  async begin(request) {
    this._work(true);
    setText(this._status, `${WORDS[request.action][BEGUN]} ${count(request.runs.length)}…`);
    const action = await this._post('', request);
    if (action) this.follow(action.id);
  }

  /** Show an action to its end. @param {string} id */
  follow(id) {
    if (id === this._id || id === this._told) return;
    this._id = id;
    sessionStorage.setItem(KEPT, id);
    this._work(true);
    void this._ask();
  }

  /** Say something that is no action's, instead of an ended one's result. @param {string} sentence */
  tell(sentence) {
    if (this.isBusy) return;
    sessionStorage.removeItem(KEPT);
    this._list([]);
    setText(this._status, sentence);
    this._show();
  }

  /** @param {string} path @param {object} body @returns {Promise<Action|null>} */
  async _post(path, body) {
    try {
      return await request(`api/bulk-actions${path}`, { json: body, keepalive: true });
    } catch (error) {
      if (this._id !== undefined) return null; // it goes on; what follows it says so
      this._work(false);
      this.tell(sentenceOf(error));
      return null;
    }
  }

  async _ask() {
    try {
      const action = await request(`api/bulk-actions/${this._id}`);
      if (!this._hasLeft) this._took(action);
    } catch (error) {
      if (this._hasLeft) return;
      const { status, message } = /** @type {import('../server/request.js').RequestError} */ (error);
      if (status === 404) this._end(null, [this._begun, message].filter(Boolean).join(': '));
      else this._later('Rankzero does not answer. Trying again…', AGAIN_MS);
    }
  }

  /** @param {Action} action */
  _took(action) {
    const past = action.done + action.refused.length;
    Object.assign(this._bar, { max: Math.max(1, action.total), value: past });
    this._list(action.refused);
    this._begun = `${WORDS[action.action][BEGUN]} ${count(past)} of ${count(action.total)}`;
    if (action.state === 'running') this._later(`${this._begun}…`, ASKED_EVERY_MS);
    else this._end(action, result(action));
  }

  /** @param {string} sentence @param {number} wait */
  _later(sentence, wait) {
    setText(this._status, sentence);
    this._timer = setTimeout(() => void this._ask(), wait);
    this._show();
  }

  /** @param {Action|null} action @param {string} sentence */
  _end(action, sentence) {
    this._told = this._id;
    if (!action) sessionStorage.removeItem(KEPT);
    this._work(false);
    setText(this._status, sentence);
    this._onEnded(action);
    this._show();
  }

  /** @param {Refusal[]} refused */
  _list(refused) {
    this._refused.hidden = !refused.length;
    setText(this._refused.firstChild, `${count(refused.length)} refused`);
    const list = /** @type {HTMLElement} */ (this._refused.lastChild);
    if (list.childElementCount === refused.length) return;
    list.replaceChildren(...refused.map(({ name, message }) => el('li', {}, el('b', { text: name }), ` ${message}`)));
  }

  /** @param {boolean} isBusy */
  _work(isBusy) {
    if (!isBusy) this._id = undefined;
    if (isBusy && !this.isBusy) this._bar.removeAttribute('value');
    this.isBusy = isBusy;
    this._show();
  }

  _show() {
    this._bar.hidden = this._cancel.hidden = !this.isBusy;
    this._close.hidden = this.isBusy || this.isEmpty;
    this.root.hidden = this.isEmpty;
    this._onShown();
  }
}

/** @param {Action} action */
function result({ action, tag, state, total, done, refused, freed_bytes: freed }) {
  const unreached = total - done - refused.length;
  return [
    state === 'cancelled' ? 'Cancelled:' : '',
    `${count(done)} ${[WORDS[action][DONE], tag].filter(Boolean).join(' ')}${freed ? `, ${size(freed)} freed` : ''}.`,
    unreached ? `${count(unreached)} not reached.` : '',
  ]
    .filter(Boolean)
    .join(' ');
}
