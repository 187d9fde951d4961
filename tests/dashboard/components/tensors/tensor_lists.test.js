import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changeAxis, cosineAxis, layerAxis } from '../../../../dashboard/components/tensors/layer_axes.js';
import {
  comparedLists,
  comparedSentence,
  exactly,
  matching,
  shownLists,
  shownSentence,
} from '../../../../dashboard/components/tensors/tensor_lists.js';

const TENSOR = {
  name: 'layers.0.weight',
  shape: [4, 8],
  dtype: 'bfloat16',
  values: 32,
  bytes: 64,
  tied: null,
  norm: 3.5,
  mean: 0,
  std: 0.02,
  min: -0.1,
  max: 0.1,
  zeros: 0,
  nan: 0,
  inf: 0,
};
const SHOWN = {
  format: 'safetensors',
  totals: { tensors: 2, values: 64, bytes: 128, norm: 5, nan: 3, inf: 0 },
  dtypes: [{ dtype: 'bfloat16', tensors: 2, values: 64, bytes: 128 }],
  tensors: [TENSOR, { ...TENSOR, name: 'head.bias', shape: [], nan: 3, norm: null }],
  left_out: 0,
  notes: [],
};
const CHANGE = { values: 10, relative: 0.25, cosine: 0.97, largest: 0.1, unchanged: 0.5, not_finite: 0 };
const NONE = { layers: 0, tensors: 0, only_a: 0, only_b: 0, different: 0 };
const COMPARED = {
  formats: ['torch', 'torch'],
  totals: { ...CHANGE, tensors: 1 },
  layers: [{ ...CHANGE, layer: 'layers.0', tensors: 1 }],
  tensors: [{ ...CHANGE, name: 'layers.0.weight', shape: [10], dtype: 'float32' }],
  only_a: [],
  only_b: [{ name: 'head.bias', shape: [], dtype: 'float32' }],
  different: [],
  left_out: NONE,
  notes: [],
};
/** @param {number|null} relative @param {number|null} cosine */
const layer = (relative, cosine, name = 'model.layers.0') => ({ ...CHANGE, layer: name, tensors: 1, relative, cosine });

test('a tensor whose values are not all finite is marked and counted', () => {
  const [{ table }] = shownLists(SHOWN);
  assert.deepEqual(
    table.rows.map(({ kind, cells }) => [kind, cells[0].text, cells[1].text, cells[3].text, cells[8].text]),
    [
      ['', 'layers.0.weight', '4 × 8', '3.5', ''],
      ['broken', 'head.bias', 'scalar', '', '3 NaN'],
    ],
  );
  assert.match(
    shownSentence(SHOWN),
    /^2 tensors, 64 values: bfloat16 \(128 B\); safetensors\. Not finite: .* 1 tensor\.$/,
  );
});

test('a search finds the names that have all of its words', () => {
  const [{ table }] = shownLists(SHOWN);
  /** @param {string} search */
  const names = (search) => matching(table.rows, search).map(({ cells }) => cells[0].text);
  assert.deepEqual(names('WEIGHT layers'), ['layers.0.weight']);
  assert.deepEqual(names(' '), ['layers.0.weight', 'head.bias']);
  assert.deepEqual(names('weight head'), []);
});

test('lists of a comparison without a row are left out', () => {
  assert.deepEqual(
    comparedLists(COMPARED).map(({ title }) => title),
    ['Layers', 'Tensors', 'Only in B'],
  );
  assert.equal(
    comparedSentence(COMPARED),
    '1 tensor in both: relative change 0.25, cosine 0.97; 50 % of the values are unchanged.',
  );
  assert.match(comparedSentence({ ...COMPARED, totals: { ...CHANGE, tensors: 1, unchanged: 1 } }), /all equal/);
  assert.match(comparedSentence({ ...COMPARED, totals: { ...CHANGE, tensors: 0 } }), /No tensor/);
});

test('a cosine near 1 has as many digits as tell it from 1', () => {
  assert.deepEqual([0.5, 0.97, 0.9999321, 1, -1, null].map(exactly), ['0.5', '0.97', '0.999932', '1', '-1', '–']);
});

test('columns begin at zero, and below the least where changes differ a hundredfold', () => {
  const near = changeAxis([layer(0.1, 1), layer(0.4, 1), layer(0, 1), layer(null, null)]);
  assert.deepEqual(
    [near.kind, near.share(0.4), near.share(0.1), near.share(0), near.share(null)],
    ['linear', 1, 0.25, null, null],
  );
  const far = changeAxis([layer(1e-6, 1), layer(0.4, 1)]);
  assert.equal(far.kind, 'log');
  assert.ok(Number(far.share(1e-6)) > 0);
});

test('the axis of cosines ends at 1, also where all are 1', () => {
  const some = cosineAxis([layer(0.1, 0.8), layer(0.1, 1), layer(null, null)]);
  assert.deepEqual(
    some.marks.map(([text]) => text),
    ['0.8', '0.9', '1'],
  );
  assert.equal(cosineAxis([layer(0.1, 1)]).share(1), 1);
});

test('the first and the last layer are named by their last parts', () => {
  const axis = layerAxis([layer(0, 1), layer(0, 1), layer(0, 1, 'lm_head')]);
  assert.deepEqual(axis.marks, [
    ['layers.0', 0],
    ['lm_head', 1],
  ]);
  assert.equal(axis.share(1), 0.5);
  assert.equal(layerAxis([layer(0, 1)]).share(0), 0.5);
});
