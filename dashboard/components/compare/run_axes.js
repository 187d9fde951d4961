/** The axes that runs of different batch sizes share: samples seen, and epochs. */

import { flattened, stretches } from '../charts/chart_lines.js';

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
