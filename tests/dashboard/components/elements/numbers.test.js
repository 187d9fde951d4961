import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import * as numbers from '../../../../dashboard/components/elements/numbers.js';

/** Values with their texts, as the server writes them too. */
const words = JSON.parse(readFileSync(new URL('../../../domain/text/number_words.json', import.meta.url), 'utf-8'));
/** @type {Record<string, (value: any) => string>} */
const WRITERS = {
  number: numbers.number,
  count: numbers.count,
  learning_rate: numbers.learningRate,
  duration: numbers.duration,
  size: numbers.size,
};

for (const [name, rows] of Object.entries(words)) {
  test(`${name} is written as by the server`, () => {
    for (const [value, text] of rows) assert.equal(WRITERS[name](numbers.fromJson(value)), text);
  });
}

test('a change has a sign', () => {
  assert.deepEqual(
    [4, -0.314, 0].map((percent) => numbers.change(percent)),
    ['+4 %', '−0.314 %', '±0 %'],
  );
  assert.equal(numbers.changePercent(3, -2), 250);
  assert.equal(numbers.changePercent(3, 0), null);
});

test('a time span has the unit of its size', () => {
  const texts = [0, 2.1e-6, 0.85, 12.4, 180, 9000, 172_800].map((seconds) => numbers.timeSpan(seconds));
  assert.deepEqual(texts, ['0', '2.1 µs', '850 ms', '12.4 s', '3 min', '2.5 h', '2 d']);
});

test('a value that is no number says since when', () => {
  assert.equal(numbers.notFinite(Number.NaN, 1812, 0.41), 'NaN since step 1\u202f812, last number 0.41');
  assert.equal(numbers.notFinite(-Infinity, null), '−∞');
  assert.equal(numbers.notFinite(0.41, 1812), '');
});

test('a range has one more digit where its ends read the same, and one end where they still do', () => {
  /** @param {number} least @param {number} most */
  const written = (least, most) => numbers.range(least, most, numbers.number);
  assert.deepEqual(
    [written(0.443, 0.523), written(12_710, 12_740), written(12_741, 12_742), written(2, 2)],
    ['0.443 – 0.523', '12.71 k – 12.74 k', '12.74 k', '2'],
  );
});
