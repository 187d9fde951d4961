/** A sweep or a scaling study, or the list of all: figures, and tables whose links are followed. */

import { closestTo, connecting, el, mountOnce, redraw, setText } from '../elements/elements.js';
import { follow, linkOf } from '../links/links.js';
import { markItems } from '../plots/plots.js';
import { Polling } from '../server/polling.js';
import { scalingPicture } from './scaling_picture.js';
import { sweepPicture } from './sweep_picture.js';
import { table } from './table.js';

const NARROWEST = 260;

/**
 * @typedef {{figures: ((width: number) => (Node|string)[])[], tables: (import('./table.js').Table & {kind?: string,
 *   note?: string})[], note: string, isLive: boolean}} Picture `note`: why there are no figures yet
 */

/** A sweep is asked for by its id; of the others `data` is what is drawn, and drawn again when it is newer. */
export const mount = (/** @type {import('../elements/elements.js').Component} */ { data, parentElement }) =>
  mountOnce({ data: data.sweep_id ?? null, parentElement, picture: data }, (first) => new Study(first));

class Study {
  /** @type {Picture|null} */
  _picture = null;
  /** @type {import('./table.js').Order|null} */
  _order = null;
  /** @type {(() => void)|undefined} */
  _left;

  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    const { data, parentElement, picture } = component;
    this._trouble = el('p', { class: 'trouble', role: 'status' });
    this._figures = el('div', { class: 'figures plots', hidden: true });
    this._tables = el('div', { class: 'tables' });
    const look = { class: data ? 'sweep' : 'scaling', 'aria-label': picture.label ?? (data ? 'Sweep' : 'Scaling') };
    this._root = el('section', look, this._trouble, this._figures, this._tables);
    parentElement.append(this._root);
    this._observer = new ResizeObserver(() => this._draw());
    this._observer.observe(this._root);
    this._root.addEventListener('pointerover', (event) => this._hover(event, true));
    this._root.addEventListener('pointerout', (event) => this._hover(event, false));
    this._root.addEventListener('click', (event) => {
      const link = linkOf(event);
      if (link) this._left = follow(event, link) ?? this._left;
    });
    this._polling = data ? this._poll(data) : null;
    this.refresh(component);
  }

  /** @param {string} sweepId */
  _poll(sweepId) {
    this._trouble.append(connecting());
    const polling = new Polling(
      this._root,
      this._trouble,
      () => `api/sweeps/${sweepId}/curves`,
      (sweep) => (sweep ? this._show(sweepPicture(sweep)) : setText(this._trouble, this._picture?.note ?? '')),
      () => this._picture?.isLive ?? true,
    );
    polling.askSoon(0);
    return polling;
  }

  /** @param {import('../elements/elements.js').Component} component */
  refresh({ picture }) {
    if (!this._polling) this._show(scalingPicture(picture));
  }

  destroy() {
    this._polling?.destroy();
    this._observer.disconnect();
    this._left?.();
    this._root.remove();
  }

  /** @param {Picture} picture */
  _show(picture) {
    this._picture = picture;
    setText(this._trouble, picture.note);
    this._showTables();
    this._draw();
  }

  _showTables() {
    const tables = this._picture?.tables ?? [];
    const shown = tables.map((one) =>
      el(
        'div',
        { class: `scroll ${one.kind ?? ''}` },
        table(one, this._order, (at) => this._sortBy(at)),
        one.note ? el('p', { text: one.note }) : null,
      ),
    );
    redraw(this._tables, ...shown);
  }

  /** Each figure is as wide as the place that the layout gives it. */
  _draw() {
    const figures = this._picture?.figures ?? [];
    const places = this._figures.children;
    this._figures.hidden = !figures.length;
    while (places.length > figures.length) places[places.length - 1].remove();
    while (places.length < figures.length) this._figures.append(el('figure'));
    figures.forEach((draw, at) => {
      const place = /** @type {HTMLElement} */ (places[at]);
      redraw(place, ...draw(Math.max(NARROWEST, place.clientWidth)));
    });
  }

  /**
   * The first click on a head sorts upwards, the second downwards, the third as it came again.
   * @param {number} at
   */
  _sortBy(at) {
    const { column, isDown } = this._order ?? { column: -1, isDown: false };
    this._order = column !== at ? { column: at, isDown: false } : isDown ? null : { column: at, isDown: true };
    this._showTables();
  }

  /** @param {Event} event @param {boolean} isOver */
  _hover(event, isOver) {
    const key = closestTo(event, '[data-item]')?.getAttribute('data-item');
    if (key) markItems(this._root, new Set(isOver ? [key] : []));
  }
}
