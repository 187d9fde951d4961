import assert from 'node:assert/strict';
import { test } from 'node:test';
import PALETTE from '../../../../dashboard/components/elements/palette.json' with { type: 'json' };
import { colourNumbers, faded, runColour } from '../../../../dashboard/components/elements/theme.js';

/** @param {string[]} ids */
const numbers = (...ids) => [...colourNumbers(ids).values()];

test('a run keeps its colour beside other runs', () => {
  const [a, b, c] = ['0000000001', '0000000002', '000000000a']; // a and c would have the same
  assert.deepEqual([numbers(a, b), numbers(b), numbers(a, c, b), numbers(c)], [[1, 2], [2], [1, 2, 3], [2]]);
  const many = numbers(...Array.from({ length: 40 }, (_, at) => at.toString(36).padStart(10, '0')));
  assert.equal(new Set(many).size, 40);
  assert.deepEqual(new Set(many.slice(0, 8)), new Set([0, 1, 2, 3, 4, 5, 6, 7]));
});

test('after the palette colours go on, and are told apart from the background', () => {
  for (const dark of [false, true]) {
    const palette = PALETTE[dark ? 'dark' : 'light'];
    const colours = Array.from({ length: 40 }, (_, at) => runColour(at, { dark, palette }));
    assert.deepEqual(colours.slice(0, 8), palette);
    assert.equal(new Set(colours).size, 40);
    for (const colour of colours) assert.match(colour, /^#[0-9a-f]{6}$/);
  }
});

test('a colour of any notation fades', () => {
  assert.equal(faded('#102030', 0.5), 'rgba(16, 32, 48, 0.5)');
  assert.equal(faded('#fff', 0.1), 'rgba(255, 255, 255, 0.1)');
  assert.equal(faded('rgb(1, 2, 3)', 1), 'rgba(1, 2, 3, 1)');
});
