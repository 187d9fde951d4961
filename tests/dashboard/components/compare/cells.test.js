import assert from 'node:assert/strict';
import { test } from 'node:test';
import { written } from '../../../../dashboard/components/compare/cells.js';

const rows = [
  {
    title: 'a|b <x>',
    cells: [{ text: '−2 %' }, { text: '0.5', raw: 0.512345, spread: 0.1, change: '+4 %' }],
  },
];

test('LaTeX gets no character that it would take for its own', () => {
  assert.ok(written('LaTeX', ['one', 'two'], rows).includes('a\\textbar{}b \\textless{}x\\textgreater{} & $-$2 \\%'));
});

test('Markdown keeps its columns', () => {
  const [head, line, row] = written('Markdown', ['one', 'two'], rows).split('\n');
  assert.equal(line, '| :--- | ---: | ---: |');
  assert.ok(head.startsWith('| ') && head.endsWith('| one | two |'));
  assert.ok(row.endsWith('| −2 % | 0.5 ± 0.1 (+4 %) |') && row.includes('a\\|b'));
});

test('CSV has every digit and nothing that a spreadsheet would evaluate', () => {
  const text = written('CSV', ['=1+1'], [{ title: 'a "b"', cells: [{ text: '0.5', raw: 0.512345 }] }]);
  assert.ok(text.includes("'=1+1") && text.includes('"a ""b"""') && text.includes('0.512345'));
});
