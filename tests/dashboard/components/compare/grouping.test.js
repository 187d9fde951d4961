import assert from 'node:assert/strict';
import { test } from 'node:test';
import { finitePoints, groupLine, valueAt } from '../../../../dashboard/components/charts/group_lines.js';
import { groupRows } from '../../../../dashboard/components/compare/grouping.js';

/** @param {number[]} x @param {number[]} y */
const curve = (x, y) => ({ x, y, count: x.length });
const HOW = { weight: 0, onlyPositive: false };

test('a group is drawn as its mean in a band of one standard deviation', () => {
  const line = groupLine([curve([0, 2], [1, 3]), curve([0, 1, 2], [3, 4, 5])], null, HOW);
  assert.deepEqual(
    [line.x, line.raw],
    [
      [0, 1, 2],
      [2, 3, 4],
    ],
  );
  const spreads = line.x.map((_, at) => [
    Number(line.high[at]) - Number(line.raw[at]),
    Number(line.raw[at]) - Number(line.low[at]),
  ]);
  for (const spread of spreads.flat()) assert.ok(Math.abs(spread - Math.SQRT2) < 1e-12);
});

test('where only one run has a value the mean is that value', () => {
  const line = groupLine([curve([0, 4], [1, 1]), curve([2, 3], [5, 5])], { from: 0, to: 2 }, HOW);
  assert.deepEqual(
    [line.x, line.raw, line.low],
    [
      [0, 2],
      [1, 3],
      [1, 3 - Math.sqrt(8)],
    ],
  );
});

test('on a logarithmic axis the band ends at the lowest value', () => {
  const line = groupLine([curve([0], [1]), curve([0], [9])], null, { weight: 0, onlyPositive: true });
  assert.deepEqual([line.raw, line.low], [[5], [1]]);
});

test('many places become five hundred at even distances', () => {
  const x = Array.from({ length: 2000 }, (_, at) => at);
  const line = groupLine([curve(x, x)], null, HOW);
  assert.equal(line.x.length, 500);
  assert.deepEqual([line.x[0], line.x[499], line.raw[499]], [0, 1999, 1999]);
});

test('a value stands on the line between its neighbours', () => {
  assert.deepEqual(
    [-1, 0, 1, 4, 5].map((at) => valueAt(curve([0, 4], [0, 8]), at)),
    [null, 0, 2, 8, null],
  );
  assert.deepEqual(finitePoints(curve([0, 1, 2], [1, NaN, 3])), curve([0, 2], [1, 3]));
});

test('a table of groups counts the runs and has a row for each result', () => {
  const summary = { mean: 0.5, spread: 0.1, count: 2, change_percent: null };
  /** @type {any} */
  const document = {
    series: [
      { name: 'loss', goal: 'min', groups: [{ best: summary, last: null }] },
      { name: 'lr', goal: null, groups: [{ last: summary }] },
    ],
  };
  const rows = groupRows(document, [{ key: 'a', label: 'lr 0.1', runs: ['1', '2'] }]);
  assert.deepEqual(
    rows.map(({ title }) => title),
    ['Runs', 'loss (lowest)', 'loss (last)', 'lr'],
  );
  assert.deepEqual(
    rows.map(({ cells }) => cells[0].text),
    ['2', '0.5', '–', '0.5'],
  );
});
