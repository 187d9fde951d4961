import assert from 'node:assert/strict';
import { test } from 'node:test';
import { refined } from '../../../../dashboard/components/charts/chart_detail.js';
import { Columns } from '../../../../dashboard/components/live/series_store.js';

/** @param {Record<number, number[]>} steps of each attempt; each value is its step and a half */
const series = (steps) => ({
  name: 'loss',
  source: 'events',
  version: 0,
  attempts: new Map(
    Object.entries(steps).map(([attempt, at]) => {
      const columns = new Columns();
      for (const step of at) columns.push(step, step + 0.5, step * 10);
      return [Number(attempt), columns];
    }),
  ),
});

/** @param {import('../../../../dashboard/components/live/series_store.js').Series} of @param {number} attempt */
const steps = ({ attempts }, attempt) => {
  const columns = attempts.get(attempt);
  return columns && [...columns.step.subarray(0, columns.count)];
};

test('finer points take the place of those of their window, and what lies outside stays', () => {
  const known = series({ 1: [0, 10, 20, 30, 40, 50], 2: [60, 70] });
  const finer = refined(known, series({ 1: [10, 15, 20, 25, 30] }));
  assert.deepEqual(steps(finer, 1), [0, 10, 15, 20, 25, 30, 40, 50]);
  assert.deepEqual(steps(finer, 2), [60, 70]);
  assert.equal(finer.attempts.get(1)?.value[2], 15.5);
  assert.deepEqual(steps(known, 1), [0, 10, 20, 30, 40, 50]);
});

test('points that arrive later go on behind the finer ones', () => {
  const known = series({ 1: [0, 10, 20] });
  const finer = series({ 1: [10, 15, 20] });
  known.attempts.get(1)?.push(30, 30.5, 300);
  assert.deepEqual(steps(refined(known, finer), 1), [0, 10, 15, 20, 30]);
});

test('where a script went back to earlier steps, its finer points stand alone', () => {
  const known = series({ 1: [0, 10, 20, 5, 10] });
  assert.deepEqual(steps(refined(known, series({ 1: [5, 8, 10] })), 1), [5, 8, 10]);
});
