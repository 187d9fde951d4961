import assert from 'node:assert/strict';
import { test } from 'node:test';
import { epochAxis, samplesAxis } from '../../../../dashboard/components/compare/run_axes.js';
import { Columns } from '../../../../dashboard/components/live/series_store.js';

/** @param {number[]} steps @param {number[]} epochs */
function series(steps, epochs) {
  const columns = Columns.of(Float64Array.from(steps), Float64Array.from(epochs), Float64Array.from(steps), null);
  return { name: 'epoch', source: 'events', version: 1, attempts: new Map([[1, columns]]) };
}

/** @param {number} attempt @param {number|null} batch @param {number} first */
const batch = (attempt, batch, first) => ({ attempt, global_batch: batch, first_step: first });

test('each step counts the global batch of its attempt', () => {
  const samples = samplesAxis([batch(2, 10, 101), batch(1, 8, 1)]);
  assert.ok(samples);
  assert.deepEqual([samples(1, 10), samples(1, 100), samples(2, 101), samples(2, 106)], [80, 800, 810, 860]);
  assert.equal(samplesAxis([batch(1, null, 1)]), null);
});

test('epochs that were logged as whole numbers stand between their steps', () => {
  const epoch = epochAxis(series([0, 1, 10, 11, 20], [0, 0, 1, 1, 2]));
  assert.ok(epoch);
  assert.deepEqual(
    [5, 10, 15, 40].map((step) => epoch(1, step)),
    [0.5, 1, 1.5, 4],
  );
  assert.equal(epochAxis(series([0, 5], [0, 0])), null);
  assert.equal(epochAxis(undefined), null);
});
