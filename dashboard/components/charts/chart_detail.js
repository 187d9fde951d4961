/** Load the finer points of a zoomed window from the server. */

import { fromJson } from '../elements/numbers.js';
import { Columns } from '../live/series_store.js';
import { request } from '../server/request.js';
import { firstAtLeast, placer } from './chart_lines.js';

const WANTED_POINTS = 1500;
/** A first picture of fewer points is the whole series, not a selection. */
const MAY_BE_SELECTION = 1000;

/**
 * @typedef {{from: number, to: number}} Window
 * @typedef {import('../live/series_store.js').Series} Series
 */

/**
 * The steps that lie inside a window, and whether the server may know more of them.
 * @param {Series} series
 * @param {Window} window
 * @param {import('./chart_lines.js').Origins} origins
 */
export function inside(series, window, origins) {
  let [first, last, known] = [Infinity, -Infinity, 0];
  let isSelection = false;
  for (const [attempt, columns] of series.attempts) {
    const place = placer(origins, attempt);
    isSelection ||= columns.firstCount >= MAY_BE_SELECTION;
    for (let i = 0; i < columns.count; i++) {
      const at = place(columns, i);
      if (!(at >= window.from && at <= window.to)) continue;
      first = Math.min(first, columns.step[i]);
      last = Math.max(last, columns.step[i]);
      known += 1;
    }
  }
  return {
    first,
    last,
    known,
    mayHaveMore: isSelection && known < WANTED_POINTS && last - first + 1 > known,
  };
}

/**
 * @param {string} runId
 * @param {Series} series
 * @param {{first: number, last: number}} steps
 * @returns {Promise<Series>} the same series, only these steps
 */
export async function fetchDetail(runId, series, steps) {
  const query = new URLSearchParams({
    name: series.name,
    source: 'all',
    since: String(Math.floor(steps.first)),
    until: String(Math.ceil(steps.last)),
    max_points: String(WANTED_POINTS),
  });
  const points = (await request(`api/runs/${encodeURIComponent(runId)}/metrics?${query}`))[series.name] ?? [];
  const attempts = new Map();
  for (const [step, value, wall] of points) {
    const attempt = attemptAt(series, wall);
    if (!attempts.has(attempt)) attempts.set(attempt, new Columns());
    attempts.get(attempt).push(step, fromJson(value), wall);
  }
  return { ...series, attempts };
}

/**
 * A series with the finer points of a window in the place of its own there. What lies outside stays: the line reaches
 * the borders of the window, its smoothing begins where it did, and new points join it.
 * @param {Series} series
 * @param {Series} detail
 * @returns {Series}
 */
export function refined(series, detail) {
  const attempts = new Map(series.attempts);
  for (const [attempt, fine] of detail.attempts) {
    const coarse = series.attempts.get(attempt);
    attempts.set(attempt, coarse?.sorted && fine.sorted && fine.count ? spliced(coarse, fine) : fine);
  }
  return { ...series, attempts };
}

/** @param {Columns} coarse @param {Columns} fine both by steps that never go back */
function spliced(coarse, fine) {
  const start = firstAtLeast(coarse.step, coarse.count, fine.step[0]);
  let end = firstAtLeast(coarse.step, coarse.count, fine.step[fine.count - 1]);
  while (end < coarse.count && coarse.step[end] === fine.step[fine.count - 1]) end += 1;
  /** @param {'step'|'value'|'wall'} name */
  const column = (name) => {
    const joined = new Float64Array(start + fine.count + coarse.count - end);
    joined.set(coarse[name].subarray(0, start));
    joined.set(fine[name].subarray(0, fine.count), start);
    joined.set(coarse[name].subarray(end, coarse.count), start + fine.count);
    return joined;
  };
  return Columns.of(column('step'), column('value'), column('wall'), coarse.notFiniteSince);
}

/**
 * The answer does not say which attempt a point is of; attempts follow one another in time.
 * @param {Series} series
 * @param {number} wall
 */
function attemptAt(series, wall) {
  const numbers = [...series.attempts.keys()].sort((a, b) => b - a);
  const begun = numbers.find((number) => {
    const columns = /** @type {Columns} */ (series.attempts.get(number));
    return columns.count && columns.wall[0] <= wall;
  });
  return begun ?? numbers[numbers.length - 1] ?? 1;
}
