import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Columns, repeatsOf, SeriesStore } from '../../../../dashboard/components/live/series_store.js';

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

test('a later life of the script is noticed, and is none where one file goes back', () => {
  const store = new SeriesStore();
  store.apply(loss([1, 1, 1], [2, 1, 2]));
  store.apply(loss([1, 1, 3]));
  assert.equal(store.hasReplaced(), false);
  store.apply({ loss: { points: [[1, 1, 4]], begins_life: true } });
  assert.equal(store.hasReplaced(), true);
});

test('points that repeat a step are counted, also those that the first picture leaves out', () => {
  const store = new SeriesStore();
  const repeats = () => repeatsOf(/** @type {any} */ (store.series.get('loss')));
  store.apply({
    loss: {
      points: [
        [1, 1, 1],
        [9, 1, 9],
      ],
      reset: true,
      logged: 90,
      repeats: 80,
    },
  });
  assert.deepEqual(repeats(), { repeats: 80, logged: 90 });
  store.apply(loss([9, 1, 10], [4, 1, 11], [10, 1, 12]));
  assert.deepEqual(repeats(), { repeats: 82, logged: 93 });
  store.apply({
    loss: {
      points: [
        [1, 1, 20],
        [2, 1, 21],
      ],
      begins_life: true,
    },
  });
  assert.deepEqual(repeats(), { repeats: 82, logged: 95 });
  store.apply({
    'hardware/cpu': {
      source: 'hardware',
      points: [
        [0, 1, 1],
        [0, 2, 2],
      ],
    },
  });
  assert.equal(repeatsOf(/** @type {any} */ (store.series.get('hardware/cpu'))).repeats, 0);
});

test('a page open for days keeps the place where a life begins', () => {
  const columns = new Columns();
  for (let step = 0; step < 40_000; step++) columns.push(step, 1, step);
  columns.beginLife();
  for (let step = 0; step < 40_000; step++) columns.push(step, 2, 40_000 + step);
  assert.equal(columns.value[columns.lives[0]], 2);
  assert.equal(columns.value[columns.lives[0] - 1], 1);
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
  assert.deepEqual([columns.sorted, columns.repeats, columns.lastNumber, columns.count], [false, 1, 6, 3]);
});
