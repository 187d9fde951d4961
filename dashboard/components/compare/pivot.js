/** Rows × columns: the mean and the spread of a result over the runs with the same values of two fields. */

import { choose, chosen } from '../elements/address.js';
import { el } from '../elements/elements.js';
import { changePercent, UNKNOWN } from '../elements/numbers.js';
import { copyButtons, drawnCell, meanCell } from './cells.js';
import { fieldSelect, fieldsOf, firstResult, textOf } from './fields.js';

/** @typedef {import('./fields.js').Field} Field */

export class Pivot {
  /** @type {Map<string, Field>} */
  _fields = new Map();
  /** @type {string[]} */
  _runs = [];
  /** @type {{titles: string[], lines: import('./grouping.js').Row[]}|undefined} */
  _shown;

  /** @param {HTMLElement} parent */
  constructor(parent) {
    /** @param {string} name @param {string} label @param {string|null} [none] */
    const select = (name, label, none) =>
      fieldSelect(
        label,
        (id) => {
          choose({ [name]: id });
          this._draw();
        },
        none,
      );
    this._selects = {
      rows: select('rows', 'Rows', 'Rows…'),
      columns: select('columns', 'Columns', 'Columns…'),
      result: select('result', 'Result in each cell'),
    };
    const { bar, copied } = copyButtons(() => this._shown);
    this._copies = el('span', { class: 'copies' }, copied, ...bar);
    this._table = el('div', {
      class: 'scroll',
      tabindex: 0,
      role: 'region',
      'aria-label': 'Rows and columns',
      hidden: true,
    });
    this._root = el(
      'section',
      { class: 'differences pivot', 'aria-label': 'Rows and columns of two fields', hidden: true },
      el(
        'div',
        { class: 'bar' },
        this._selects.rows.element,
        el('span', { text: '×' }),
        this._selects.columns.element,
        this._selects.result.element,
        el('span', { class: 'space' }),
        this._copies,
      ),
      this._table,
    );
    parent.append(this._root);
  }

  /** @param {import('../server/documents.js').Comparison} document of the comparison */
  show(document) {
    this._fields = fieldsOf(document);
    this._runs = document.runs;
    this._draw();
  }

  _draw() {
    const fields = this._fields;
    const settings = new Map([...fields].filter(([, { group }]) => group === 'Settings'));
    const result = fields.get(chosen('result') ?? '') ?? firstResult(fields);
    this._root.hidden = settings.size < 1 || !result || this._runs.length < 2;
    if (this._root.hidden || !result) return;
    const [rows, columns] = ['rows', 'columns'].map((name) => settings.get(chosen(name) ?? ''));
    this._selects.rows.offer(settings, rows?.id ?? '');
    this._selects.columns.offer(settings, columns?.id ?? '');
    this._selects.result.offer(fields, result.id);
    this._table.hidden = this._copies.hidden = !(rows && columns);
    if (rows && columns) this._show(rows, columns, result);
  }

  /** @param {Field} rows @param {Field} columns @param {Field} result */
  _show(rows, columns, result) {
    const heads = valuesOf(columns, this._runs);
    const lines = valuesOf(rows, this._runs).map((row) => ({
      title: `${rows.label} ${row}`,
      cells: heads.map((column) =>
        cellOf(
          this._runs
            .filter((run) => textOf(rows, run) === row && textOf(columns, run) === column)
            .map((run) => result.of.get(run)),
          result.base,
        ),
      ),
    }));
    const titles = heads.map((column) => `${columns.label} ${column}`);
    this._shown = { titles, lines };
    const head = el(
      'tr',
      {},
      el('td', { text: result.label }),
      ...titles.map((text) => el('th', { scope: 'col', text, title: text })),
    );
    const body = lines.map(({ title, cells }) =>
      el('tr', {}, el('th', { scope: 'row', text: title }), ...cells.map(drawnCell)),
    );
    this._table.replaceChildren(
      el(
        'table',
        { 'aria-label': `${result.label} by ${rows.label} and ${columns.label}` },
        el('thead', {}, head),
        el('tbody', {}, ...body),
      ),
    );
  }
}

/**
 * The distinct values of a field as text, numbers in their order.
 * @param {Field} field
 * @param {string[]} runs
 */
function valuesOf(field, runs) {
  const ordered = [...runs].sort((one, other) =>
    field.isNumber ? (field.of.get(one) ?? Infinity) - (field.of.get(other) ?? Infinity) : 0,
  );
  return [...new Set(ordered.map((run) => textOf(field, run)))];
}

/**
 * Mean and standard deviation, of the sample, of the finite values.
 * @param {any[]} values
 * @param {any} base the baseline's value
 */
function cellOf(values, base) {
  const finite = values.filter(Number.isFinite);
  if (!finite.length) return { text: UNKNOWN };
  const mean = finite.reduce((sum, value) => sum + value, 0) / finite.length;
  const spread =
    finite.length > 1
      ? Math.sqrt(finite.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (finite.length - 1))
      : null;
  return meanCell(mean, spread, finite.length, changePercent(mean, base));
}
