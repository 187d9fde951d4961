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

const { Redraws } = await import('../../../../dashboard/components/live/redraws.js');

/** What a component has asked, and its redraws. */
function component() {
  /** @type {unknown[]} */
  const asked = [];
  return { asked, redraws: new Redraws({ setTriggerValue: (name) => asked.push(name) }) };
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
  const { asked, redraws } = component();
  shown.add(DIALOG);
  redraws.ask();
  pass(10_000);
  assert.deepEqual(asked, []);
  shown.delete(DIALOG);
  pass(500);
  assert.deepEqual(asked, ['changed']);
});

test('a page is not rerun while its script runs', () => {
  const { asked, redraws } = component();
  shown.delete(AT_REST);
  redraws.ask();
  pass(5000);
  assert.deepEqual(asked, []);
  shown.add(AT_REST);
  pass(500);
  assert.deepEqual(asked, ['changed']);
});

test('a click comes before what a page asks for by itself', () => {
  const { asked, redraws } = component();
  listeners.pointerdown({});
  redraws.soon(0);
  pass(1500);
  assert.deepEqual(asked, []);
  pass(1000);
  assert.deepEqual(asked, ['changed']);
});

test('news that come together rerun the page once, as soon as the most urgent asks', () => {
  const { asked, redraws } = component();
  redraws.soon(2000);
  redraws.soon(200);
  redraws.soon(300);
  pass(400);
  assert.deepEqual(asked, ['changed']);
  pass(5000);
  assert.deepEqual(asked, ['changed']);
});

test('two components do not rerun the page for one moment twice in a row', () => {
  const [first, second] = [component(), component()];
  first.redraws.ask();
  second.redraws.ask();
  assert.deepEqual([first.asked, second.asked], [['changed'], []]);
  pass(1000);
  assert.deepEqual(second.asked, ['changed']);
});

test('a page that is asked for every second asks until it is left', () => {
  const { asked, redraws } = component();
  redraws.every(1);
  pass(3000);
  assert.equal(asked.length, 3);
  redraws.destroy();
  pass(3000);
  assert.equal(asked.length, 3);
});
