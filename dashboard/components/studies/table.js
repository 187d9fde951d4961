/** A table, such as of a study: heads that sort where its cells have values, links, and marks. */

import { el } from '../elements/elements.js';
import { pageUrl } from '../links/links.js';

/**
 * @typedef {{text: string, title?: string, address?: string|null, mark?: string, isHead?: boolean, value?: unknown}}
 *   Cell `address`: of a page of ours; `value`: what its column sorts by
 * @typedef {{cells: Cell[], kind?: string, item?: string}} Row
 * @typedef {{columns: {text: string, kind?: string}[], rows: Row[], isSortable?: boolean}} Table
 * @typedef {{column: number, isDown: boolean}} Order
 */

/** @param {Table} table @param {Order|null} order @param {(at: number) => void} onSort */
export function table({ columns, rows, isSortable }, order, onSort) {
  const heads = columns.map(({ text, kind }, at) => {
    const sort = order?.column !== at ? 'none' : order.isDown ? 'descending' : 'ascending';
    if (!isSortable) return el('th', { scope: 'col', class: kind, text });
    return el(
      'th',
      { scope: 'col', class: kind, 'aria-sort': sort },
      sorting(text, sort, () => onSort(at)),
    );
  });
  const lines = (isSortable ? sorted(rows, order) : rows).map(({ cells, kind, item }) =>
    el('tr', { class: kind, 'data-item': item }, ...cells.map((cell, at) => drawn(cell, columns[at].kind))),
  );
  return el('table', {}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...lines));
}

/** @param {string} text @param {'ascending'|'descending'|'none'} sort @param {() => void} onclick */
function sorting(text, sort, onclick) {
  const mark = { ascending: ' ▲', descending: ' ▼', none: '' }[sort];
  return el(
    'button',
    { type: 'button', 'aria-label': `Sort by ${text}`, onclick },
    el('span', { text }),
    el('i', { 'aria-hidden': 'true', text: mark }),
  );
}

/** @param {Cell} cell @param {string|undefined} kind */
function drawn({ text, title, address, mark, isHead }, kind) {
  if (isHead) return el('th', { scope: 'row', text });
  const content = address ? el('a', { text, href: pageUrl(address) }) : el('span', { text });
  return el('td', { class: kind, title }, content, mark ? el('em', { class: mark, text: mark }) : null);
}

/** Rows without a value come last, either way. @param {Row[]} rows @param {Order|null} order */
export function sorted(rows, order) {
  if (!order) return rows;
  /** @param {Row} row */
  const value = (row) => /** @type {any} */ (row.cells[order.column].value);
  /** @param {Row} row */
  const isMissing = (row) => value(row) === null || value(row) === undefined;
  /** @param {Row} one @param {Row} other */
  const upwards = (one, other) => (value(one) < value(other) ? -1 : Number(value(one) > value(other)));
  const present = rows.filter((row) => !isMissing(row));
  present.sort((one, other) => (order.isDown ? -1 : 1) * upwards(one, other));
  return [...present, ...rows.filter(isMissing)];
}
