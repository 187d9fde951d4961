import assert from 'node:assert/strict';
import { mock, test } from 'node:test';

/** @type {any} */
const page = globalThis;
/** @type {object|null} */
let dialog = {};
page.addEventListener = () => {};
page.document = { hidden: false, addEventListener: () => {}, querySelector: () => dialog };
page.Element = class {};
page.ShadowRoot = class {};
page.reportError = assert.ifError;

const { Teller } = await import('../../../../dashboard/components/live/telling.js');

/** A part of the page that tells, and what it has told. @param {object|null} around the dialog that it is in */
function part(around) {
  /** @type {unknown[]} */
  const told = [];
  const parentElement = Object.assign(new page.Element(), { getRootNode: () => ({}), closest: () => around });
  return { told, teller: new Teller({ parentElement, setTriggerValue: (name) => told.push(name) }) };
}

async function pass(/** @type {number} */ ms) {
  mock.timers.tick(ms);
  for (let i = 0; i < 10; i++) await null;
}

test('what is behind a dialog tells when the dialog is closed, what is in it at once', async () => {
  mock.timers.enable({ apis: ['setTimeout', 'setInterval'] });
  const behind = part(null);
  const inside = part(dialog);
  behind.teller.tell();
  inside.teller.tell();
  await pass(10_000);
  assert.deepEqual([behind.told, inside.told], [[], ['changed']]);
  dialog = null;
  await pass(2_000);
  await pass(100);
  assert.deepEqual(behind.told, ['changed']);
  mock.timers.reset();
});
