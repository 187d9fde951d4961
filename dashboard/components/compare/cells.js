/**
 * The cells of the tables of a comparison: settings, results, means of groups, each with its change to the
 * baseline.
 */

import { el } from '../elements/elements.js';
import { change, count, exact, fromJson, number, plural, UNKNOWN } from '../elements/numbers.js';

/**
 * @typedef {{text: string, title?: string, raw?: any, spread?: number|'', change?: string}} Cell
 * `raw`: the value with all digits; `spread`: the standard deviation of a mean, '' of a single value;
 * `change`: that to the baseline
 */

/** A setting as text, with its exact value. @param {unknown} value @returns {Cell} */
export function settingCell(value) {
  if (value === null || value === undefined) return { text: UNKNOWN };
  if (typeof value === 'boolean') return { text: value ? 'on' : 'off' };
  if (typeof value === 'number') return { text: String(Number(value.toPrecision(6))), title: exact(value) };
  const text = Array.isArray(value) ? value.join(' ') : String(value);
  return { text: text || UNKNOWN, title: text };
}

/** The last or best value of a run. @param {any} result @param {'last'|'best'} figure @returns {Cell} */
export function resultCell(result, figure) {
  const value = fromJson(result?.[figure]);
  if (value === null || value === undefined) return { text: UNKNOWN };
  return {
    text: number(value, 4),
    title: `${exact(value)}, last step ${count(result.steps)}`,
    raw: value,
    change: changed(fromJson(result[`${figure}_change_percent`])),
  };
}

/**
 * The mean of some runs.
 * @param {number} mean
 * @param {number|null} spread
 * @param {number} runs
 * @param {number|null|undefined} percent
 * @returns {Cell}
 */
export function meanCell(mean, spread, runs, percent) {
  const title = `mean of ${plural(runs, 'run')}: ${mean}${spread === null ? '' : `, standard deviation ${spread}`}`;
  return { text: number(mean, 4), title, raw: mean, spread: spread ?? '', change: changed(percent) };
}

/** @param {Cell} cell */
export function drawnCell({ text, title, raw, spread, change: percent }) {
  const more = [spread ? `± ${number(spread, 2)}` : '', percent].filter(Boolean);
  return el(
    'td',
    { title, class: raw === undefined ? '' : 'number' },
    el('span', { text }),
    ...more.map((words) => el('small', { text: words })),
  );
}

/** A change in per cent as text; '' where there is none. @param {number|null|undefined} percent */
export function changed(percent) {
  return percent === null || percent === undefined ? '' : change(percent);
}
