import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  columnsOf,
  DEFAULT_KEYS,
  isNumeric,
  proposed,
  usualKeys,
  valueText,
} from '../../../../dashboard/components/runs/columns.js';

/** @param {string[]|null} keys */
const keysOf = (keys) => columnsOf(keys).map(({ key }) => key);

test('the usual columns stand where none were chosen', () => {
  assert.deepEqual(keysOf(null), ['pick', ...DEFAULT_KEYS]);
});

test('the name, which is the link, is never missing', () => {
  assert.deepEqual(keysOf(['loss', 'lr']), ['pick', 'name', 'loss', 'lr']);
  assert.deepEqual(keysOf(['loss', 'name']), ['pick', 'loss', 'name']);
});

test('a column that somebody added is sorted by its field', () => {
  const column = columnsOf(['best:val/loss'])[2];
  assert.deepEqual(
    [column.title, column.sort, column.isAdded, column.isNumber],
    ['best:val/loss', 'best:val/loss', true, true],
  );
});

test('the best of a metric stands before the loss, and its head sorts the best first', () => {
  const metrics = [{ key: 'best:val/loss', first: 1 }];
  const keys = usualKeys(false, metrics);
  assert.deepEqual(keys.slice(keys.indexOf('step'), keys.indexOf('curve')), ['step', 'best:val/loss', 'loss']);
  assert.equal(columnsOf(keys, metrics).find(({ key }) => key === 'best:val/loss')?.first, 1);
  assert.deepEqual(usualKeys(false), DEFAULT_KEYS);
});

test('proposals begin with the usual columns, each once', () => {
  assert.deepEqual(proposed('LOSS', ['val/loss', 'loss']), ['loss', 'curve', 'val/loss']);
  assert.deepEqual(proposed('zebra', ['zebra']), ['zebra']);
});

test('a value is written as its kind asks', () => {
  assert.deepEqual(valueText(null, 'number', 0), ['–', null]);
  assert.deepEqual(valueText(1200, 'number', 0), ['1\u202f200', '1200']);
  assert.deepEqual(valueText('NaN', 'series', 0), ['NaN', 'NaN']);
  assert.deepEqual(valueText(0.5, 'series', 0, -12.3)[0], '0.5 −12 %');
  assert.deepEqual(valueText(90, 'duration', 0), ['00:01:30', null]);
  assert.equal(valueText(100, 'time', 140)[0], '40 s ago');
  assert.deepEqual(valueText(true, 'yes or no', 0), ['yes', null]);
  assert.deepEqual(['number', 'time', 'text', 'name'].map(isNumeric), [true, true, false, false]);
});
