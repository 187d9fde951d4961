import assert from 'node:assert/strict';
import { test } from 'node:test';
import { meanOf, ownWork, spansOf } from '../../../../dashboard/components/run/phases_model.js';

const picture = {
  phases: ['data_s', 'exposed_comm_s', 'other_s'],
  titles: {},
  steps: [0, 10, 20],
  walls: [0, 1, 2],
  ranks: [
    { rank: 0, node: 'a', seconds: { data_s: [1, 3], exposed_comm_s: [4, 4], other_s: [1, 1] } },
    { rank: 1, node: 'a', seconds: { data_s: [2, null], exposed_comm_s: [4, null], other_s: [1, null] } },
  ],
};
const spans = /** @type {import('../../../../dashboard/components/run/phases_model.js').Spans} */ (spansOf(picture));

test('nothing is drawn before the second step', () => {
  assert.equal(spansOf({ ...picture, steps: [0] }), null);
  assert.equal(spansOf({ ...picture, ranks: [] }), null);
  assert.equal(spans.length, 2);
});

test('the mean leaves out what is not known', () => {
  assert.deepEqual(meanOf(spans, null).over.data_s, [1.5, 3]);
  assert.equal(meanOf(spans, null).typical.data_s, 2.25);
  assert.equal(meanOf(spans, 0).typical.data_s, 2);
  assert.equal(meanOf(spans, 1, 1).typical.data_s, 0);
});

test('waiting for others is no work of a rank', () => {
  assert.deepEqual(
    [0, 1].map((column) => ownWork(spans, spans.ranks[0], column)),
    [2, 4],
  );
  assert.equal(ownWork(spans, spans.ranks[1], 1), null);
});
