/**
 * The runs that are selected in the table, in that order, and what is done to all of them at once: by the server, begun
 * here or in another tab, followed, cancelled, told.
 */

import { keepSelection, keptSelection } from '../elements/address.js';
import { el, icon, setAttribute, setText } from '../elements/elements.js';
import { count, size } from '../elements/numbers.js';
import { colourNumbers, runColour } from '../elements/theme.js';
import { follow, pageUrl } from '../links/links.js';
import { apiUrl, read, request, sentenceOf } from '../server/request.js';

const EXPORTS = {
  html: 'Report',
  csv: 'Points as CSV',
  parquet: 'Points as Parquet',
  json: 'Points as JSON',
  archive: 'Archive (zip)',
};

/** @typedef {Action['action']} ActionName */

export class Selection {
  /** @type {(() => void)[]} undo the first click of buttons that ask for a second */
  _disarming = [];
  /** @type {Map<string, number>} */
  _colours = new Map();
  /** @type {string|undefined} the run that was selected last */
  _last;
  /** @type {(() => void)|undefined} */
  _leave;

  /**
   * @param {() => void} onSelected follows when other runs are selected
   * @param {(isAnother: boolean) => void} onChanged when a run of them is another, or runs have left or come back
   * @param {boolean} isKept whether this tab remembers the selection from page to page
   */
  constructor(onSelected, onChanged, isKept) {
    this._isKept = isKept;
    /** @type {Set<string>} */
    this.ids = new Set(isKept ? keptSelection() : []);
    this._onSelected = onSelected;
    this._onChanged = onChanged;
    this._count = el('b', {});
    this._compare = el('a', {
      class: 'compare',
      text: 'Compare',
      onclick: (event) => {
        event.stopPropagation();
        this._leave = follow(event, this._compare) ?? this._leave;
      },
    });
    this._compare.prepend(icon('chart'));
    this._tag = el('input', {
      type: 'text',
      placeholder: 'Tag',
      'aria-label': 'Tag',
      maxlength: 64,
      size: 12,
    });
    const tags = el(
      'form',
      {
        onsubmit: (event) => {
          event.preventDefault();
          this._tagAll('tag');
        },
      },
      this._tag,
      el('button', { text: 'Add tag' }),
      el('button', { type: 'button', text: 'Remove tag', onclick: () => this._tagAll('untag') }),
    );
    this._format = el(
      'select',
      { 'aria-label': 'Export as' },
      ...Object.entries(EXPORTS).map(([value, text]) => el('option', { value, text })),
    );
    this._actions = el(
      'div',
      { class: 'actions' },
      this._compare,
      this._format,
      el('button', {
        type: 'button',
        text: 'Download',
        onclick: () => void this._download(this._format.value),
      }),
      tags,
      this._button('Archive', false, 'archive'),
      this._button('Unarchive', false, 'unarchive'),
      this._button('Stop', true, 'stop'),
      this._button('Delete', true, 'delete'),
      el('button', { type: 'button', text: 'Clear', onclick: () => this.replace([]) }),
    );
    this._action = new BulkAction(
      () => this._showAction(),
      (action, isNews) => this._ended(action, isNews),
    );
    this.root = el(
      'div',
      { class: 'bulk', role: 'group', 'aria-label': 'Selected runs', hidden: true },
      this._count,
      this._actions,
      this._action.root,
    );
    this._show();
    this._showAction();
  }

  destroy() {
    this._action.destroy();
    this._leave?.();
  }

  /**
   * The colour of a run in the comparison of the selected ones; null where it is not selected.
   * @param {string} id
   * @param {import('../elements/theme.js').Theme} theme
   */
  colour(id, theme) {
    const number = this._colours.get(id);
    return number === undefined ? null : runColour(number, theme);
  }

  /** Show disabled what the person may do to no run, with the reason. @param {string|null} refusal */
  limit(refusal) {
    for (const control of this._actions.querySelectorAll('form input, form button, button[data-acts]')) {
      /** @type {HTMLButtonElement} */ (control).disabled = refusal !== null;
      /** @type {HTMLButtonElement} */ (control).title = refusal ?? '';
    }
  }

  /** Follow what is being done to many runs, begun in whatever tab. @param {string|null} id */
  follow(id) {
    if (id && id !== 'none' && !this._action.isBusy) this._action.follow(id);
  }

  /**
   * Select a run or no longer.
   * @param {string} id
   * @param {boolean} isSelected
   * @param {string[]|null} shown with the runs in their order: all from the one that was selected last
   */
  toggle(id, isSelected, shown = null) {
    const ends = [this._last ?? '', id].map((one) => shown?.indexOf(one) ?? -1);
    const range = shown?.slice(Math.min(...ends), Math.max(...ends) + 1);
    const ids = range && Math.min(...ends) >= 0 ? range : [id];
    for (const one of ids)
      if (isSelected) this.ids.add(one);
      else this.ids.delete(one);
    this._last = id;
    this._selected();
  }

  /** Select exactly these. @param {string[]} ids */
  replace(ids, sentence = '') {
    this.ids = new Set(ids);
    this._selected(sentence);
  }

  /**
   * Select the whole list, of which the table shows a part.
   * @param {string} query of the list
   * @param {number} total
   */
  async replaceByAll(query, total) {
    try {
      this._replaceByMost(await request(`api/overview/ids?${query}`), total);
    } catch (error) {
      this._selected(sentenceOf(error));
    }
  }

  /** @param {string[]} ids as many as the server selects at once @param {number} total */
  _replaceByMost(ids, total) {
    this.replace(
      ids,
      ids.length < total ? `The first ${count(ids.length)} of ${count(total)}: no more can be selected at once.` : '',
    );
  }

  _selected(sentence = '') {
    this._action.tell(sentence);
    this._show();
    this._onSelected();
  }

  _show() {
    this._colours = colourNumbers([...this.ids]);
    this._showRoot(); // what was done stays to be read
    if (this._isKept) keepSelection([...this.ids]);
    this._count.hidden = this._actions.hidden = !this.ids.size;
    setText(this._count, `${count(this.ids.size)} selected`);
    setAttribute(this._compare, 'href', this.ids.size > 1 ? pageUrl(`compare?runs=${[...this.ids].join(',')}`) : null);
    setAttribute(this._compare, 'title', this.ids.size > 1 ? null : 'Select another run to compare');
    for (const disarm of this._disarming) disarm();
  }

  /**
   * A button; one that ends or deletes something asks for a second click, and names the owners of the runs.
   * @param {string} text
   * @param {boolean} isGrave
   * @param {ActionName} action
   */
  _button(text, isGrave, action) {
    const button = el('button', {
      type: 'button',
      'data-acts': action,
      text,
      onclick: () => {
        if (isGrave && !button.dataset.armed) return void this._arm(button, text, action);
        disarm();
        this._begin({ action });
      },
    });
    const disarm = () => {
      if (button.dataset.armed) this._action.tell('');
      delete button.dataset.armed;
      setText(button, text);
    };
    this._disarming.push(disarm);
    return button;
  }

  /**
   * Have the next click of a button act, and name the other people whose runs these are.
   * @param {HTMLElement} button
   * @param {string} text
   * @param {ActionName} action
   */
  async _arm(button, text, action) {
    const runs = [...this.ids];
    try {
      const { sentence } = await request('api/bulk-actions/consequence', { json: { action, runs } });
      if (runs.join() !== [...this.ids].join()) return;
      this._action.tell(sentence);
      button.dataset.armed = '1';
      setText(button, `${text} ${runs.length}?`);
    } catch (error) {
      this._action.tell(sentenceOf(error));
    }
  }

  /**
   * Have the browser save the runs as one file, unless the server refuses: a download could not say why.
   * @param {string} format
   */
  async _download(format) {
    const path = `api/export?runs=${[...this.ids].join(',')}&format=${format}`;
    this._action.tell('');
    try {
      await read(path, { method: 'HEAD' }, async () => {});
      el('a', { href: apiUrl(path), download: '' }).click();
    } catch {
      // The answer to HEAD has no words.
      await request(path).catch((error) => this._action.tell(sentenceOf(error)));
    }
  }

  /** @param {ActionName} action */
  _tagAll(action) {
    const tag = this._tag.value.trim();
    if (tag) this._begin({ action, tag });
  }

  /**
   * The server does it, here or with the page closed; runs that refuse, or were not reached, stay selected.
   * @param {{action: ActionName, tag?: string}} request
   */
  _begin(request) {
    void this._action.begin({ ...request, runs: [...this.ids] });
  }

  /** @param {Action|null} action @param {boolean} isNews */
  _ended(action, isNews) {
    for (const id of action?.changed ?? []) this.ids.delete(id);
    this._show();
    this._onSelected();
    this._onChanged(isNews && ['delete', 'restore'].includes(action?.action ?? ''));
  }

  /** Actions begun one at a time. */
  _showAction() {
    if (!this._action) return;
    this._actions.inert = this._action.isBusy;
    this._showRoot();
  }

  _showRoot() {
    this.root.hidden = !this.ids.size && this._action.isEmpty;
  }
}

const ASKED_EVERY_MS = 400;
const AGAIN_MS = 2000;
const KEPT = 'rankzero.bulk-action';
const [BEGUN, DONE] = [0, 1];
const WORDS = {
  stop: ['Asking to stop', 'asked to stop'],
  delete: ['Deleting', 'deleted'],
  restore: ['Restoring', 'restored'],
  archive: ['Archiving', 'archived'],
  unarchive: ['Unarchiving', 'unarchived'],
  tag: ['Tagging', 'tagged'],
  untag: ['Removing the tag', 'no longer tagged'],
};

/**
 * @typedef {{run: string, name: string, message: string}} Refusal
 * @typedef {{id: string, action: keyof typeof WORDS, tag: string|null, state: 'running'|'done'|'cancelled',
 *   total: number, done: number, changed: string[], refused: Refusal[], freed_bytes: number,
 *   kept_until: number|null, can_undo: boolean}} Action
 */

class BulkAction {
  /** @type {string|undefined} */
  _id;
  /** @type {string|undefined} the last action whose end was told */
  _told;
  /** @type {string|undefined} */
  _begun;
  _hasLeft = false;

  /**
   * @param {() => void} onShown follows when something else is shown
   * @param {(action: Action|null, isNews: boolean) => void} onEnded with null where nothing is known of it; no news is
   *   what had ended before this page was opened
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
    this._isNews = false;
    /** @type {string[]} the deleted runs that Undo restores */
    this._undoable = [];
    this._undo = el('button', {
      type: 'button',
      text: 'Undo',
      onclick: () => void this.begin({ action: 'restore', runs: this._undoable }),
    });
    this._close = el('button', { type: 'button', text: 'Close', onclick: () => this.tell('') });
    this.root = el(
      'div',
      { class: 'outcome' },
      this._bar,
      this._status,
      this._refused,
      this._cancel,
      this._undo,
      this._close,
    );
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
    this._isNews = true;
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
    this._undoable = [];
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
    if (action.state === 'running') {
      this._isNews = true;
      this._later(`${this._begun}…`, ASKED_EVERY_MS);
    } else this._end(action, result(action));
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
    this._undoable = action?.action === 'delete' && action.can_undo ? action.changed : [];
    if (!action) sessionStorage.removeItem(KEPT);
    this._work(false);
    setText(this._status, sentence);
    this._onEnded(action, this._isNews);
    this._isNews = false;
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
    this._undo.hidden = this.isBusy || !this._undoable.length;
    this._close.hidden = this.isBusy || this.isEmpty;
    this.root.hidden = this.isEmpty;
    this._onShown();
  }
}

/** @param {number} seconds */
function inUtc(seconds) {
  return `${new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** @param {Action} action */
function result({ action, tag, state, total, done, refused, freed_bytes: freed, kept_until: until }) {
  const unreached = total - done - refused.length;
  const freedNow = freed && !until ? `, ${size(freed)} freed` : '';
  return [
    state === 'cancelled' ? 'Cancelled:' : '',
    `${count(done)} ${[WORDS[action][DONE], tag].filter(Boolean).join(' ')}${freedNow}.`,
    until ? `Can be restored until ${inUtc(until)}.` : '',
    unreached ? `${count(unreached)} not reached.` : '',
  ]
    .filter(Boolean)
    .join(' ');
}
