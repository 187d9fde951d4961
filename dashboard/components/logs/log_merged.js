/**
 * Lines of several logs as the server merges them: all ranks, both streams, by the time at which they
 * arrived.
 */

import { request } from '../server/request.js';

const BEFORE_HIT_BYTES = 64 * 1024;
const BEHIND_HIT_BYTES = 192 * 1024;
const EARLIER_BYTES = 256 * 1024;

/** @param {import('../live/live_connection.js').LogChoice} choice */
export const isMerged = (choice) => choice.rank === 'all' || choice.stream === 'both';

/**
 * The lines before a position, and where they begin; `before` is null where nothing stands before them.
 * @param {(more: object, below: string) => string} urlOf @param {string} position
 */
export function linesBefore(urlOf, position, limit = EARLIER_BYTES) {
  return request(urlOf({ before: position, limit }, '/merged'));
}

/**
 * The lines around a position; `chosen` is the number, from 1, of the one that begins there.
 * @param {(more: object, below: string) => string} urlOf
 * @param {string} position
 */
export async function linesAround(urlOf, position) {
  const [earlier, later] = await Promise.all([
    linesBefore(urlOf, position, BEFORE_HIT_BYTES),
    request(urlOf({ from: position, limit: BEHIND_HIT_BYTES }, '/merged')),
  ]);
  return {
    lines: [...earlier.lines, ...later.lines],
    before: earlier.before,
    hasLater: later.has_later,
    chosen: earlier.lines.length + 1,
  };
}

/**
 * The lines behind the one at a position.
 * @param {(more: object, below: string) => string} urlOf
 * @param {string} position
 */
export async function linesBehind(urlOf, position) {
  const { lines, has_later: hasLater } = await request(urlOf({ from: position, limit: EARLIER_BYTES }, '/merged'));
  return { lines: lines.slice(1), hasLater };
}

/** How the lines are ordered, in words. @param {boolean} isUntimed something has no time of arrival */
export function orderSentence(isUntimed) {
  const order =
    'In the order in which lines arrived at the dashboard: accurate to a quarter of a second ' +
    'while a page follows, else to 5 seconds.';
  return isUntimed ? `${order} Lines stored without arrival times come first, one log after the other.` : order;
}
