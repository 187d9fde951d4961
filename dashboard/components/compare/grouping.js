/** Runs with the same settings as one group: which fields divide them, and the mean and spread of their results. */

import { choose, chosen } from '../elements/address.js';
import { el } from '../elements/elements.js';
import { fromJson, UNKNOWN } from '../elements/numbers.js';
import { meanCell, settingCell } from './cells.js';

/** @typedef {{key: string, label: string, runs: string[]}} Group */
/** @typedef {{title: string, cells: import('./cells.js').Cell[]}} Row */
/** @typedef {{field: string, label: string}} Difference a field in which runs differ */
/** What is asked for where all runs are one group: the name of no field, so that nothing divides them. */
const ALL = 'all';
/** What chance or the machine decides: runs that differ in these alone are repetitions. */
const REPEATED = /^(seed|state|reason|nodes_used|args\..*seed)$/;

export class Grouping {
  /** @type {Difference[]} */
  _differences = [];
  _offered = '';

  /** @param {() => void} onChange */
  constructor(onChange) {
    /** @type {string[]} */
    this.fields = (chosen('group') ?? '').split(',').filter(Boolean);
    this._fields = el('select', { onchange: () => this._choose(this._fields.value, onChange) });
    this.element = el(
      'label',
      { class: 'grouping', title: 'Draw the mean of runs in a band of one standard deviation' },
      el('span', { text: 'Average the runs' }),
      this._fields,
    );
    this.offer([]);
  }

  /**
   * Offer the fields in which runs differ, and all of them but seeds together.
   * @param {Difference[]} differences
   */
  offer(differences) {
    this._differences = differences;
    const settings = differences.map(({ field }) => field).filter((field) => !REPEATED.test(field));
    const offered = [['', 'no'], [ALL, 'all'], ...differences.map(({ field, label }) => [field, `by ${label}`])];
    if (settings.length > 1) offered.push([settings.join(','), 'by all settings but the seed']);
    const current = this.fields.join(',');
    if (!offered.some(([value]) => value === current)) offered.push([current, `by ${current}`]);
    const written = JSON.stringify(offered);
    if (written !== this._offered)
      this._fields.replaceChildren(...offered.map(([value, text]) => el('option', { value, text })));
    this._offered = written;
    this._fields.value = current;
  }

  /**
   * The groups of an answer, named after their values; null without any.
   * @param {import('../server/documents.js').Comparison} document of the comparison
   * @returns {Group[]|null}
   */
  groups({ groups, differences }) {
    if (!groups || !this.fields.length) return null;
    const labels = new Map(differences.map((/** @type {Difference} */ { field, label }) => [field, label]));
    return groups.map((/** @type {{values: object, runs: string[]}} */ { values, runs }) => {
      const parts = Object.entries(values).map(
        ([field, value]) => `${labels.get(field) ?? field} ${settingCell(value).text}`,
      );
      return { key: JSON.stringify(values), label: parts.join(', ') || 'All runs', runs };
    });
  }

  /** @param {string} fields @param {() => void} onChange */
  _choose(fields, onChange) {
    this.fields = fields.split(',').filter(Boolean);
    this.offer(this._differences);
    choose({ group: this.fields.join(',') });
    onChange();
  }
}

/**
 * How many runs each group has, then the mean and the spread of each result.
 * @param {import('../server/documents.js').Comparison} document
 * @param {Group[]} groups
 * @returns {Row[]}
 */
export function groupRows({ series }, groups) {
  const results = series.flatMap(({ name, goal, groups: of = [] }) => {
    /** @param {'best'|'last'} figure @param {string} title */
    const row = (figure, title) => ({
      title,
      cells: of.map((group) => summaryCell(group[figure])),
    });
    return goal
      ? [row('best', `${name} (${goal === 'min' ? 'lowest' : 'highest'})`), row('last', `${name} (last)`)]
      : [row('last', name)];
  });
  return [
    { title: 'Runs', cells: groups.map(({ runs }) => ({ text: String(runs.length), raw: runs.length })) },
    ...results,
  ];
}

/** @param {import('../server/documents.js').Summary|null} summary @returns {import('./cells.js').Cell} */
function summaryCell(summary) {
  if (!summary) return { text: UNKNOWN };
  const { mean, spread, change_percent: percent } = summary;
  return meanCell(Number(fromJson(mean)), fromJson(spread) ?? null, summary.count, fromJson(percent));
}
