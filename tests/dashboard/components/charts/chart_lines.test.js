import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  drawable,
  firstAtLeast,
  flattened,
  replacedByLives,
  smoothed,
  stretches,
  thinned,
  timeOrigins,
} from '../../../../dashboard/components/charts/chart_lines.js';
import { Columns } from '../../../../dashboard/components/live/series_store.js';

/** @param {number[]} steps @param {number[]} [values] @param {number[]} [walls] */
const columns = (steps, values = steps, walls = steps) =>
  Columns.of(Float64Array.from(steps), Float64Array.from(values), Float64Array.from(walls), null);

test('smoothing keeps a constant and is corrected for its start', () => {
  for (const value of smoothed([3, 3, 3], 3, 0.9)) assert.ok(Math.abs(value - 3) < 1e-12);
  assert.ok(Math.abs(smoothed([2, 4], 2, 0.5)[1] - (0.5 * 4 + 0.25 * 2) / 0.75) < 1e-12);
  assert.deepEqual([...smoothed([2, NaN, 2], 3, 0.5)], [2, NaN, 2]);
});

test('thinning keeps peaks and gaps', () => {
  const x = Array.from({ length: 10_000 }, (_, i) => i);
  const y = x.map((i) => (i === 5003 ? 99 : i === 7001 ? NaN : Math.sin(i)));
  const kept = thinned(x, y, 0, 10_000, 500);
  assert.ok(kept.includes(5003) && kept.includes(7001) && kept.length <= 1100);
  assert.deepEqual(
    kept,
    [...kept].sort((a, b) => a - b),
  );
});

test('thinned points stay where they are while others arrive', () => {
  const x = Array.from({ length: 9000 }, (_, i) => i);
  const before = thinned(x.slice(0, 8500), x, 0, 8500, 500);
  const now = new Set(thinned(x, x, 0, 9000, 500));
  assert.deepEqual(
    before.slice(0, -2).filter((i) => !now.has(i)),
    [],
  );
});

test('pauses between attempts are no training time', () => {
  const origins = timeOrigins(
    new Map([
      [2, [1000, 1010]],
      [1, [100, 160]],
    ]),
  );
  assert.deepEqual(
    [...origins],
    [
      [1, 100],
      [2, 940],
    ],
  );
});

/** @param {...number[]} lives steps of each */
const inLives = (...lives) => {
  const own = new Columns();
  for (const steps of lives) {
    own.beginLife();
    for (const step of steps) own.push(step, step, own.count);
  }
  return own;
};

test('a later life of the script replaces points, a step that one life repeats does not', () => {
  assert.deepEqual([...replacedByLives(inLives([0, 1, 2, 3], [1, 2]))], [0, 1, 1, 1, 0, 0]);
  assert.deepEqual([...replacedByLives(inLives([0, 1, 2, 3], [2, 3], [1]))], [0, 1, 1, 1, 1, 1, 0]);
  assert.deepEqual([...replacedByLives(inLives([1, 3, 2, 3, 1]))], [0, 0, 0, 0, 0]);
  const { y } = flattened(stretches(new Map([[1, inLives([0, 1, 1, 2], [2, 3])]])), null);
  assert.deepEqual(Array.from(y), [0, 1, 1, 2, 3]);
});

test('points that share a step stand in the order of logging, over all attempts', () => {
  const attempts = new Map([
    [1, inLives([0, 0, 0])],
    [2, inLives([1, 1])],
  ]);
  const { x, y, boundaries } = flattened(stretches(attempts), 'order');
  assert.deepEqual([x, y, boundaries], [[0, 1, 2, 3, 4], [0, 0, 0, 1, 1], [[3, 2]]]);
});

test('a newer attempt replaces what follows its first step', () => {
  const attempts = new Map([
    [1, columns([1, 2, 3, 4])],
    [2, columns([3, 4, 5], [30, 40, 50])],
  ]);
  const { x, y, count, boundaries } = flattened(stretches(attempts), null);
  assert.deepEqual(
    [Array.from(x), Array.from(y), count, boundaries],
    [[1, 2, 3, 4, 5], [1, 2, 30, 40, 50], 5, [[3, 2]]],
  );
  const old = flattened(stretches(attempts), null, true);
  assert.deepEqual(
    [Array.from(old.x), Array.from(old.y)],
    [
      [3, 4],
      [3, 4],
    ],
  );
});

test('points stand at their time of training, in order', () => {
  const attempts = new Map([
    [1, columns([1, 2], [1, 2], [101, 110])],
    [2, columns([3], [3], [205])],
  ]);
  const origins = timeOrigins(
    new Map([
      [1, [100, 110]],
      [2, [200, 210]],
    ]),
  );
  assert.deepEqual(Array.from(flattened(stretches(attempts), origins).x), [1, 10, 15]);
});

test('a window is drawn with a neighbour on each side', () => {
  const steps = [0, 1, 2, 3, 4, 5];
  const flat = { x: steps, y: [1, -1, NaN, 2, 3, 4], count: 6, boundaries: [] };
  const line = drawable(flat, { from: 2, to: 3 }, { buckets: 100, weight: 0, onlyPositive: true });
  assert.deepEqual([line.x, line.raw, line.smooth], [[1, 2, 3, 4], [null, null, 2, 3], null]);
});

test('the first place at or after a value is found', () => {
  assert.deepEqual(
    [0, 2, 2.5, 9].map((value) => firstAtLeast([1, 2, 3], 3, value)),
    [0, 1, 2, 3],
  );
});
