/** Axes of plots over fields: linear, logarithmic, or the values of a list at equal distances. */

import { number } from '../elements/numbers.js';

const [MOST_MARKS, LONGEST_MARK] = [12, 12];

/** @typedef {'linear'|'log'|'list'} Kind */
/**
 * @typedef {{name: string, kind: Kind, share: (value: any) => number|null, marks: [string, number][], ends:
 *   [string, number][]}} Axis
 * `share` is a value's place from 0 to 1, null where it has none; `marks` are a few values as text with their
 * places, `ends` the lowest and the highest, of a list as many as can be read
 */

/** @param {number[]} values @returns {[number, number]} */
export function bounds(values) {
  const low = values.reduce((one, other) => Math.min(one, other), Infinity);
  const high = values.reduce((one, other) => Math.max(one, other), -Infinity);
  return low === high ? [low - Math.abs(low || 1) / 2, high + Math.abs(high || 1) / 2] : [low, high];
}

/**
 * @param {[number, number]} ends
 * @param {[number, number]} room
 * @param {boolean} [isLog]
 * @returns {(value: number) => number}
 */
export function scale([low, high], [from, to], isLog) {
  const by = isLog ? Math.log10 : (/** @type {number} */ value) => value;
  return (value) => from + ((to - from) * (by(value) - by(low))) / (by(high) - by(low));
}

/**
 * A few round values between the bounds; powers of ten on a logarithmic scale.
 * @param {[number, number]} ends
 * @param {boolean} [isLog]
 */
export function ticks([low, high], isLog) {
  if (isLog) {
    const first = Math.ceil(Math.log10(low));
    const last = Math.floor(Math.log10(high));
    const step = Math.max(1, Math.ceil((last - first) / 5));
    return Array.from(
      { length: Math.max(0, Math.floor((last - first) / step) + 1) },
      (_, at) => 10 ** (first + at * step),
    );
  }
  const raw = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw) ?? raw;
  const begin = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - begin + 1 }, (_, at) => (begin + at) * step);
}

/** Whether values are drawn on a logarithmic axis where nobody chose. @param {any[]} values */
export function isWide(values) {
  const [low, high] = bounds(values.filter(Number.isFinite));
  return low > 0 && high / low > 100;
}

/**
 * @param {string} name
 * @param {Kind} kind
 * @param {any[]} values those that stand on it, missing ones among them
 * @returns {Axis}
 */
export function axis(name, kind, values) {
  const present = values.filter((value) => value !== null && value !== undefined);
  return kind === 'list' ? listed(name, present) : continuous(name, kind, present.filter(Number.isFinite));
}

/** @param {string} name @param {any[]} present @returns {Axis} */
function listed(name, present) {
  /** @param {any} one @param {any} other */
  const both = (one, other) => typeof one === 'number' && typeof other === 'number';
  const values = [...new Set(present)].sort((one, other) => (both(one, other) ? one - other : 0));
  /** @param {any} value */
  const at = (value) => (values.length > 1 ? values.indexOf(value) / (values.length - 1) : 0.5);
  const marked = values.length > MOST_MARKS ? [values[0], values[values.length - 1]] : values;
  /** @type {[string, number][]} */
  const marks = marked.map((value) => [short(value), at(value)]);
  return {
    name,
    kind: 'list',
    marks,
    ends: marks,
    share: (value) => (values.includes(value) ? at(value) : null),
  };
}

/** @param {string} name @param {Kind} kind @param {number[]} values @returns {Axis} */
function continuous(name, kind, values) {
  const ends = bounds(values.length ? values : [0]);
  const isLog = kind === 'log' && ends[0] > 0;
  const place = scale(ends, [0, 1], isLog);
  /** @param {number[]} values @returns {[string, number][]} */
  const marked = (values) => values.map((value) => [number(value, 3), place(value)]);
  const round = ticks(ends, isLog);
  const isOne = values.length > 0 && values.every((value) => value === values[0]);
  return {
    name,
    kind: isLog ? 'log' : 'linear',
    share: (value) => (Number.isFinite(value) ? place(value) : null),
    marks: marked(round.length > 1 ? round : ends),
    ends: marked(isOne ? [values[0]] : ends),
  };
}

/** @param {any} value */
function short(value) {
  const text = typeof value === 'number' ? number(value, 3) : String(value);
  return text.length > LONGEST_MARK ? `${text.slice(0, LONGEST_MARK - 1)}…` : text;
}
