import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Columns, SeriesStore } from '../../../../dashboard/components/live/series_store.js';

/** @param {...[number, number|string, number]} points step, value and wall time */
const loss = (...points) => ({ loss: { points } });

/** @param {SeriesStore} store @param {number} [attempt] */
function stepsOf(store, attempt = 1) {
  const columns = store.series.get('loss')?.attempts.get(attempt);
  return columns ? [...columns.step.subarray(0, columns.count)] : [];
}

test('points are appended, and each message names what it changed', () => {
  const store = new SeriesStore();
  assert.deepEqual(store.apply(loss([1, 0.5, 10], [2, 0.4, 11])), new Set(['loss']));
  store.apply(loss([3, 0.3, 12]));
  assert.deepEqual(stepsOf(store), [1, 2, 3]);
});

test('after a lost connection only newer points are added', () => {
  const store = new SeriesStore();
  store.apply(loss([1, 0.5, 10], [2, 0.4, 11]));
  assert.deepEqual(store.seen(), { '1:events:loss': 11 });
  store.apply(loss([1, 0.5, 10], [2, 0.4, 11], [3, 0.3, 12]));
  store.apply(loss([3, 0.3, 12])); // only the first message may repeat
  assert.deepEqual(stepsOf(store), [1, 2, 3, 3]);
});

test('a reset begins anew, and another attempt has points of its own', () => {
  const store = new SeriesStore();
  store.apply(loss([1, 0.5, 10]));
  store.apply({ loss: { attempt: 2, points: [[5, 0.2, 20]] } });
  store.apply({ loss: { reset: true, points: [[7, 0.1, 30]] } });
  assert.deepEqual([stepsOf(store, 1), stepsOf(store, 2), store.attempts()], [[7], [5], [1, 2]]);
});

test('what is seen is asked for by the name that the source gave', () => {
  const store = new SeriesStore();
  store.apply({
    'printed/loss': { source: 'printed', points: [[1, 1, 10]] },
    other: { points: [[1, 1, 11]] },
  });
  assert.deepEqual(store.seen(['printed/loss']), { '1:printed:loss': 10 });
  assert.equal(new SeriesStore().seen(), null);
});

test('values that are no numbers are told since their first step', () => {
  const columns = new Columns();
  columns.push(1, 0.5, 1);
  for (const step of [2, 3]) columns.push(step, Number.NaN, step);
  assert.deepEqual([columns.notFiniteSince, columns.lastNumber], [2, 0.5]);
  columns.push(4, Infinity, 4);
  assert.equal(columns.notFiniteSince, 4);
  columns.push(5, 0.25, 5);
  assert.deepEqual([columns.notFiniteSince, columns.lastNumber], [null, 0.25]);
});

test('a script that goes back to an earlier step is noticed', () => {
  const store = new SeriesStore();
  store.apply(loss([1, 1, 1], [2, 1, 2]));
  assert.equal(store.hasReplaced(), false);
  store.apply(loss([1, 1, 3]));
  assert.equal(store.hasReplaced(), true);
});

test('a page open for days keeps the newer half and the peaks of the older', () => {
  const columns = new Columns();
  for (let step = 0; step < 200_000; step++) columns.push(step, step === 1234 ? 99 : Math.sin(step), step);
  const values = columns.value.subarray(0, columns.count);
  assert.ok(columns.count <= 131_072 && values.includes(99));
  assert.deepEqual([...columns.step.subarray(columns.count - 2, columns.count)], [199_998, 199_999]);
});

test('columns that are taken over know their order', () => {
  const columns = Columns.of(Float64Array.of(1, 3, 2), Float64Array.of(5, NaN, 6), Float64Array.of(1, 2, 3), null);
  assert.deepEqual([columns.sorted, columns.hasReplaced, columns.lastNumber, columns.count], [false, true, 6, 3]);
});
