import assert from 'node:assert/strict';
import { mock, test } from 'node:test';

/** @type {any} */
const page = globalThis;
const AT_REST = '.stApp[data-test-script-state="notRunning"]';
const DIALOG = '[data-testid="stDialog"]';
/** What is on the page, by the selectors that are asked for. */
const shown = new Set([AT_REST]);
/** @type {Record<string, (event: object) => void>} */
const listeners = {};
page.addEventListener = () => {};
page.document = {
  hidden: false,
  addEventListener: (/** @type {string} */ kind, /** @type {any} */ listener) => {
    listeners[kind] = listener;
  },
  querySelector: (/** @type {string} */ selector) => (shown.has(selector) ? {} : null),
};
let now = 0;
mock.method(performance, 'now', () => now);

const { Teller } = await import('../../../../dashboard/components/live/telling.js');

/** What a component has told, and its teller. */
function component() {
  /** @type {unknown[]} */
  const told = [];
  return { told, teller: new Teller({ setTriggerValue: (name) => told.push(name) }) };
}

function pass(/** @type {number} */ ms) {
  for (let passed = 0; passed < ms; passed += 100) {
    now += 100;
    mock.timers.tick(100);
  }
}

test.beforeEach(() => {
  mock.timers.enable({ apis: ['setTimeout', 'setInterval'] });
  now += 10_000;
});
test.afterEach(() => mock.timers.reset());

test('a page is not rerun behind a dialog, but when it is closed', () => {
  const { told, teller } = component();
  shown.add(DIALOG);
  teller.tell();
  pass(10_000);
  assert.deepEqual(told, []);
  shown.delete(DIALOG);
  pass(500);
  assert.deepEqual(told, ['changed']);
});

test('a page is not rerun while its script runs', () => {
  const { told, teller } = component();
  shown.delete(AT_REST);
  teller.tell();
  pass(5000);
  assert.deepEqual(told, []);
  shown.add(AT_REST);
  pass(500);
  assert.deepEqual(told, ['changed']);
});

test('a click comes before what a page asks for by itself', () => {
  const { told, teller } = component();
  listeners.pointerdown({});
  teller.soon(0);
  pass(1500);
  assert.deepEqual(told, []);
  pass(1000);
  assert.deepEqual(told, ['changed']);
});

test('news that come together rerun the page once, as soon as the most urgent asks', () => {
  const { told, teller } = component();
  teller.soon(2000);
  teller.soon(200);
  teller.soon(300);
  pass(400);
  assert.deepEqual(told, ['changed']);
  pass(5000);
  assert.deepEqual(told, ['changed']);
});

test('two components do not rerun the page for one moment twice in a row', () => {
  const [first, second] = [component(), component()];
  first.teller.tell();
  second.teller.tell();
  assert.deepEqual([first.told, second.told], [['changed'], []]);
  pass(1000);
  assert.deepEqual(second.told, ['changed']);
});

test('a page that is asked for every second asks until it is left', () => {
  const { told, teller } = component();
  teller.every(1);
  pass(3000);
  assert.equal(told.length, 3);
  teller.destroy();
  pass(3000);
  assert.equal(told.length, 3);
});
