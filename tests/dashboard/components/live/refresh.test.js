import assert from 'node:assert/strict';
import { mock, test } from 'node:test';

/** @type {any} */
const page = globalThis;
page.addEventListener = () => {};
page.document = {
  hidden: false,
  addEventListener: () => {},
  querySelector: (/** @type {string} */ selector) => (selector.startsWith('.stApp') ? {} : null),
};
let now = 10_000;
mock.method(performance, 'now', () => now);

const { mount } = await import('../../../../dashboard/components/live/refresh.js');

/** How often a page that shows no trouble is drawn again, of which the server answers that. */
async function redrawnAfter(/** @type {() => Response} */ answer) {
  let redrawn = 0;
  page.fetch = async () => answer();
  const setTriggerValue = () => {
    redrawn += 1;
  };
  const parentElement = /** @type {any} */ ({ dataset: {} });
  const end = mount(/** @type {any} */ ({ data: { every_s: null, trouble: '' }, parentElement, setTriggerValue }));
  for (let passed = 0; passed < 16_000; passed += 500) {
    now += 500;
    mock.timers.tick(500);
    await new Promise(setImmediate);
  }
  /** @type {any} */ (end)?.();
  return redrawn;
}

test.beforeEach(() => mock.timers.enable({ apis: ['setTimeout', 'setInterval'] }));
test.afterEach(() => mock.timers.reset());

test('a page is drawn again when the server has a trouble that it does not show', async () => {
  const headers = { 'X-Rankzero-Warning': 'The disk is full.' };
  assert.equal(await redrawnAfter(() => new Response(null, { headers })), 1);
});

test('a page is drawn again when the store is gone, so that it says so', async () => {
  assert.equal(await redrawnAfter(() => new Response(null, { status: 503 })), 1);
});

test('a page is left alone while nothing is wrong, or nobody answers', async () => {
  assert.equal(await redrawnAfter(() => new Response(null)), 0);
  assert.equal(
    await redrawnAfter(() => {
      throw new TypeError('fetch failed');
    }),
    0,
  );
});
