/** The Runs page's table: rows are links, heads sort, and it keeps itself current without moving what is looked at. */

import { el, icon, setAttribute, setText } from '../elements/elements.js';
import { follow, pageUrl } from '../links/following.js';
import { mountOnce } from '../elements/mounting.js';
import { Polling } from '../elements/polling.js';
import { COLUMNS, RunRow } from './runs_row.js';

const KEPT = 'rankzero.runs';
const FEW_QUEUED = 5;

/** Change the filters without rebuilding the table. @param {import('../elements/mounting.js').Component} component */
export const mount = (component) => mountOnce(
  { data: null, parentElement: component.parentElement, setTriggerValue: component.setTriggerValue, filters: component.data },
  (first) => new RunsTable(first),
);

class RunsTable {
  constructor(component) {
    /** @type {Map<string, RunRow>} */
    this._rows = new Map();
    this._sort = kept();
    this._onlyAttention = new URLSearchParams(location.search).get('attention') === '1';
    this._clockOffset = 0;
    this._build();
    component.parentElement.append(this._root);
    this._ticking = setInterval(() => this._tick(), 1000);
    this.refresh(component);
  }

  refresh(component) {
    this._component = component;
    const query = queryOf(component.filters);
    if (query === this._query) return;
    this._query = query;
    this._polling.askSoon(0);
  }

  destroy() {
    this._polling.destroy();
    this._leave?.();
    clearInterval(this._ticking);
    this._root.remove();
  }

  _build() {
    this._summary = el('p', { class: 'summary', role: 'status', text: 'Connecting…' });
    this._trouble = el('span', { class: 'trouble', role: 'status' });
    this._number = el('b', {});
    this._attention = el('button', { type: 'button', class: 'attention', onclick: () => this._toggleAttention() }, el('span', { text: 'Needs attention' }), this._number);
    this._heads = new Map(COLUMNS.map((column) => [column.key, this._head(column)]));
    this._body = el('tbody', {});
    this._table = el('table', { 'aria-label': 'Runs' }, el('thead', {}, el('tr', {}, ...this._heads.values())), this._body);
    this._more = el('button', { type: 'button', class: 'more', onclick: () => { this._allQueued = true; this._arrange(); } });
    this._fold = el('tr', { class: 'fold' }, el('td', { colspan: COLUMNS.length }, this._more));
    this._rest = el('p', { class: 'rest', hidden: true });
    this._empty = el('div', { class: 'empty', hidden: true });
    this._root = el('section', { class: 'runs', 'aria-label': 'Runs' }, el('div', { class: 'head' }, this._summary, this._attention, this._trouble), this._table, this._rest, this._empty);
    this._polling = new Polling(this._root, this._trouble, () => `api/overview${this._query}`, (picture, answer) => this._answered(picture, answer));
    this._root.addEventListener('click', (event) => this._clicked(event));
    this._body.addEventListener('auxclick', (event) => this._clickedAside(event));
    this._showSort();
  }

  _head(column) {
    const classes = `${column.key}${column.isNumber ? ' number' : ''}`;
    if (!column.value) return el('th', { scope: 'col', class: classes, text: column.title });
    const mark = el('i', { 'aria-hidden': 'true' });
    return el('th', { scope: 'col', class: classes }, el('button', { type: 'button', onclick: () => this._sortBy(column) }, el('span', { text: column.title }), mark));
  }

  // ---- what is there

  _answered(picture, answer) {
    const date = Date.parse(answer.headers.get('date') ?? '');
    if (Number.isFinite(date)) this._clockOffset = (date - Date.now()) / 1000;
    if (picture) this._show(picture);
    this._showInAddress();
  }

  _now() {
    const now = Date.now() / 1000;
    return Math.abs(this._clockOffset) > 2 ? now + this._clockOffset : now;
  }

  _show(picture) {
    if (this._picture?.runs.length === 0 && picture.runs.length && !this._query) this._component.setTriggerValue?.('arrived', true);
    this._picture = picture;
    const now = this._now();
    for (const run of picture.runs) {
      if (!this._rows.has(run.id)) this._rows.set(run.id, new RunRow(run));
      this._rows.get(run.id).show(run, now);
    }
    const ids = new Set(picture.runs.map((run) => run.id));
    for (const id of this._rows.keys()) if (!ids.has(id)) this._rows.delete(id);
    this._arrange();
  }

  _tick() {
    if (document.hidden) return;
    const now = this._now();
    for (const row of this._rows.values()) row.tick(now);
  }

  /** Rows are moved only when their order is another, and the focus stays with its run. */
  _arrange() {
    const { runs, queued, is_cut: isCut } = this._picture;
    const wanting = runs.filter((run) => run.attention);
    const sorted = this._sorted(this._onlyAttention ? wanting : runs);
    const isFolded = !this._sort && !this._allQueued && !this._onlyAttention && !this._query.includes('state=');
    const shown = isFolded ? folded(sorted) : sorted;
    const order = shown.map((run) => this._rows.get(run.id).root);
    const unseen = queued - shown.filter((run) => run.state === 'queued').length;
    if (isFolded && unseen > 0) order.splice(shown.findLastIndex((run) => run.state === 'queued') + 1, 0, this._fold);
    setText(this._more, `and ${unseen} more queued`);
    if (order.length !== this._body.childElementCount || order.some((root, at) => this._body.children[at] !== root)) {
      const focused = /** @type {ShadowRoot} */ (this._body.getRootNode()).activeElement;
      this._body.replaceChildren(...order);
      if (focused?.isConnected && this._body.contains(focused)) focused.focus({ preventScroll: true });
    }
    this._tell(runs, wanting.length, queued);
    this._rest.hidden = !isCut;
    setText(this._rest, `The newest ${runs.length} runs are shown; search to find older ones.`);
    this._showEmpty(shown.length);
  }

  _tell(runs, wanting, queued) {
    const number = (is) => runs.filter(is).length;
    const live = number((run) => ['starting', 'running', 'stopping'].includes(run.state));
    const parts = [`${live} live`, queued ? `${queued} queued` : null, `${number((run) => run.ended_at !== null)} ended`];
    setText(this._summary, parts.filter(Boolean).join(' · '));
    setText(this._number, String(wanting));
    this._attention.classList.toggle('some', wanting > 0);
    setAttribute(this._attention, 'aria-pressed', String(this._onlyAttention));
    setAttribute(this._attention, 'title', 'Running with a hang, a NaN loss, no contact or a warning; failed or ended with NaN in the last 24 h');
  }

  _showEmpty(shown) {
    const isEmpty = shown === 0;
    this._table.hidden = isEmpty;
    this._root.classList.toggle('none', isEmpty && !this._picture.runs.length && !this._query);
    this._empty.hidden = !isEmpty;
    if (!isEmpty) return;
    const kind = this._onlyAttention ? 'calm' : this._query ? 'unmatched' : 'first';
    if (this._empty.dataset.kind === kind) return;
    this._empty.dataset.kind = kind;
    this._empty.replaceChildren(...this._advice(kind));
  }

  _advice(kind) {
    if (kind === 'first') {
      const sentence = 'Launch a recipe or your own script. It trains on the connected nodes, and its loss appears here from the first step on.';
      return [el('h2', { text: 'No runs yet' }), el('p', { text: sentence }), el('a', { class: 'primary', href: pageUrl('launch') }, icon('launch'), el('span', { text: 'Launch the first run' }))];
    }
    const sentence = kind === 'calm' ? 'No run needs attention.' : 'No run matches these filters.';
    return [el('p', { text: sentence }), el('button', { type: 'button', text: 'Show all runs', onclick: () => this._showAll() })];
  }

  // ---- what people do

  _sorted(runs) {
    const column = this._sort && COLUMNS.find(({ key }) => key === this._sort.key);
    if (!column) return runs;
    const now = this._now();
    const valued = runs.map((run) => ({ run, value: column.value(run, now) }));
    return valued.sort((a, b) => compared(a.value, b.value, this._sort.direction)).map(({ run }) => run);
  }

  /** The first click sorts, the second the other way round, the third leaves it to the server. */
  _sortBy({ key, first }) {
    if (this._sort?.key !== key) this._sort = { key, direction: first };
    else this._sort = this._sort.direction === first ? { key, direction: -first } : null;
    sessionStorage.setItem(KEPT, JSON.stringify(this._sort));
    this._showSort();
    if (this._picture) this._arrange();
  }

  _showSort() {
    for (const { key, value } of COLUMNS) {
      const head = this._heads.get(key);
      const direction = this._sort?.key === key ? this._sort.direction : 0;
      if (!value) continue;
      setAttribute(head, 'aria-sort', direction ? (direction > 0 ? 'ascending' : 'descending') : 'none');
      setText(head.querySelector('i'), direction ? (direction > 0 ? '▲' : '▼') : '');
    }
  }

  _toggleAttention() {
    this._onlyAttention = !this._onlyAttention;
    this._showInAddress();
    if (this._picture) this._arrange();
  }

  _showAll() {
    this._onlyAttention = false;
    this._showInAddress();
    if (this._query) this._component.setTriggerValue?.('cleared', true);
    this._arrange();
  }

  /** Streamlit writes the other filters there, and does not know of this one. */
  _showInAddress() {
    const url = new URL(location.href);
    if ((url.searchParams.get('attention') === '1') === this._onlyAttention) return;
    if (this._onlyAttention) url.searchParams.set('attention', '1');
    else url.searchParams.delete('attention');
    history.replaceState(history.state, '', url);
  }

  /** A link covers its row but for figures with a title of their own: a click on these follows it too. */
  _clicked(event) {
    const link = event.target.closest('a') ?? event.target.closest('tbody tr')?.querySelector('a');
    if (!link || String(getSelection() ?? '')) return;
    if (!event.target.closest('a') && (event.ctrlKey || event.metaKey || event.shiftKey)) window.open(link.href, '_blank', 'noopener');
    else this._leave = follow(event, link) ?? this._leave;
  }

  _clickedAside(event) {
    const link = event.target.closest('a') ? null : event.target.closest('tr')?.querySelector('a');
    if (link && event.button === 1) window.open(link.href, '_blank', 'noopener');
  }
}

/** Show only the first few of many queued runs, so that ended ones stay visible. */
function folded(runs) {
  const queued = runs.filter((run) => run.state === 'queued');
  if (queued.length <= FEW_QUEUED + 1) return runs;
  const few = new Set(queued.slice(0, FEW_QUEUED));
  return runs.filter((run) => run.state !== 'queued' || few.has(run));
}

/** Without a value last, whichever way it is sorted. */
function compared(a, b, direction) {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  return direction * (a < b ? -1 : Number(a > b));
}

function queryOf({ q, states, project }) {
  const query = new URLSearchParams([...(q ? [['q', q]] : []), ...(states ?? []).map((state) => ['state', state]), ...(project ? [['project', project]] : [])]);
  return query.size ? `?${query}` : '';
}

/** The sorting as this tab had it last. */
function kept() {
  try {
    const stored = JSON.parse(sessionStorage.getItem(KEPT) ?? 'null');
    return COLUMNS.some(({ key, value }) => value && key === stored?.key) ? stored : null;
  } catch {
    return null;
  }
}
