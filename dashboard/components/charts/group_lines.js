/** The mean of a group of curves, with its band of one standard deviation. */

import { firstAtLeast, smoothed } from './chart_lines.js';

/** With more places than these, the mean is drawn at evenly spaced ones. */
const MOST_PLACES = 500;

/**
 * @typedef {{x: ArrayLike<number>, y: ArrayLike<number>, count: number}} Curve
 * @param {Curve[]} curves of the runs of one group, x ascending
 * @param {{from: number, to: number}|null} window null for all
 * @param {{weight: number, onlyPositive: boolean}} how
 * @returns {{x: number[], raw: (number|null)[], low: (number|null)[], high: (number|null)[]}}
 */
export function groupLine(curves, window, { weight, onlyPositive }) {
  const finite = curves.map((curve) => calmed(finitePoints(curve), weight)).filter(({ count }) => count);
  const x = places(finite, window);
  /** @type {{x: number[], raw: (number|null)[], low: (number|null)[], high: (number|null)[]}} */
  const line = { x, raw: [], low: [], high: [] };
  for (const at of x) {
    const values = finite
      .map((curve) => valueAt(curve, at))
      .filter((value) => value !== null)
      .filter((value) => !(onlyPositive && value <= 0));
    const { mean, spread } = summary(values);
    line.raw.push(mean);
    line.high.push(mean === null ? null : mean + spread);
    // A logarithmic axis has no place for what lies below zero.
    line.low.push(mean === null ? null : onlyPositive && mean - spread <= 0 ? Math.min(...values) : mean - spread);
  }
  return line;
}

/**
 * The points of a curve that are numbers.
 * @param {Curve} curve
 * @returns {{x: number[], y: number[], count: number}}
 */
export function finitePoints({ x, y, count }) {
  const kept = [];
  for (let i = 0; i < count; i++) if (Number.isFinite(y[i])) kept.push(i);
  return { x: kept.map((i) => x[i]), y: kept.map((i) => y[i]), count: kept.length };
}

/** @param {Curve} curve @param {number} weight */
function calmed(curve, weight) {
  return weight > 0 ? { ...curve, y: smoothed(curve.y, curve.count, weight) } : curve;
}

/**
 * The places of all curves inside the window, or evenly spaced ones where these are too many.
 * @param {Curve[]} curves
 * @param {{from: number, to: number}|null} window
 */
function places(curves, window) {
  const { from, to } = window ?? { from: -Infinity, to: Infinity };
  const all = [...new Set(curves.flatMap(({ x }) => Array.from(x)))]
    .filter((at) => at >= from && at <= to)
    .sort((a, b) => a - b);
  if (all.length <= MOST_PLACES) return all;
  const [first, last] = [all[0], all[all.length - 1]];
  return Array.from({ length: MOST_PLACES }, (_, i) => first + ((last - first) * i) / (MOST_PLACES - 1));
}

/**
 * The value between the two nearest points; null before the first and after the last.
 * @param {Curve} curve
 * @param {number} at
 * @returns {number|null}
 */
export function valueAt({ x, y, count }, at) {
  const after = firstAtLeast(x, count, at);
  if (after === count || (after === 0 && x[0] > at)) return null;
  if (x[after] === at) return y[after];
  const share = (at - x[after - 1]) / (x[after] - x[after - 1]);
  return y[after - 1] + share * (y[after] - y[after - 1]);
}

/** @param {number[]} values */
function summary(values) {
  if (!values.length) return { mean: null, spread: 0 };
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, spread: values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : 0 };
}
