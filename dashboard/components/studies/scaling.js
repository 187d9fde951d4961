/** Scaling studies: speed-up over devices beside the ideal line, global batches side by side, tables with links. */

import { el, mountOnce, svg } from '../elements/elements.js';
import { follow, pageUrl } from '../links/links.js';

const HEIGHT = 300;
const MOST_WIDTH = 896;
const MARGIN = { top: 14, right: 24, bottom: 42, left: 48 };
const TICKS = 5;

/** Draw again with new points. @param {import('../elements/elements.js').Component} component */
export const mount = (component) =>
  mountOnce(
    { data: null, parentElement: component.parentElement, picture: component.data },
    (first) => new Scaling(first),
  );

/**
 * @typedef {{devices: number, curve: string, speedup: number|null, low: number, high: number, label: string}}
 *   Point
 */
/** @typedef {{id: string, name: string, shade?: number}} Curve */
/**
 * @typedef {{points: Point[], curves: Curve[], base: number, rule: [number, number, number][], unit: string,
 *   source: string}} Chart
 */
/** @typedef {{columns: string[], rows: {cells: string[], at: number, address: string|null}[]}} Table */
/**
 * @typedef {{columns: string[], best: number|null, rows: {title: string, cells: {text: string, title?:
 *   string, mark?: string}[]}[]}} Batches
 */

class Scaling {
  /** @type {Chart|null} */
  _shownChart = null;
  /** @type {(() => void)|undefined} */
  _left;
  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    this._chart = el('figure', { class: 'chart' });
    this._batches = el('div', { class: 'scroll batches', hidden: true });
    this._table = el('div', { class: 'scroll' });
    this._root = el(
      'section',
      { class: 'scaling', 'aria-label': component.picture?.label ?? 'Scaling' },
      this._chart,
      this._batches,
      this._table,
    );
    component.parentElement.append(this._root);
    this._observer = new ResizeObserver(() => this._draw());
    this._observer.observe(this._root);
    this.refresh(component);
  }

  /** @param {import('../elements/elements.js').Component} component */
  refresh({ picture }) {
    if (!picture) return;
    this._shownChart = picture.chart;
    this._left?.();
    this._batches.hidden = !picture.batches;
    if (picture.batches)
      this._batches.replaceChildren(batchesTable(picture.batches), el('p', { text: picture.batches.note }));
    this._table.replaceChildren(
      /** @param {Table} table @param {(left: () => void) => void} onLeft */
      table(picture, (/** @type {() => void} */ left) => {
        this._left = left;
      }),
    );
    this._draw();
  }

  _draw() {
    const chart = this._shownChart;
    this._chart.hidden = !chart;
    const width = Math.min(MOST_WIDTH, this._chart.clientWidth);
    if (chart && width) this._chart.replaceChildren(drawing(chart, width), legend(chart));
  }

  destroy() {
    this._observer.disconnect();
    this._left?.();
    this._root.remove();
  }
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
      svg('text', { class: 'tick', x: MARGIN.left - 8, y: y(speedup) + 4, 'text-anchor': 'end' }, `${speedup}x`),
    );
  }
  for (const devices of sizes) {
    root.append(
      svg('text', { class: 'tick', x: x(devices), y: HEIGHT - 24, 'text-anchor': 'middle' }, String(devices)),
    );
  }
  root.append(
    svg('text', { class: 'tick', x: (width + MARGIN.left) / 2, y: HEIGHT - 6, 'text-anchor': 'middle' }, unit),
  );
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

/**
 * A column for each global batch; the one to choose stands out, and so do cells with a mark.
 * @param {Batches} batches
 */
function batchesTable({ columns, best, rows }) {
  /** @param {number} number */
  const chosen = (number) => (number && number === best ? 'best' : '');
  const head = columns.map((text, number) => el('th', { scope: 'col', class: chosen(number), text }));
  const lines = rows.map(({ title, cells }) =>
    el(
      'tr',
      {},
      el('th', { scope: 'row', text: title }),
      ...cells.map((cell, number) =>
        el(
          'td',
          { class: chosen(number + 1), title: cell.title ?? '' },
          el('span', { text: cell.text }),
          cell.mark ? el('em', { class: cell.mark, text: cell.mark }) : null,
        ),
      ),
    ),
  );
  return el('table', {}, el('thead', {}, el('tr', {}, ...head)), el('tbody', {}, ...lines));
}

/** @param {Table} table @param {(left: () => void) => void} onLeft */
function table({ columns, rows }, onLeft) {
  const head = el('tr', {}, ...columns.map((text) => el('th', { scope: 'col', text })));
  const lines = rows.map(({ cells, at, address }) =>
    el(
      'tr',
      {},
      ...cells.map((text, number) =>
        el('td', {}, number === at && address ? link(text, address, onLeft) : el('span', { text })),
      ),
    ),
  );
  return el('table', {}, el('thead', {}, head), el('tbody', {}, ...lines));
}

/** @param {string} text @param {string} address @param {(left: () => void) => void} onLeft */
function link(text, address, onLeft) {
  const anchor = el('a', { text, href: pageUrl(address) });
  anchor.addEventListener('click', (event) => {
    const left = follow(event, anchor);
    if (left) onLeft(left);
  });
  return anchor;
}
