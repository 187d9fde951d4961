import assert from 'node:assert/strict';
import { test } from 'node:test';
import { axis, bounds, isWide, ticks } from '../../../../dashboard/components/plots/axes.js';

test('equal values get room on both sides', () => {
  assert.deepEqual(
    [bounds([4, 4]), bounds([0, 0]), bounds([1, 3, 2])],
    [
      [2, 6],
      [-0.5, 0.5],
      [1, 3],
    ],
  );
});

test('marks are round', () => {
  assert.deepEqual(ticks([0, 10], false), [0, 5, 10]);
  assert.deepEqual(ticks([0.001, 10], true), [0.001, 0.01, 0.1, 1, 10]);
});

test('values over more than two powers of ten are drawn on a logarithmic axis', () => {
  assert.deepEqual(
    [
      [1, 101],
      [1, 100],
      [-1, 1000],
    ].map(isWide),
    [true, false, false],
  );
});

test('a place on an axis is a share of its length', () => {
  const log = axis('lr', 'log', [0.001, 0.1, null]);
  assert.deepEqual([log.share(0.001), log.share(0.1), log.share(null)], [0, 1, null]);
  assert.ok(Math.abs(Number(log.share(0.01)) - 0.5) < 1e-9);
  assert.equal(axis('lr', 'log', [0, 1]).kind, 'linear');
});

test('the values of a list stand at equal distances, numbers in order', () => {
  const list = axis('batch', 'list', [64, 8, 16, 8]);
  assert.deepEqual(list.marks, [
    ['8', 0],
    ['16', 0.5],
    ['64', 1],
  ]);
  assert.equal(list.share(32), null);
  assert.deepEqual(axis('one', 'list', ['a']).marks, [['a', 0.5]]);
});
