import assert from 'node:assert/strict';
import { test } from 'node:test';
import { baselineOf, changeAt, linesOf } from '../../../../dashboard/components/charts/drawn_lines.js';
import { Columns } from '../../../../dashboard/components/live/series_store.js';

/** @param {string} name @param {number[]} values at the steps 0, 1, … @returns {any} */
function series(name, values) {
  const columns = new Columns();
  values.forEach((value, step) => {
    columns.push(step, value, step);
  });
  return { name, source: 'events', attempts: new Map([[1, columns]]), version: 0 };
}

/**
 * The lines of a chart with these values of each of its series, whose keys are `a`, `b`, ….
 * @param {number[][]} values
 * @param {object} more of the chart
 */
function drawn(values, more, weight = 0) {
  const stored = new Map(values.map((own, at) => [`s${at}`, series(`s${at}`, own)]));
  const lines = values.map((_, at) => ({ name: `s${at}`, label: '', role: at, smooth: weight > 0, key: 'abcdef'[at] }));
  /** @type {any} */
  const spec = { id: 'loss', title: 'loss', group: '', rank: 0, isSpan: true, lines, format: String, ...more };
  /** @param {string} name */
  const seriesOf = (name) => stored.get(name);
  const base = baselineOf(spec, seriesOf, () => null);
  return linesOf(spec, {
    smoothing: weight,
    older: false,
    isLog: false,
    zoom: null,
    width: 500,
    base,
    origins: () => null,
    seriesOf,
    colourOf: ({ role }) => `colour ${role}`,
    isSmoothed: ({ smooth }) => smooth,
  });
}

test('each series is a line of its colour', () => {
  const lines = drawn([[1, 2], [3]], {});
  assert.deepEqual(
    lines.map(({ raw, colour }) => [raw, colour]),
    [
      [[1, 2], 'colour 0'],
      [[3], 'colour 1'],
    ],
  );
});

test('values are drawn as their difference to the baseline, and none without one', () => {
  const more = { isRelative: true, baseline: { name: 's0', run: 'a' } };
  assert.deepEqual(
    drawn(
      [
        [2, 4],
        [1, 8],
      ],
      more,
    ).map(({ raw }) => raw),
    [
      [0, 0],
      [-50, 100],
    ],
  );
  assert.deepEqual(
    drawn([[2, 4]], { isRelative: true, baseline: { name: 'unknown', run: 'b' } }).map(({ raw, flat }) => [
      raw,
      flat.count,
    ]),
    [[[], 0]],
  );
  assert.equal(changeAt(null, 0, 1), null);
});

test('lines of one key are drawn as their mean in its band', () => {
  const lines = [0, 1, 2].map((at) => ({
    name: `s${at}`,
    label: '',
    role: at,
    smooth: false,
    key: at < 2 ? 'a' : 'b',
  }));
  const [pair, single] = drawn([[1, 2], [3, 4], [9]], { isGrouped: true, lines });
  assert.deepEqual([pair.raw, pair.low?.length, pair.colour], [[2, 3], 2, 'colour 0']);
  assert.deepEqual(single.raw, [9]);
});

test('what was logged is not drawn behind the averages of many lines', () => {
  const smoothOf = (/** @type {number} */ count) =>
    drawn(Array(count).fill([1, 2, 3]), {}, 0.5).map(({ smooth }) => smooth !== null);
  assert.deepEqual([smoothOf(4).every(Boolean), smoothOf(5).some(Boolean)], [true, false]);
});
