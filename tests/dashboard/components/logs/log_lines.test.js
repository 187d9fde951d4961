import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LONGEST_LINE, LogText } from '../../../../dashboard/components/logs/log_lines.js';
import { LogOffsets } from '../../../../dashboard/components/logs/log_positions.js';

/** @param {LogText} log */
const texts = (log) => log.lines.map(({ text }) => text);

test('pieces of a log join to lines', () => {
  const log = new LogText();
  assert.equal(log.append('one\ntw'), 0);
  assert.equal(log.append('o\n'), 1);
  assert.deepEqual([texts(log), log.end], [['one', 'two', ''], 3]);
});

test('a progress bar is its last state', () => {
  const log = new LogText();
  for (const piece of ['10 %\r20 ', '%\r', '30 %\r', '\ndone']) log.append(piece);
  assert.deepEqual(texts(log), ['30 %\r', 'done']);
});

test('what stands before joins without a seam', () => {
  const log = new LogText();
  log.append('e\nlast');
  log.prepend('first\nlin');
  assert.deepEqual([texts(log), log.first], [['first', 'line', 'last'], -1]);
});

test('an endless line is cut, and says by how much', () => {
  const log = new LogText();
  log.append('x'.repeat(LONGEST_LINE + 5));
  log.append('yy');
  assert.deepEqual([log.lines[0].text.length, log.lines[0].cut], [LONGEST_LINE, 7]);
});

test('the byte of a line that the page dropped is counted from the nearest piece', async () => {
  const bytes = new TextEncoder().encode('zero\none\ntwo\nthree\n');
  /** @type {number[]} */
  const asked = [];
  /** @param {number} offset */
  const read = async (offset) => {
    asked.push(offset);
    return bytes.subarray(offset);
  };
  const offsets = new LogOffsets();
  assert.equal(await offsets.startOf(0, read), 0);
  offsets.follow(2, 9); // 'two' begins there
  assert.equal(offsets.hasDropped(3), true);
  assert.equal(await offsets.startOf(3, read), 13);
  assert.deepEqual(asked, [9]);
  await assert.rejects(offsets.startOf(9, read), /shorter than it was/);
});
