/** A scaling study drawn: speed-up over devices beside the ideal line, global batches side by side, and its points. */

import { el, svg } from '../elements/elements.js';

const HEIGHT = 300;
const MOST_WIDTH = 896;
const MARGIN = { top: 14, right: 24, bottom: 42, left: 48 };
const TICKS = 5;

/**
 * @typedef {{devices: number, curve: string, speedup: number|null, low: number, high: number, label: string}}
 *   Point
 */
/** @typedef {{id: string, name: string, shade?: number}} Curve */
/**
 * @typedef {{points: Point[], curves: Curve[], base: number, rule: [number, number, number][], unit: string,
 *   source: string}} Chart
 */
/**
 * @typedef {{columns: string[], best: number|null, note: string, rows: {title: string, cells:
 *   import('./table.js').Cell[]}[]}} Batches
 */
/**
 * @typedef {{columns: string[], rows: {cells: string[], at?: number, address?: string}[], chart?: Chart|null, batches?:
 *   Batches|null}} Scaling without a chart also any list of studies
 */

/** @param {Scaling} scaling @returns {import('./studies.js').Picture} */
export function scalingPicture({ chart, batches, columns, rows }) {
  return {
    figures: chart ? [(width) => [drawing(chart, Math.min(MOST_WIDTH, width)), legend(chart)]] : [],
    tables: [
      ...(batches ? [batchesTable(batches)] : []),
      {
        columns: columns.map((text) => ({ text })),
        rows: rows.map(({ cells, at, address }) => ({
          cells: cells.map((text, place) => ({ text, address: place === at ? address : null })),
        })),
      },
    ],
    note: '',
    isLive: false,
  };
}

/**
 * A column for each global batch; the one to choose stands out.
 * @param {Batches} batches
 * @returns {import('./studies.js').Picture['tables'][number]}
 */
function batchesTable({ columns, best, rows, note }) {
  return {
    kind: 'batches',
    note,
    columns: columns.map((text, at) => ({ text, kind: at && at === best ? 'best' : '' })),
    rows: rows.map(({ title, cells }) => ({ cells: [{ text: title, isHead: true }, ...cells] })),
  };
}

/** @param {Chart} chart @param {number} width */
function drawing({ points, curves, base, rule, unit }, width) {
  const sizes = [...new Set(points.map((point) => point.devices))].sort((one, other) => one - other);
  const most = Math.max(...sizes);
  const highest = Math.max(most / base, ...points.map((point) => point.high ?? 0)) * 1.05;
  /** @param {number} devices */
  const x = (devices) => MARGIN.left + ((width - MARGIN.left - MARGIN.right) * devices) / most;
  /** @param {number} speedup */
  const y = (speedup) => HEIGHT - MARGIN.bottom - ((HEIGHT - MARGIN.top - MARGIN.bottom) * speedup) / highest;
  const root = svg('svg', { width, height: HEIGHT, role: 'img', 'aria-label': `Speed-up over ${unit}` });
  for (const speedup of ticks(highest)) {
    root.append(
      svg('line', {
        class: 'grid',
        x1: MARGIN.left,
        x2: width - MARGIN.right,
        y1: y(speedup),
        y2: y(speedup),
      }),
      svg('text', { x: MARGIN.left - 8, y: y(speedup) + 4, 'text-anchor': 'end' }, `${speedup}x`),
    );
  }
  for (const devices of sizes) {
    root.append(svg('text', { x: x(devices), y: HEIGHT - 24, 'text-anchor': 'middle' }, String(devices)));
  }
  root.append(svg('text', { x: (width + MARGIN.left) / 2, y: HEIGHT - 6, 'text-anchor': 'middle' }, unit));
  root.append(svg('line', { class: 'ideal', x1: x(0), y1: y(0), x2: x(most), y2: y(most / base) }));
  for (const [devices, low, high] of rule) root.append(thumb(x(devices), y(low), y(high)));
  for (const curve of curves) {
    const line = points
      .flatMap((point) => (point.curve === curve.id && isMeasured(point) ? [point] : []))
      .sort((one, other) => one.devices - other.devices);
    const path = line.map((point) => `${x(point.devices)},${y(point.speedup)}`).join(' ');
    root.append(svg('polyline', { ...hue(curve, 'line'), points: path }));
    for (const point of line) root.append(mark(point, curve, x(point.devices), y));
  }
  return root;
}

/** @typedef {Point & {speedup: number}} Measured */

/** @param {Point} point @returns {point is Measured} */
const isMeasured = (point) => point.speedup !== null;

/** @param {number} highest */
function ticks(highest) {
  const steps = [0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10000];
  const step = steps.find((size) => highest / size <= TICKS) ?? 50000;
  return Array.from({ length: Math.floor(highest / step) + 1 }, (_, number) => number * step);
}

/** @param {number} x @param {number} low @param {number} high */
function thumb(x, low, high) {
  return svg('rect', {
    class: 'thumb',
    x: x - 9,
    width: 18,
    y: Math.min(low, high) - 2,
    height: Math.abs(low - high) + 4,
  });
}

/**
 * The colour of a curve: by its strategy, or between two hues by its global batch.
 * @param {Curve} curve
 * @param {string} kind
 */
function hue({ id, shade }, kind) {
  return shade === undefined
    ? { class: `${kind} ${id}` }
    : { class: `${kind} shaded`, style: `--shade: ${Math.round(100 * shade)}%` };
}

/** @param {Measured} point @param {Curve} curve @param {number} x @param {(speedup: number) => number} y */
function mark(point, curve, x, y) {
  const group = svg('g', hue(curve, 'point'));
  // The ideal line lies above the points: figures above them would be crossed by it.
  const label = { x, y: y(Math.min(point.low, point.speedup)) + 18 };
  group.append(
    svg('title', {}, point.label),
    svg('path', {
      class: 'spread',
      d: `M${x - 5} ${y(point.low)}h10M${x - 5} ${y(point.high)}h10M${x} ${y(point.low)}V${y(point.high)}`,
    }),
    svg('circle', { cx: x, cy: y(point.speedup), r: 4.5 }),
  );
  // Curves of several global batches lie close together: their figures are in the table and the title.
  if (curve.shade === undefined)
    group.append(svg('text', { ...label, 'text-anchor': 'middle' }, `${point.speedup.toFixed(2)}x`));
  return group;
}

/** @param {Chart} chart */
function legend({ curves, rule, source }) {
  return el(
    'figcaption',
    {},
    ...curves.map((curve) => el('span', {}, el('i', hue(curve, '')), el('span', { text: curve.name }))),
    el('span', {}, el('i', { class: 'ideal' }), el('span', { text: 'ideal' })),
    rule.length
      ? el('span', { title: source }, el('i', { class: 'thumb' }), el('span', { text: 'rule of thumb' }))
      : null,
  );
}
