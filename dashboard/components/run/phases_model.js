/**
 * Spans of steps with the mean seconds of each phase, by rank.
 *
 * @typedef {{rank: number, node: string, seconds: Record<string, (number|null)[]>}} RankSpans
 * @typedef {{phases: string[], titles: Record<string, string>, steps: number[], walls: number[], ranks:
 *   RankSpans[], length: number}} Spans
 */

/** Places in the palette, in the order of the phases from the bottom of the strip to its top. */
export const COLOURS = [1, 5, 0, 7, 3, 2, 4, 6];

/** @param {any} picture @returns {Spans|null} null where nothing can be drawn yet */
export function spansOf(picture) {
  const length = picture.steps.length - 1;
  return length > 0 && picture.ranks.length ? { ...picture, length } : null;
}

/**
 * The mean over one rank, or all of them.
 * @param {Spans} spans @param {number|null} rank @param {number|null} [column] only this span
 * @returns {{typical: Record<string, number>, over: Record<string, (number|null)[]>}} over all spans, and in
 *   each
 */
export function meanOf(spans, rank, column = null) {
  const ranks = rank === null ? spans.ranks : spans.ranks.filter((one) => one.rank === rank);
  const over = Object.fromEntries(
    spans.phases.map((name) => [name, columns(spans, (at) => mean(ranks.map((one) => one.seconds[name][at])))]),
  );
  const typical = Object.fromEntries(
    spans.phases.map((name) => [name, (column === null ? mean(over[name]) : over[name][column]) ?? 0]),
  );
  return { typical, over };
}

/**
 * Seconds outside of communication of a rank in a span; null where it is not known.
 * @param {Spans} spans
 * @param {RankSpans} one
 * @param {number} column
 */
export function ownWork(spans, one, column) {
  if (one.seconds.other_s[column] === null) return null;
  return spans.phases.reduce(
    (sum, name) => (name === 'exposed_comm_s' ? sum : sum + (one.seconds[name][column] ?? 0)),
    0,
  );
}

/** @template T @param {Spans} spans @param {(at: number) => T} value */
const columns = (spans, value) => Array.from({ length: spans.length }, (_, at) => value(at));

/** @param {(number|null)[]} values @returns {number|null} */
function mean(values) {
  const numbers = values.filter((value) => value !== null);
  return numbers.length ? numbers.reduce((sum, value) => sum + value, 0) / numbers.length : null;
}
