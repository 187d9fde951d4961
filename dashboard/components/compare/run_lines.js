/**
 * Curves of runs that stand together: the mean of a group with its band of one standard deviation, and the axes that
 * runs of different batch sizes share, samples seen and epochs.
 */

import { firstAtLeast, flattened, smoothed, stretches } from '../charts/chart_lines.js';

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

/**
 * An attempt's steps: how many samples were seen at `start`.
 * @typedef {{attempt: number, batch: number, start: number, seen: number}} Part
 */

export const EPOCH_NAMES = ['train/epoch', 'epoch', 'printed/train/epoch', 'printed/epoch'];

/**
 * The samples that a run has seen after a step: each step of an attempt counts its global batch.
 * @param {{attempt: number, global_batch: number|null, first_step: number|null}[]} batches
 * @returns {((attempt: number, step: number) => number)|null} null where a batch is not known
 */
export function samplesAxis(batches) {
  if (!batches.length || batches.some(({ global_batch }) => global_batch === null)) return null;
  /** @type {Part[]} */
  const parts = [];
  for (const { attempt, global_batch: batch, first_step } of [...batches].sort(
    (one, other) => one.attempt - other.attempt,
  )) {
    const before = parts.at(-1);
    const start = before && first_step !== null ? first_step - 1 : 0;
    parts.push({ attempt, batch: Number(batch), start, seen: before ? samplesAt(before, start) : 0 });
  }
  const byAttempt = new Map(parts.map((part) => [part.attempt, part]));
  return (attempt, step) => samplesAt(byAttempt.get(attempt) ?? parts[parts.length - 1], step);
}

/** @param {Part} part @param {number} step */
function samplesAt({ batch, start, seen }, step) {
  return seen + (step - start) * batch;
}

/**
 * The epoch at a step, between the steps at which the script logged another one; a script may log it as a
 * whole number.
 * @param {import('../live/series_store.js').Series|undefined} series of epochs
 * @returns {((attempt: number, step: number) => number)|null} null where the series says too little
 */
export function epochAxis(series) {
  if (!series) return null;
  const { x, y, count } = flattened(stretches(series.attempts), null);
  /** @type {[number, number][]} */
  const knots = [];
  for (let i = 0; i < count; i++) {
    if (Number.isFinite(y[i]) && (!knots.length || y[i] > knots[knots.length - 1][1])) knots.push([x[i], y[i]]);
  }
  if (knots.length === 1 && knots[0][0] > 0 && knots[0][1] > 0) knots.unshift([0, 0]);
  return knots.length < 2 ? null : (_, step) => between(knots, step);
}

/**
 * On the line through the knots around the step; through the first or the last two outside of them.
 * @param {[number, number][]} knots
 * @param {number} step
 */
function between(knots, step) {
  let [low, high] = [0, knots.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (knots[middle][0] <= step) low = middle;
    else high = middle;
  }
  const [[x, y], [nextX, nextY]] = [knots[low], knots[high]];
  return y + ((step - x) * (nextY - y)) / (nextX - x || 1);
}
