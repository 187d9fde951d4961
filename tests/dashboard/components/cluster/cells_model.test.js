import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  counts,
  everything,
  grouped,
  groupings,
  lines,
  matching,
  shownOf,
  spoken,
  standing,
} from '../../../../dashboard/components/cluster/cells_model.js';

/** @param {string} name @param {any[][]} cells @param {object} [more] */
const node = (name, cells, more = {}) => ({
  id: name,
  name,
  state: 'alive',
  draining: false,
  upgrade: false,
  quarantine: false,
  address: '10.0.0.1',
  labels: {},
  kinds: 'H100',
  noun: 'GPU',
  memory: 80 * 2 ** 30,
  load: null,
  more: 0,
  cells,
  ...more,
});
const gpt = { id: 'r1', name: 'small GPT', state: 'running', colour: 0 };
const nodes = [
  node('gpu-1', [[0], [1, 0, 3, 97, 2 ** 30]], { labels: { rack: 'b10' } }),
  node('gpu-2', [[0], [0]], { labels: { rack: 'b9' }, draining: true }),
  node('gpu-3', [], { state: 'lost' }),
];
/** @type {import('../../../../dashboard/components/cluster/cells_model.js').Picture} */
const picture = { summary: '', states: ['free', 'in use'], nodes, runsKey: '', runs: [gpt], notices: [] };
/** @param {object} filter */
const names = (filter) => matching(picture, { ...everything(), ...filter }).map(({ name }) => name);

test('a filter finds nodes by every word, by state and by run', () => {
  assert.deepEqual(names({}), ['gpu-1', 'gpu-2', 'gpu-3']);
  assert.deepEqual(names({ text: 'RACK=b H100' }), ['gpu-1', 'gpu-2']);
  assert.deepEqual(names({ text: 'draining' }), ['gpu-2']);
  assert.deepEqual(names({ text: 'small' }), ['gpu-1']);
  assert.deepEqual(names({ states: ['free'] }), ['gpu-1', 'gpu-2']);
  assert.deepEqual(names({ run: 'r1' }), ['gpu-1']);
  assert.deepEqual(names({ run: 'gone' }), []);
});

test('groups stand by number, those without the label last', () => {
  assert.deepEqual(groupings(picture), ['state', 'rack']);
  assert.deepEqual(
    grouped(nodes, 'rack').map(([title]) => title),
    ['rack b9', 'rack b10', 'no rack'],
  );
  assert.deepEqual(
    grouped(nodes, 'state').map(([title]) => title),
    ['draining', 'lost', 'online'],
  );
  assert.deepEqual(nodes.map(standing), ['alive', 'draining', 'lost']);
  const leftOut = node('gpu-4', [], { draining: true, quarantine: true });
  assert.equal(standing(leftOut), 'quarantine');
  assert.match(spoken(picture, leftOut), /^gpu-4: online, in quarantine, draining,/);
});

test('devices are counted, shown and spoken', () => {
  assert.deepEqual(counts(picture), [3, 1]);
  assert.equal(spoken(picture, nodes[0]), 'gpu-1: online, 1 free, 1 in use; runs small GPT');
  assert.equal(spoken(picture, nodes[2]), 'gpu-3: lost, no devices');
  assert.deepEqual(lines(picture, nodes[0], 1), [
    'gpu-1 · GPU 1',
    'small GPT · rank 3',
    'running',
    '97 % busy · 1 GiB of 80 GiB',
    'Click to open the run',
  ]);
  assert.deepEqual(lines(picture, nodes[0], 0), ['gpu-1 · GPU 0', 'free']);
  assert.deepEqual([shownOf(3, 3), shownOf(1, 1200)], ['', '1 of 1\u202f200 nodes']);
});
