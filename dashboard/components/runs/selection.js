/** The runs that are selected in the table, in that order, and what can be done to all of them at once. */

import { el, icon, setAttribute, setText } from '../elements/elements.js';
import { count } from '../elements/numbers.js';
import { colourNumbers, runColour } from '../elements/theme.js';
import { follow, pageUrl } from '../links/following.js';
import { apiUrl, read, request, sentenceOf } from '../server/request.js';
import { BulkAction } from './bulk_action.js';
import { keepSelection, keptSelection } from './kept_selection.js';

const EXPORTS = {
  html: 'Report',
  csv: 'Points as CSV',
  parquet: 'Points as Parquet',
  json: 'Points as JSON',
  archive: 'Archive (zip)',
};

/** @typedef {import('./bulk_action.js').Action['action']} ActionName */

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
   * @param {() => void} onChanged when a run of them is another
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
      this._button('List again', false, 'unarchive'),
      this._button('Stop', true, 'stop'),
      this._button('Delete', true, 'delete'),
      el('button', { type: 'button', text: 'Clear', onclick: () => this.replace([]) }),
    );
    this._action = new BulkAction(
      () => this._showAction(),
      (action) => this._ended(action),
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
   * A button; one that ends or deletes something asks for a second click.
   * @param {string} text
   * @param {boolean} isGrave
   * @param {ActionName} action
   */
  _button(text, isGrave, action) {
    const button = el('button', {
      type: 'button',
      text,
      onclick: () => {
        if (!isGrave || button.dataset.armed) return this._begin({ action });
        button.dataset.armed = '1';
        setText(button, `${text} ${this.ids.size} for good?`);
      },
    });
    const disarm = () => {
      delete button.dataset.armed;
      setText(button, text);
    };
    this._disarming.push(disarm);
    return button;
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

  /** @param {import('./bulk_action.js').Action|null} action */
  _ended(action) {
    for (const id of action?.changed ?? []) this.ids.delete(id);
    this._show();
    this._onSelected();
    this._onChanged();
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
