/** What differs between the runs, only what differs, and what became of their series; with a baseline in per cent. */

import { choose, chosen } from '../elements/address.js';
import { el, htmlIn, redraw } from '../elements/elements.js';
import { exact, timeSpan, UNKNOWN } from '../elements/numbers.js';
import { runColour } from '../elements/theme.js';
import { follow, pageUrl } from '../links/links.js';
import { Polling } from '../server/polling.js';
import { changed, copyButtons, drawnCell, resultCell, settingCell } from './cells.js';
import { isLive } from './comparison.js';
import { Grouping, groupRows } from './grouping.js';

/** With more runs than these each is a row: few columns are easier to read than many. */
const MOST_COLUMNS = 6;
const NO_BASELINE = 'none';
const [DRAWN_MS, LATEST_MS] = [300, 1500];

/** @typedef {import('./grouping.js').Row} Row */
/** @typedef {import('./comparison.js').ComparedRun} ComparedRun */

export class CompareTable {
  /** @type {Row[]|undefined} */
  _shown;
  /** @type {{label: string}[]} */
  _columns = [];
  /** @type {ComparedRun[]} */
  _present = [];
  /** @type {import('../server/documents.js').Comparison|null} */
  _document = null;
  _isStale = false;
  _started = false;
  /** @type {(() => void)|undefined} */
  _leave;

  /**
   * @param {HTMLElement} parent
   * @param {import('./comparison.js').ComparedRun[]} runs
   * @param {{theme: () => import('../elements/theme.js').Theme, colourOf: (runId: string) => number, onPoint:
   *   (runId: string|null) => void, onMissing: (runId: string) => void, onGroups: (groups:
   *   import('./grouping.js').Group[]|null) => void, onDocument: (document: any) => void}} page
   */
  constructor(parent, runs, { theme, colourOf, onPoint, onMissing, onGroups, onDocument }) {
    this._runs = runs;
    this._colourOf = colourOf;
    this._onPoint = onPoint;
    this._onMissing = onMissing;
    this._onGroups = onGroups;
    this._onDocument = onDocument;
    this._grouping = new Grouping(() => this._ask());
    this._theme = theme;
    /** A run's id, `none` for no baseline, or null for that of the project. */
    this._baseline = chosen('baseline');
    this._trouble = el('span', { class: 'trouble', role: 'status' });
    this._choice = el('select', { 'aria-label': 'Baseline', onchange: () => this._choose() });
    this._choice.append(
      el('option', { value: NO_BASELINE, text: 'No baseline' }),
      ...runs.map((run) => el('option', { value: run.id, text: `Baseline: ${run.name}` })),
    );
    this._choice.value = this._baseline ?? NO_BASELINE;
    const { bar, copied } = copyButtons(
      () => this._shown && { titles: this._columns.map(({ label }) => label), lines: this._shown },
    );
    this._tables = el('div', {});
    this._bar = el(
      'div',
      { class: 'bar' },
      this._choice,
      this._trouble,
      el('span', { class: 'space' }),
      copied,
      ...bar,
    );
    this._root = el('section', { class: 'differences', 'aria-label': 'Differences' }, this._bar, this._tables);
    parent.append(this._root);
    this._polling = new Polling(
      this._root,
      this._trouble,
      () => this._path(),
      (document) => this._show(document),
      () => !this._document || this._isStale || this._runs.some((run) => isLive(run.state)),
    );
    // Curves come first, but grouped ones need the groups.
    this._polling.askSoon(this._grouping.fields.length ? 0 : LATEST_MS);
  }

  /** The choice of the field by whose values runs are grouped. */
  get grouping() {
    return this._grouping.element;
  }

  /** The first curves are there: once they are drawn, the table follows. */
  start() {
    if (!this._started) this._polling.askSoon(DRAWN_MS);
    this._started = true;
  }

  destroy() {
    this._leave?.();
    this._polling.destroy();
  }

  /** Results of a run that has just ended are read once more. */
  stateChanged() {
    this._isStale = true;
  }

  /** The theme may be another. */
  paint() {
    const theme = this._theme();
    for (const swatch of htmlIn(this._root, 'i[data-colour]'))
      swatch.style.background = runColour(Number(swatch.dataset.colour), theme);
  }

  _path() {
    const query = new URLSearchParams({
      runs: this._runs.map((run) => run.id).join(','),
      skip_missing: 'true',
    });
    if (this._baseline) query.set('baseline', this._baseline);
    for (const field of this._grouping.fields) query.append('group', field);
    return `api/compare?${query}`;
  }

  _choose() {
    this._baseline = this._choice.value;
    choose({ baseline: this._baseline });
    this._ask();
  }

  /** Something else is asked for now. */
  _ask() {
    this._isStale = true;
    this._polling.askSoon(0);
  }

  /** @param {import('../server/documents.js').Comparison} document */
  _show(document) {
    this._isStale = false;
    if (!document) return;
    this._document = document;
    const present = this._runs.filter((run) => document.runs.includes(run.id));
    const missing = this._runs.filter((run) => !document.runs.includes(run.id));
    this._present = present;
    for (const run of missing) if (run.state !== 'deleted') this._onMissing(run.id);
    this._grouping.offer(document.differences);
    const groups = this._grouping.groups(document);
    this._onGroups(groups);
    this._onDocument(document);
    this._showBaseline(document);
    /** @type {Row[]} */
    const settings = document.differences.map((row) => ({
      title: row.label,
      cells: present.map(({ id }) => settingCell(row.values[id])),
    }));
    /** @type {Row[]} */
    const rows = document.series.flatMap((row) => this._resultRows(row));
    const results = groups ? groupRows(document, groups) : rows.filter(({ cells }) => differ(cells));
    this._columns = groups ?? present.map((run) => ({ label: run.name || run.id }));
    /** @type {Row[]} */
    const phases = groups ? [] : document.phases.map((row) => this._phaseRow(row));
    this._shown = groups ? results : [...settings, ...results, ...phases];
    const parts = [
      missing.length
        ? el('p', {
            class: 'same',
            role: 'status',
            text: `Deleted: ${missing.map((run) => run.name || run.id).join(', ')}`,
          })
        : null,
      settings.length || present.length < 2
        ? null
        : el('p', { class: 'same', text: 'The settings, the environment and the nodes are the same.' }),
      this._shown.length
        ? this._drawn(
            groups
              ? [['Results', results]]
              : [
                  ['Differences', settings],
                  ['Results', results],
                  ['Where a step goes', phases],
                ],
            groups,
          )
        : null,
    ];
    this._bar.hidden = this._shown.length === 0;
    redraw(this._tables, ...parts.filter((part) => part !== null));
    this.paint();
  }

  /**
   * Choose the baseline that the server took: without a choice that of the project, which may be another run.
   * @param {import('../server/documents.js').Comparison} document
   */
  _showBaseline({ baseline, baseline_name: name }) {
    if (baseline && ![...this._choice.options].some((option) => option.value === baseline)) {
      this._choice.append(el('option', { value: baseline, text: `Baseline: ${name}` }));
    }
    this._choice.value = baseline ?? NO_BASELINE;
  }

  /** @param {import('../server/documents.js').ComparedSeries} row @returns {Row[]} */
  _resultRows({ name, goal, runs, own_names: own }) {
    const others = [...new Set(Object.values(own))];
    const joined = others.length ? `, includes ${others.join(', ')}` : '';
    /** @param {'best'|'last'} figure @param {string} title */
    const row = (figure, title) => ({
      title: `${title}${joined}`,
      cells: this._present.map(({ id }) => resultCell(runs[id], figure)),
    });
    return goal
      ? [row('best', `${name} (${goal === 'min' ? 'lowest' : 'highest'})`), row('last', `${name} (last)`)]
      : [row('last', name)];
  }

  /** @param {import('../server/documents.js').ComparedPhase} row @returns {Row} */
  _phaseRow({ title, runs }) {
    /**
     * @param {import('../server/documents.js').ComparedPhase['runs'][string]} figure
     * @returns {import('./cells.js').Cell}
     */
    const cell = (figure) =>
      figure
        ? {
            text: timeSpan(figure.seconds),
            title: `${exact(figure.seconds)} s, the mean of all ranks and steps`,
            change: changed(figure.change_percent),
            raw: figure.seconds,
          }
        : { text: UNKNOWN };
    return { title, cells: this._present.map(({ id }) => cell(runs[id])) };
  }

  /**
   * Runs are columns, or rows where there are many; groups are rows.
   * @param {import('./grouping.js').Group[]|null} groups
   * @param {[string, Row[]][]} parts
   */
  _drawn(parts, groups) {
    const heads = groups
      ? groups.map((group) => groupHead(group, this._colourOf(group.runs[0])))
      : this._present.map((run) => this._head(run));
    const rows = parts.flatMap(([, of]) => of);
    const isUpright = !groups && heads.length <= MOST_COLUMNS;
    const titles = isUpright ? heads : rows.map(({ title }) => el('span', { text: title }));
    const body = isUpright
      ? parts.flatMap(([name, of]) =>
          of.length
            ? [groupLine(name, heads.length + 1), ...of.map((row) => line(el('span', { text: row.title }), row.cells))]
            : [],
        )
      : heads.map((head, at) =>
          /** @param {HTMLElement} head @param {import('./cells.js').Cell[]} cells */
          line(
            head,
            rows.map(({ cells }) => cells[at]),
          ),
        );
    const top = el('tr', {}, el('td', {}), ...titles.map((title) => el('th', { scope: 'col' }, title)));
    const table = el('table', { 'aria-label': 'What differs' }, el('thead', {}, top), el('tbody', {}, ...body));
    return el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'What differs' }, table);
  }

  /** @param {ComparedRun} run */
  _head(run) {
    const link = el('a', { href: pageUrl(`run?id=${run.id}`), title: run.id, text: run.name || run.id });
    link.addEventListener('click', (event) => {
      this._leave = follow(event, link) ?? this._leave;
    });
    link.addEventListener('pointerenter', () => this._onPoint(run.id));
    link.addEventListener('pointerleave', () => this._onPoint(null));
    const isBase = run.id === this._document?.baseline;
    return el(
      'span',
      { class: 'run' },
      el('i', { 'data-colour': String(this._colourOf(run.id)) }),
      link,
      isBase ? el('small', { text: 'baseline' }) : null,
    );
  }
}

/** @param {{label: string}} group @param {number} colour */
function groupHead({ label }, colour) {
  return el(
    'span',
    { class: 'run' },
    el('i', { 'data-colour': String(colour) }),
    el('span', { text: label, title: label }),
  );
}

/**
 * Whether a row tells the runs apart; a single run has nobody to differ from.
 * @param {import('./cells.js').Cell[]} cells
 */
function differ(cells) {
  return cells.length === 1 || cells.some(({ raw }) => !Object.is(raw, cells[0].raw));
}

/** @param {string} name @param {number} columns */
function groupLine(name, columns) {
  return el('tr', {}, el('th', { scope: 'colgroup', colspan: columns, class: 'group', text: name }));
}

/** @param {HTMLElement} head @param {import('./cells.js').Cell[]} cells */
function line(head, cells) {
  return el('tr', {}, el('th', { scope: 'row' }, head), ...cells.map((cell) => drawnCell(cell)));
}
