/** The lines of a chart: of each series or of the mean of each group, as values or as differences to a baseline. */

import { changePercent } from '../elements/numbers.js';
import { drawable, firstAtLeast, flattened, stretches } from './chart_lines.js';
import { finitePoints, groupLine, valueAt } from './group_lines.js';

/** The lowest and the highest of every other pixel or so look like all points, and cost less to paint. */
const PIXELS_A_BUCKET = 1.25;
/** With more lines than these the logged values are not drawn behind the smoothed ones: they would cover them. */
const FEW_LINES = 4;
const PIXELS_A_BUCKET_OF_MANY = 2;
/** Buckets of all lines together, and the fewest of one. */
const [MOST_BUCKETS, FEWEST_BUCKETS] = [12_000, 100];

/** @typedef {import('./chart_groups.js').ChartSpec} ChartSpec */
/** @typedef {import('./chart_groups.js').LineSpec} LineSpec */
/** @typedef {import('./chart_lines.js').Flat} Flat */
/** @typedef {import('./group_lines.js').Curve} Curve */
/**
 * A line that is drawn: `low` and `high` bound the band of a group.
 * @typedef {import('./chart_lines.js').Line & {flat: Flat, position: number, colour: string, isOld: boolean,
 *   low?: (number|null)[], high?: (number|null)[]}} Drawn
 * @typedef {(line: {run?: string}|null) => import('./chart_lines.js').Origins} OriginsOf
 * @typedef {(name: string) => import('../live/series_store.js').Series|undefined} SeriesOf
 * @typedef {{smoothing: number, older: boolean, isLog: boolean, zoom: {from: number, to: number}|null, width: number,
 *   base: Curve|null, origins: OriginsOf, seriesOf: SeriesOf, colourOf: (line: LineSpec) => string, isSmoothed:
 *   (line: LineSpec) => boolean}} How `width`: in pixels
 */

/**
 * One line per series or group, and one per series for points that newer attempts replaced.
 * @param {ChartSpec} spec
 * @param {How} how
 * @returns {Drawn[]}
 */
export function linesOf(spec, how) {
  const lines = spec.lines.flatMap((line, position) => linesOfSeries(spec, line, position, how));
  if (spec.isGrouped) return means(spec, lines, how);
  if (spec.lines.length <= FEW_LINES) return lines;
  return lines.map((line) => (line.smooth ? { ...line, raw: line.smooth, smooth: null } : line));
}

/**
 * The curve of the baseline; null where it has none.
 * @param {ChartSpec} spec
 * @param {SeriesOf} seriesOf
 * @param {OriginsOf} origins
 */
export function baselineOf({ baseline }, seriesOf, origins) {
  const series = baseline && seriesOf(baseline.name);
  const curve = series && finitePoints(flattened(stretches(series.attempts), origins(baseline)));
  return curve?.count ? curve : null;
}

/**
 * The change of a value to the baseline's at the same place, in per cent; null where that says nothing.
 * @param {Curve|null} base
 * @param {number} x
 * @param {number} value
 */
export function changeAt(base, x, value) {
  return base && changePercent(value, valueAt(base, x));
}

/**
 * @param {Flat} flat
 * @param {number} at
 * @returns {number} the index of the nearest point; -1 where there is none
 */
export function nearest(flat, at) {
  if (!flat.count) return -1;
  const after = Math.min(flat.count - 1, firstAtLeast(flat.x, flat.count, at));
  return after > 0 && at - flat.x[after - 1] < flat.x[after] - at ? after - 1 : after;
}

/** @param {ChartSpec} spec @param {LineSpec} line @param {number} position @param {How} how @returns {Drawn[]} */
function linesOfSeries(spec, line, position, how) {
  const series = how.seriesOf(line.name);
  if (!series) return [];
  const [parts, origins] = [stretches(series.attempts), how.origins(line)];
  /** @param {Flat} flat @param {boolean} isOld @returns {Drawn} */
  const drawn = (flat, isOld) => {
    const weight = !isOld && how.isSmoothed(line) ? how.smoothing : 0;
    const shown = drawable(flat, how.zoom, { buckets: bucketsOf(spec, how), weight, onlyPositive: how.isLog });
    return { ...shown, flat, position, colour: how.colourOf(line), isOld };
  };
  const lines = [drawn(related(flattened(parts, origins), spec, how.base), false)];
  const hasOlder = parts.length > 1 || parts.some((part) => part.replaced);
  return how.older && hasOlder ? [...lines, drawn(flattened(parts, origins, true), true)] : lines;
}

/** @param {ChartSpec} spec @param {How} how */
function bucketsOf({ lines }, { width }) {
  if (lines.length <= FEW_LINES) return width / PIXELS_A_BUCKET;
  return Math.min(width / PIXELS_A_BUCKET_OF_MANY, Math.max(FEWEST_BUCKETS, MOST_BUCKETS / lines.length));
}

/**
 * The difference to the baseline in per cent, where that is shown instead of values.
 * @param {Flat} flat
 * @param {ChartSpec} spec
 * @param {Curve|null} base
 * @returns {Flat}
 */
function related(flat, { isRelative }, base) {
  if (!isRelative) return flat;
  if (!base) return { ...flat, count: 0 };
  return { ...flat, y: Array.from({ length: flat.count }, (_, i) => changeAt(base, flat.x[i], flat.y[i]) ?? NaN) };
}

/**
 * A line for each group, whose members share a key.
 * @param {ChartSpec} spec
 * @param {Drawn[]} lines
 * @param {How} how
 * @returns {Drawn[]}
 */
function means(spec, lines, { zoom, smoothing, isLog }) {
  /** @type {Map<string|undefined, Drawn[]>} */
  const groups = new Map();
  for (const line of lines) {
    const { key } = spec.lines[line.position];
    groups.set(key, [...(groups.get(key) ?? []), line]);
  }
  return [...groups.values()].map((members) => {
    const weight = members.some(({ smooth }) => smooth) ? smoothing : 0;
    const flats = members.map(({ flat }) => flat);
    const line = groupLine(flats, zoom, { weight, onlyPositive: isLog });
    const y = line.raw.map((value) => value ?? NaN);
    return {
      ...members[0],
      ...line,
      smooth: null,
      boundaries: [],
      flat: { x: line.x, y, count: y.length, boundaries: [] },
    };
  });
}
