/**
 * Where the lines of a log stand: byte offsets of one log, noted where a piece of text began and counted from there by
 * line breaks; positions in the lines of all ranks and both streams, which the server merges by their time of arrival.
 */

import { request } from '../server/request.js';

const AT_ONCE_BYTES = 256 * 1024;
const LINE_BREAK = 10;

export class LogOffsets {
  _line = 0;
  _offset = 0;
  /**
   * @type {{line: number, offset: number}[]} pieces of text: in which line of the page, and at which byte,
   *   each began
   */
  _pieces = [{ line: 0, offset: 0 }];

  /** The page's first line begins at a byte of the log. @param {number} line @param {number} offset */
  begin(line, offset) {
    this._line = line;
    this._offset = offset;
    this._pieces = [{ line, offset }];
  }

  /** Another piece follows. @param {number} line the line that it goes on @param {number} offset */
  follow(line, offset) {
    this._pieces.push({ line, offset });
  }

  /** Whether lines before this one were on the page once. @param {number} first the first that still is */
  hasDropped(first) {
    while (this._pieces.length > 1 && this._pieces[1].line < first) this._pieces.shift();
    return first > this._line;
  }

  /**
   * @param {number} first the page's first line
   * @param {(offset: number, limit: number) => Promise<Uint8Array>} read
   * @returns {Promise<number>} the byte at which it begins
   */
  async startOf(first, read) {
    if (!this.hasDropped(first)) return this._offset;
    const { line, offset } = this._pieces[0];
    let [left, at] = [first - line, offset];
    for (;;) {
      const bytes = await read(at, AT_ONCE_BYTES);
      if (!bytes.length) throw new Error('The log is shorter than it was.');
      for (let i = 0; i < bytes.length; i++) {
        if (bytes[i] === LINE_BREAK && --left === 0) return at + i + 1;
      }
      at += bytes.length;
    }
  }
}

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
