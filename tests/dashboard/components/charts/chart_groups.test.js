import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chartsFor, groupTitle, matches } from '../../../../dashboard/components/charts/chart_groups.js';

/** @param {...string} names */
const charts = (...names) =>
  chartsFor(names.map((name) => ({ name, source: /^(printed|probe)\//.exec(name)?.[1] ?? 'events' })));

test('related series share a chart, and the loss comes first', () => {
  const shown = charts(
    'zebra',
    'train/epoch',
    'train/total_steps',
    'train/step_time_s',
    'train/data_wait_s',
    'val/loss',
    'train/lr',
    'train/samples_per_s',
    'train/grad_norm',
    'val/accuracy',
    'train/loss',
    'aardvark',
    'probe/rank0/step_time_s',
    'probe/rank1/step_time_s',
    'printed/bits',
  );
  const titles = [
    'Loss',
    'Samples/s',
    'Learning rate',
    'Gradient norm',
    'Step time',
    'aardvark',
    'zebra',
    'Accuracy',
    'bits',
    'Step time',
  ];
  assert.deepEqual(
    shown.map(({ title }) => title),
    titles,
  );
  assert.deepEqual(
    shown[0].lines.map(({ label }) => label),
    ['train', 'val'],
  );
  const groups = [...new Set(shown.map(({ group }) => groupTitle(group)))];
  assert.deepEqual(groups, ['Training', 'Validation', 'Parsed from logs', 'Per-rank performance']);
});

for (const name of ['train/loss', 'loss/train', 'train_loss', 'loss_train']) {
  test(`${name} is the training part of the loss`, () => {
    const [chart] = charts(name, 'val/loss');
    assert.deepEqual([chart.title, chart.lines.map(({ label }) => label)], ['Loss', ['train', 'val']]);
  });
}

for (const name of ['samples_per_s', 'tokens_per_sec', 'images/s', 'it_per_second', 'throughput']) {
  test(`${name} is a throughput, which stands behind the loss`, () => {
    const shown = charts('aardvark', `train/${name}`, 'train/loss').map(({ lines }) => lines[0].name);
    assert.deepEqual(shown, ['train/loss', `train/${name}`, 'aardvark']);
  });
}

test('a filter finds charts by title and by series', () => {
  const [chart] = charts('train/loss', 'val/loss');
  assert.deepEqual(
    ['LOSS val', 'val/loss', '', 'lr'].map((query) => matches(chart, query)),
    [true, true, true, false],
  );
});
