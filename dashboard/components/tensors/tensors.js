/** A checkpoint's tensors, or the differences of two, as a node reported them: tables to search and sort. */

import { closestTo, connecting, el, mountOnce, redraw, setText } from '../elements/elements.js';
import { count, plural } from '../elements/numbers.js';
import { markItems } from '../plots/plots.js';
import { request, sentenceOf } from '../server/request.js';
import { sorted, table } from '../studies/table.js';
import { layerPicture } from './layer_picture.js';
import { comparedLists, comparedSentence, matching, shownLists, shownSentence } from './tensor_lists.js';

const MOST_ROWS = 300;
const NARROWEST = 260;

/** @typedef {import('./tensor_lists.js').List} List */

/** @param {import('../elements/elements.js').Component} component `data`: the task's id */
export const mount = (component) => mountOnce(component, (first) => new Tensors(first));

class Tensors {
  /** @type {ListView[]} */
  _lists = [];
  /** @type {((width: number) => Node[])[]} */
  _draw = [];

  /** @param {import('../elements/elements.js').Component} component */
  constructor({ data, parentElement }) {
    this._sentence = el('p', { role: 'status' }, connecting());
    this._figures = el('div', { class: 'figures plots', hidden: true });
    this._search = el('input', {
      type: 'search',
      'aria-label': 'Search the names',
      placeholder: 'Search the names',
      hidden: true,
      oninput: () => this._searched(),
    });
    this._places = el('div', {});
    this._root = el(
      'section',
      { class: 'tensors', 'aria-label': 'Tensors' },
      this._sentence,
      this._figures,
      this._search,
      this._places,
    );
    parentElement.append(this._root);
    this._observer = new ResizeObserver(() => this._drawFigures());
    this._observer.observe(this._root);
    for (const kind of ['pointerover', 'pointerout'])
      this._root.addEventListener(kind, (event) => this._hover(event, kind === 'pointerover'));
    void this._load(data.task_id);
  }

  destroy() {
    this._observer.disconnect();
    this._root.remove();
  }

  /** @param {number} taskId */
  async _load(taskId) {
    try {
      const { kind, result, name, other_name } = await request(`api/checkpoint-tasks/${taskId}`);
      if (kind === 'diff') {
        const names = `A: ${name}, B: ${other_name ?? 'deleted since'}.`;
        this._show(
          [comparedSentence(result), names, ...result.notes],
          comparedLists(result),
          layerPicture(result.layers),
        );
      } else {
        this._show([shownSentence(result), ...result.notes], shownLists(result), []);
      }
    } catch (error) {
      setText(this._sentence, `The tensors could not be loaded. ${sentenceOf(error)}`);
    }
  }

  /**
   * @param {string[]} sentences
   * @param {List[]} lists
   * @param {((width: number) => Node[])[]} draw
   */
  _show(sentences, lists, draw) {
    setText(this._sentence, sentences.join(' '));
    this._draw = draw;
    this._figures.hidden = !draw.length;
    this._figures.replaceChildren(...draw.map(() => el('figure')));
    this._lists = lists.map((list, place) => new ListView(list, place === 0));
    this._places.replaceChildren(...this._lists.map(({ element }) => element));
    this._search.hidden = !lists.length;
    this._drawFigures();
  }

  /** Each figure is as wide as the place that the layout gives it. */
  _drawFigures() {
    this._draw.forEach((draw, at) => {
      const place = /** @type {HTMLElement} */ (this._figures.children[at]);
      redraw(place, ...draw(Math.max(NARROWEST, place.clientWidth)));
    });
  }

  _searched() {
    for (const list of this._lists) list.search(this._search.value);
  }

  /** @param {Event} event @param {boolean} isOver */
  _hover(event, isOver) {
    const key = closestTo(event, '[data-item]')?.getAttribute('data-item');
    if (key) markItems(this._root, new Set(isOver ? [key] : []));
  }
}

/** One list, folded or open, whose first rows are in the page. */
class ListView {
  /** @type {import('../studies/table.js').Order|null} */
  _order = null;
  _search = '';
  _isWhole = false;

  /** @param {List} list @param {boolean} isOpen */
  constructor(list, isOpen) {
    this._list = list;
    this._title = el('summary', {});
    this._rows = el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': list.title });
    this._more = el('p', {});
    this.element = el('details', { open: isOpen }, this._title, this._rows, this._more);
    this._fill();
  }

  /** @param {string} search */
  search(search) {
    this._search = search;
    this._fill();
  }

  _fill() {
    const { title, table: whole, leftOut } = this._list;
    const rows = sorted(matching(whole.rows, this._search), this._order);
    const shown = this._isWhole ? rows : rows.slice(0, MOST_ROWS);
    setText(
      this._title,
      `${title} (${this._search ? `${count(rows.length)} of ` : ''}${count(whole.rows.length + leftOut)})`,
    );
    redraw(
      this._rows,
      table({ ...whole, rows: shown }, this._order, (at) => this._sortBy(at)),
    );
    this._tellMore(rows.length - shown.length, leftOut);
  }

  /** @param {number} hidden @param {number} leftOut */
  _tellMore(hidden, leftOut) {
    const all = hidden
      ? el('button', { type: 'button', text: `Show ${count(hidden)} more`, onclick: () => this._showAll() })
      : null;
    const note = leftOut ? ` ${plural(leftOut, 'further row')} not reported, to bound the report's size.` : '';
    this._more.replaceChildren(...(all ? [all] : []), note);
  }

  _showAll() {
    this._isWhole = true;
    this._fill();
  }

  /** As in a study: upwards, downwards, then as it came. @param {number} at */
  _sortBy(at) {
    const { column, isDown } = this._order ?? { column: -1, isDown: false };
    this._order = column !== at ? { column: at, isDown: false } : isDown ? null : { column: at, isDown: true };
    this._fill();
  }
}
