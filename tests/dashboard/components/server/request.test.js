import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { Newest, RequestError, read, request, sentenceOf } from '../../../../dashboard/components/server/request.js';

/** @type {import('node:http').ServerResponse[]} answers that the server has not given */
const waiting = [];
/** @type {Record<string, [number, unknown]>} */
const ANSWERS = {
  '/names': [200, ['loss']],
  '/taken': [409, { detail: { message: 'The name is taken.' } }],
  '/broken': [500, null],
  '/signed-out': [401, { detail: { message: 'Sign in.' } }],
};
const server = createServer(async (incoming, answer) => {
  const path = incoming.url ?? '';
  if (path === '/never' || path === '/later') return void waiting.push(answer);
  if (path === '/stalls') return void answer.writeHead(200).write('["lo');
  if (path === '/echo')
    return void answer.end(JSON.stringify([incoming.method, incoming.headers['content-type'], await textOf(incoming)]));
  const [status, document] = ANSWERS[path];
  answer.writeHead(status).end(document && JSON.stringify(document));
});
/** @type {(path: string) => string} */
let url;

before(async () => {
  await new Promise((listening) => server.listen(0, '127.0.0.1', () => listening(null)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  url = (path) => `http://127.0.0.1:${port}${path}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

test('gives the document', async () => {
  assert.deepEqual(await request(url('/names')), ['loss']);
});

test('sends a document as JSON', async () => {
  assert.deepEqual(await request(url('/echo'), { json: { a: 1 } }), ['POST', 'application/json', '{"a":1}']);
  assert.equal((await request(url('/echo'), { method: 'PUT', json: {} }))[0], 'PUT');
});

test('says in the words of the server why it refuses', async () => {
  await assert.rejects(request(url('/taken')), new RequestError('The name is taken.', 409, true));
  await assert.rejects(request(url('/broken')), new RequestError('Rankzero could not answer (500).', 500));
  await assert.rejects(request(url('/signed-out')), { message: 'Signed out: reload the page', status: 401 });
});

test('gives up when no answer comes in time', async () => {
  await assert.rejects(request(url('/never'), { withinMs: 20 }), {
    message: 'Rankzero does not answer.',
    status: 0,
  });
});

test('gives up when an answer stays unfinished', async () => {
  await assert.rejects(request(url('/stalls'), { withinMs: 200 }), {
    message: 'Rankzero does not answer.',
    status: 0,
  });
});

test('tells of a server that is away', async () => {
  const error = await request('http://127.0.0.1:1/').catch((problem) => problem);
  assert.equal(sentenceOf(error), 'Rankzero does not answer.');
});

test('throws the reason of who ended it', async () => {
  const controller = new AbortController();
  const asked = request(url('/never'), { signal: controller.signal });
  controller.abort();
  await assert.rejects(asked, { name: 'AbortError' });
});

test('takes over a request that is under way', async () => {
  const text = await read(url('/broken'), { asked: fetch(url('/names')) }, (answer) => answer.text());
  assert.equal(text, '["loss"]');
});

test('an older answer never comes after a newer one', async () => {
  const newest = new Newest();
  const older = newest.request(url('/later'));
  assert.deepEqual(await newest.request(url('/names')), ['loss']);
  assert.equal(await older, null);
});

test('an older failure is none', async () => {
  const newest = new Newest();
  const older = newest.request(url('/broken'));
  newest.end();
  assert.equal(await older, null);
  await assert.rejects(newest.request(url('/broken')), RequestError);
});

/** @param {import('node:http').IncomingMessage} incoming */
async function textOf(incoming) {
  let text = '';
  for await (const part of incoming) text += part;
  return text;
}
