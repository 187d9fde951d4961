/** One setting of a run, as a cell of a table. */

import { exact, UNKNOWN } from '../elements/numbers.js';

/** A setting as text, with its exact value. */
export function settingCell(value) {
  if (value === null || value === undefined) return { text: UNKNOWN };
  if (typeof value === 'boolean') return { text: value ? 'on' : 'off' };
  if (typeof value === 'number') return { text: String(Number(value.toPrecision(6))), title: exact(value) };
  const text = Array.isArray(value) ? value.join(' ') : String(value);
  return { text: text || UNKNOWN, title: text };
}
