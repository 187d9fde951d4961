/** The Runs page's table: rows are links, heads sort, and it keeps itself current without moving what is looked at. */

import {
  closestTo,
  connecting,
  el,
  focusedIn,
  keepChildren,
  mountOnce,
  setAttribute,
  setText,
} from '../elements/elements.js';
import { readTheme } from '../elements/theme.js';
import { follow, linkOf, pageUrl } from '../links/links.js';
import { askAtClick, Polling } from '../server/polling.js';
import { ColumnChoice, columnsOf, isNumeric, usualKeys } from './columns.js';
import { advice, emptiness } from './empty_list.js';
import { classOf, RunRow } from './runs_row.js';
import { chosenAtFirst, remember, SavedViews, showInAddress } from './saved_views.js';
import { Selection } from './selection.js';

const STEP = 10;
/** The height of a row on a wide screen; others are higher. */
const ROW_PX = 38;
/**
 * Rows stay where they are for so long after the pointer moved over them, unless somebody has just asked for
 * others.
 */
const [POINTED_MS, ASKED_MS] = [10_000, 3000];

/**
 * Change the filters without rebuilding the table.
 * @param {import('../elements/elements.js').Component} component
 */
export const mount = (component) =>
  mountOnce(
    {
      data: null,
      parentElement: component.parentElement,
      setTriggerValue: component.setTriggerValue,
      filters: component.data,
    },
    (first) => new RunsTable(first),
  );

/** @typedef {import('./runs_row.js').Run} Run */
/** @typedef {import('./columns.js').Column} Column */
/** @typedef {import('../elements/elements.js').Component} Component */
/**
 * @typedef {{runs: Run[], offset: number, total: number, fold: number|null, folded: number, live: number,
 *   queued: number, ended: number, attention: number, columns: {key: string, kind: string}[]}} Picture
 */

class RunsTable {
  /** A field, with - before it the other way round. */
  _sort = '';
  /** @type {string[]|null} the keys of the columns; null for the usual ones */
  _keys = null;
  /** The metrics that have a column, as JSON. */
  _metrics = '[]';
  _onlyAttention = false;
  _allQueued = false;
  _isHeld = false;
  _isRange = false;
  _askedAt = -Infinity;
  /** @type {string|undefined} */
  _query;
  /** @type {Picture|null} */
  _picture = null;
  /** @type {number|undefined} */
  _rowPx;
  /** @type {Column[]} */
  _columns = [];
  /** @type {Map<string, HTMLElement>} */
  _heads = new Map();
  /** @type {(() => void)|undefined} */
  _leave;
  _summary = el('p', { class: 'summary', role: 'status' }, connecting());
  _trouble = el('span', { class: 'trouble', role: 'status' });
  _number = el('b', {});
  _attention = el(
    'button',
    { type: 'button', class: 'attention', onclick: () => this._toggleAttention() },
    el('span', { text: 'Needs attention' }),
    this._number,
  );
  _problem = el('p', { class: 'problem', role: 'alert', hidden: true });
  _empty = el('div', { class: 'empty', hidden: true });
  _body = el('tbody', {});
  _all = el('input', {
    type: 'checkbox',
    class: 'check',
    'aria-label': 'Select all runs of this list',
    onchange: () => this._selectAll(),
  });
  _headRow = el('tr', {});
  _table = el('table', { 'aria-label': 'Runs' }, el('thead', {}, this._headRow), this._body);
  _more = el('button', {
    type: 'button',
    class: 'more',
    onclick: () => {
      this._allQueued = true;
      this._askNow();
    },
  });
  // No cell spans columns: some are hidden, and a span would bring them back as gaps.
  _fold = el('tr', { class: 'fold' }, el('td', {}, this._more));
  _above = el('tr', { class: 'space', 'aria-hidden': 'true' }, el('td', {}));
  _below = el('tr', { class: 'space', 'aria-hidden': 'true' }, el('td', {}));
  _choice = new ColumnChoice(
    () => this._keys ?? this._usual(),
    (keys) => this._chooseColumns(keys),
  );
  _views = new SavedViews(
    () => this._view(),
    (view) => this._showView(view),
  );

  /** @param {Component} component */
  constructor(component) {
    /** @type {Map<string, RunRow>} */
    this._rows = new Map();
    this._component = component;
    ({ sort: this._sort, columns: this._keys, attention: this._onlyAttention } = chosenAtFirst());
    this._offset = 0;
    this._clockOffset = 0;
    this._pointedAt = -Infinity;
    // On the page of a project only its own runs can be selected, and no search be saved.
    this._selection = new Selection(
      () => this._showSelection(),
      (isAnother) => this._changed(isAnother),
      component.filters.has_views !== false,
    );
    this._root = this._build();
    this._polling = new Polling(
      this._root,
      this._trouble,
      () => this._path(),
      (picture, headers) => this._answered(picture, headers),
    );
    this._listen();
    this._buildHead();
    component.parentElement.append(this._root);
    this._ticking = setInterval(() => this._tick(), 1000);
    this._scrolled = () => requestAnimationFrame(() => this._follow());
    // Streamlit scrolls an element of its own, whose events do not bubble.
    document.addEventListener('scroll', this._scrolled, { capture: true, passive: true });
    this.refresh(component);
  }

  /** @param {Component} component */
  refresh(component) {
    this._component = component;
    this._views.root.hidden = component.filters.has_views === false;
    this._showProblem(component.filters.problem);
    this._selection.limit(component.filters.refusal ?? null);
    this._showMetrics(component.filters.metrics);
    const query = queryOf(component.filters);
    if (query === this._query) return;
    this._query = query;
    this._ask();
  }

  /** @param {import('./columns.js').Metric[]|undefined} metrics the best of what is searched, or of the project */
  _showMetrics(metrics) {
    const written = JSON.stringify(metrics ?? []);
    if (written === this._metrics) return;
    this._metrics = written;
    this._rebuildRows();
    this._query = undefined;
  }

  /** Ask for the list from its beginning: another search or order. */
  _ask() {
    this._offset = 0;
    this._askNow();
  }

  _askNow() {
    this._askedAt = performance.now();
    this._polling.askSoon(0);
  }

  _path() {
    const window = new URLSearchParams({ offset: String(this._offset), limit: String(this._limit()) });
    if (this._sort) window.set('sort', this._sort);
    for (const { key, isAdded } of this._columns) if (isAdded) window.append('column', key);
    if (this._onlyAttention) window.set('attention', 'true');
    if (this._allQueued) window.set('queue', 'whole');
    return `api/overview?${[this._query, window].filter(Boolean).join('&')}`;
  }

  destroy() {
    this._polling.destroy();
    this._askAtReturn();
    this._leave?.();
    this._selection.destroy();
    this._choice.destroy();
    this._views.destroy();
    clearInterval(this._ticking);
    document.removeEventListener('scroll', this._scrolled, { capture: true });
    this._root.remove();
  }

  /**
   * A click that leads back to the page asks for what it begins with; its filters stay, as those of the
   * session.
   */
  _askAtReturn() {
    if (this._component.filters.has_views === false) return;
    Object.assign(this, {
      _picture: null,
      _rowPx: undefined,
      _offset: 0,
      _sort: '',
      _onlyAttention: false,
      _allQueued: false,
      _isHeld: false,
    });
    askAtClick(pageUrl('./'), this._path());
  }

  _build() {
    return el(
      'section',
      { class: 'runs', 'aria-label': 'Runs' },
      this._problem,
      el('div', { class: 'head' }, this._summary, this._attention, this._trouble, this._choice.root, this._views.root),
      el('div', { class: 'wide' }, this._table),
      this._empty,
      this._selection.root,
    );
  }

  _listen() {
    this._root.addEventListener('click', (event) => this._clicked(event));
    /** @param {MouseEvent|KeyboardEvent} event */
    const pressed = (event) => {
      if (event.isTrusted) this._isRange = event.shiftKey;
    };
    this._body.addEventListener('click', pressed, { capture: true });
    this._body.addEventListener('keydown', pressed, { capture: true });
    this._body.addEventListener('change', ({ target }) => {
      if (!(target instanceof HTMLInputElement)) return;
      const shown = this._isRange ? (this._picture?.runs ?? []).map((run) => run.id) : null;
      this._selection.toggle(target.dataset.run ?? '', target.checked, shown);
    });
    /** @param {PointerEvent} event */
    const pointed = ({ pointerType }) => {
      if (pointerType === 'mouse') this._pointedAt = performance.now();
    };
    this._body.addEventListener('pointermove', pointed, { passive: true });
    this._body.addEventListener('pointerleave', () => {
      this._pointedAt = -Infinity;
      if (this._isHeld) this._arrange();
    });
    this._body.addEventListener('auxclick', (event) => this._clickedAside(event));
  }

  _usual() {
    const { has_people: hasPeople, metrics } = this._component.filters;
    return usualKeys(hasPeople === true, metrics);
  }

  _buildHead() {
    this._columns = columnsOf(this._keys ?? this._usual(), this._component.filters.metrics);
    this._heads = new Map(this._columns.map((column) => [column.key, this._head(column)]));
    this._headRow.replaceChildren(...this._heads.values());
    this._root.classList.toggle('chosen', this._keys !== null);
    this._table.style.minWidth = this._keys ? `${this._columns.reduce((sum, { rem }) => sum + (rem ?? 0), 0)}rem` : '';
    this._showSort();
  }

  /** @param {Column} column */
  _head(column) {
    const classes = classOf(column);
    if (column.key === 'pick')
      return el('td', { class: classes }, el('label', { title: 'Select all runs of this list' }, this._all));
    if (!column.title) return el('td', { class: classes });
    if (!column.sort) return el('th', { scope: 'col', class: classes, text: column.title });
    const mark = el('i', { 'aria-hidden': 'true' });
    const head = el(
      'th',
      { scope: 'col', class: classes, title: column.isAdded ? column.title : null },
      el('button', { type: 'button', onclick: () => this._sortBy(column) }, el('span', { text: column.title }), mark),
    );
    // Columns that nobody chose leave room for the name in a narrow window.
    if (column.isAdded) head.style.width = this._keys ? `${column.rem}rem` : `min(${column.rem}rem, 24cqw)`;
    return head;
  }

  // ---- what is there

  /** @param {Picture|null} picture @param {Headers} headers */
  _answered(picture, headers) {
    const date = Date.parse(headers.get('date') ?? '');
    if (Number.isFinite(date)) this._clockOffset = (date - Date.now()) / 1000;
    this._selection.follow(headers.get('rankzero-bulk-action'));
    if (picture) this._show(picture);
    this._showInAddress();
  }

  _now() {
    const now = Date.now() / 1000;
    return Math.abs(this._clockOffset) > 2 ? now + this._clockOffset : now;
  }

  /** @param {boolean} isAnother whether the page itself shows something else now */
  _changed(isAnother) {
    this._askNow();
    if (isAnother) this._component.setTriggerValue?.('changed', true);
  }

  /** @param {Picture} picture */
  _show(picture) {
    if (this._picture?.total === 0 && picture.total && !this._query) this._component.setTriggerValue?.('changed', true);
    this._picture = picture;
    const now = this._now();
    for (const { key, kind } of picture.columns) this._heads.get(key)?.classList.toggle('number', isNumeric(kind));
    for (const run of picture.runs) {
      const row = this._rows.get(run.id) ?? new RunRow(run, this._columns);
      this._rows.set(run.id, row);
      row.show(run, now, picture.columns);
    }
    const ids = new Set(picture.runs.map((run) => run.id));
    for (const id of this._rows.keys()) if (!ids.has(id)) this._rows.delete(id);
    this._showSelection();
    this._arrange();
  }

  /** All runs of the list, also those that are not scrolled to; no run where some are selected. */
  _selectAll() {
    const { total, folded } = this._picture ?? { total: 0, folded: 0 };
    const list = new URLSearchParams(this._query);
    if (this._onlyAttention) list.set('attention', 'true');
    if (this._sort) list.set('sort', this._sort);
    if (this._selection.ids.size) this._selection.replace([]);
    else void this._selection.replaceByAll(String(list), total + folded);
  }

  _showSelection() {
    const theme = readTheme(this._root);
    this._all.checked = this._rows.size > 0 && [...this._rows.keys()].every((id) => this._selection.ids.has(id));
    this._all.indeterminate = !this._all.checked && this._selection.ids.size > 0;
    for (const [id, row] of this._rows) row.showSelected(this._selection.colour(id, theme));
  }

  _tick() {
    if (document.hidden) return;
    const now = this._now();
    for (const row of this._rows.values()) row.tick(now);
  }

  /** Whether no row may move, since somebody is about to click one. */
  _isPointed() {
    const now = performance.now();
    return now - this._pointedAt < POINTED_MS && now - this._askedAt > ASKED_MS;
  }

  /**
   * Rows are moved only when their order is another and nobody points at them, and the focus stays with its
   * run.
   */
  _arrange() {
    if (!this._picture) return;
    const { runs, offset, total, fold, folded } = this._picture;
    const rows = runs.flatMap((run) => this._rows.get(run.id)?.root ?? []);
    if (fold !== null && fold >= offset && fold <= offset + rows.length) rows.splice(fold - offset, 0, this._fold);
    setText(this._more, `and ${folded} more queued`);
    const order = [this._above, ...rows, this._below];
    const isOther =
      order.length !== this._body.childElementCount || order.some((root, at) => this._body.children[at] !== root);
    this._tell(this._picture);
    this._isHeld = isOther && this._isPointed();
    if (this._isHeld) return;
    if (isOther) {
      const focused = focusedIn(this._body);
      keepChildren(this._body, order);
      if (focused?.isConnected && this._body.contains(focused)) focused.focus({ preventScroll: true });
    }
    setAttribute(this._table, 'aria-rowcount', String(total + 1));
    this._showEmpty(total);
    this._reserve(this._picture);
    this._follow();
  }

  /** The rows that fill the screen; once they are there, with some before and after them. */
  _limit() {
    const spare = this._picture ? 2.5 * STEP : 0;
    return Math.min(200, Math.ceil((innerHeight / (this._rowPx ?? ROW_PX) + spare) / STEP) * STEP);
  }

  /**
   * The height of the rows that are not here, so that the page is as long as the whole list.
   * @param {Picture} picture
   */
  _reserve({ runs, offset, total, fold }) {
    const row = runs.length ? this._rows.get(runs[0].id)?.root : null;
    this._rowPx = row?.getBoundingClientRect().height || this._rowPx || 40;
    const isFoldAbove = fold !== null && fold < offset;
    const below = total - offset - runs.length + (fold !== null && fold > offset + runs.length ? 1 : 0);
    this._above.style.height = `${(offset + (isFoldAbove ? 1 : 0)) * this._rowPx}px`;
    this._below.style.height = `${Math.max(0, below) * this._rowPx}px`;
    this._above.hidden = offset === 0;
    this._below.hidden = below <= 0;
  }

  /** Ask for the rows that are looked at now, with some before and after them. */
  _follow() {
    if (!this._picture || !this._rowPx || this._table.hidden) return;
    const top = this._body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / this._rowPx));
    const last = Math.min(this._picture.total, Math.ceil((innerHeight - top) / this._rowPx));
    if (first >= this._offset && last <= this._offset + this._limit()) return;
    const offset = Math.max(0, Math.floor((Math.min(first, this._picture.total - 1) - STEP) / STEP) * STEP);
    if (offset === this._offset) return;
    this._offset = offset;
    this._askNow();
  }

  /** @param {Picture} picture */
  _tell({ live, queued, ended, attention }) {
    setText(
      this._summary,
      [`${live} live`, queued ? `${queued} queued` : null, `${ended} ended`].filter(Boolean).join(' · '),
    );
    setText(this._number, String(attention));
    this._attention.classList.toggle('some', attention > 0);
    setAttribute(this._attention, 'aria-pressed', String(this._onlyAttention));
    setAttribute(
      this._attention,
      'title',
      'Running with a hang, a NaN loss, no contact or a warning; failed or ended with NaN in the last 24 h',
    );
  }

  /**
   * The search with the word that is wrong marked, and the rule.
   * @param {{text: string, start: number, end: number, message: string}|null|undefined} problem
   */
  _showProblem(problem) {
    this._problem.hidden = !problem;
    if (!problem) return;
    const { text, start, end, message } = problem;
    const letters = [...text]; // the server counts whole characters
    /** @param {number} from @param {number} [to] */
    const part = (from, to) => letters.slice(from, to).join('');
    const query = el('code', {}, part(0, start), el('mark', { text: part(start, end) }), part(end));
    this._problem.replaceChildren(query, el('span', { text: message }));
  }

  /** @param {number} shown */
  _showEmpty(shown) {
    const isEmpty = shown === 0;
    this._table.hidden = isEmpty;
    this._root.classList.toggle('none', isEmpty && !this._onlyAttention && !this._query);
    this._empty.hidden = !isEmpty;
    if (!isEmpty) return;
    const kind = emptiness(this._component.filters, this._onlyAttention, Boolean(this._query));
    if (this._empty.dataset.kind === kind) return;
    this._empty.dataset.kind = kind;
    this._empty.replaceChildren(...advice(kind, () => this._showAll()));
  }

  // ---- what people do

  /**
   * The first click sorts, the second the other way round, the third leaves it to the server.
   * @param {Column} column
   */
  _sortBy({ sort = '', first = 1 }) {
    const [once, again] = first > 0 ? [sort, `-${sort}`] : [`-${sort}`, sort];
    this._sort = this._sort === once ? again : this._sort === again ? '' : once;
    this._chosen();
    this._showSort();
    this._ask();
  }

  /** The sort and the columns are in the address; this tab remembers the columns. */
  _chosen() {
    remember(this._keys);
    this._showInAddress();
  }

  /** @param {string[]|null} keys */
  _chooseColumns(keys) {
    this._keys = keys && keys.join() === this._usual().join() ? null : keys;
    this._chosen();
    this._rebuildRows();
    this._askNow();
  }

  _rebuildRows() {
    this._buildHead();
    this._rows.clear();
    if (this._picture) this._show(this._picture);
  }

  /** What the page shows, to be saved. */
  _view() {
    const { search, states, project } = this._component.filters;
    return {
      filter: search ?? '',
      states: states ?? [],
      project: project ?? null,
      columns: this._keys,
      sort: this._sort,
    };
  }

  /** @param {import('./saved_views.js').View} view */
  _showView({ filter, states, project, columns, sort }) {
    [this._sort, this._keys, this._onlyAttention] = [sort, columns, false];
    this._chosen();
    this._rebuildRows();
    this._component.setTriggerValue?.('viewed', { filter, states, project });
    this._ask();
  }

  _showSort() {
    for (const { key, sort } of this._columns) {
      const head = this._heads.get(key);
      if (!sort || !head) continue;
      const direction = this._sort === sort ? 1 : this._sort === `-${sort}` ? -1 : 0;
      setAttribute(head, 'aria-sort', direction ? (direction > 0 ? 'ascending' : 'descending') : 'none');
      setText(head.querySelector('i'), direction ? (direction > 0 ? '▲' : '▼') : '');
    }
  }

  _toggleAttention() {
    this._onlyAttention = !this._onlyAttention;
    this._showInAddress();
    this._ask();
  }

  _showAll() {
    this._onlyAttention = false;
    this._showInAddress();
    if (this._query) this._component.setTriggerValue?.('cleared', true);
    this._ask();
  }

  /** Streamlit writes the filters there, and does not know of these. */
  _showInAddress() {
    showInAddress({ attention: this._onlyAttention, sort: this._sort, columns: this._keys });
  }

  /**
   * A link covers its row but for figures with a title of their own: a click on these follows it too.
   * @param {MouseEvent} event
   */
  _clicked(event) {
    if (closestTo(event, 'label, .bulk, .panelled')) return;
    const [own, row] = [linkOf(event), linkOfRow(event)];
    const link = own ?? row;
    if (!link || String(getSelection() ?? '')) return;
    if (!own && row && (event.ctrlKey || event.metaKey || event.shiftKey)) window.open(row.href, '_blank', 'noopener');
    else this._leave = follow(event, link) ?? this._leave;
  }

  /** @param {MouseEvent} event */
  _clickedAside(event) {
    const link = linkOf(event) ? null : linkOfRow(event);
    if (link && event.button === 1) window.open(link.href, '_blank', 'noopener');
  }
}

/** The run's link in the row that an event is in. @param {Event} event @returns {HTMLAnchorElement|null} */
function linkOfRow(event) {
  return closestTo(event, 'tbody tr')?.querySelector('a[data-run]') ?? null;
}

/** @param {{search?: string, states?: string[], project?: string|null}} filters */
function queryOf({ search, states, project }) {
  return String(
    new URLSearchParams([
      ...(search ? [['filter', search]] : []),
      ...(states ?? []).map((state) => ['state', state]),
      ...(project ? [['project', project]] : []),
    ]),
  );
}
