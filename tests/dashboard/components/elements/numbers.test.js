import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import * as numbers from '../../../../dashboard/components/elements/numbers.js';

/** Arguments with their text, as the server writes them too. */
const words = JSON.parse(readFileSync(new URL('../../../domain/text/number_words.json', import.meta.url), 'utf-8'));
/** @type {Record<string, (...values: any[]) => string>} */
const WRITERS = {
  number: numbers.number,
  count: numbers.count,
  learning_rate: numbers.learningRate,
  duration: numbers.duration,
  size: numbers.size,
  change: numbers.change,
  time_span: numbers.timeSpan,
  ago: numbers.ago,
  not_finite: numbers.notFinite,
};

for (const [name, rows] of Object.entries(words)) {
  test(`${name} is written as by the server`, () => {
    for (const row of rows) assert.equal(WRITERS[name](...row.slice(0, -1).map(numbers.fromJson)), row.at(-1));
  });
}

test('a change is in per cent of what it was', () => {
  assert.equal(numbers.changePercent(3, -2), 250);
  assert.equal(numbers.changePercent(3, 0), null);
});

test('a value that is no number says since when', () => {
  assert.equal(numbers.notFinite(Number.NaN, 1812, 0.41), 'NaN since step 1\u202f812, last number 0.41');
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
