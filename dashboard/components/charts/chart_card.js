/** One chart card: title and current value, legend, plot and buttons. */

import { el, icon, setAttribute, setText } from '../elements/elements.js';
import { count, exact, isNumber, notFinite, number, range, timeSpan } from '../elements/numbers.js';
import { Columns, repeatsOf } from '../live/series_store.js';
import { sentenceOf } from '../server/request.js';
import { fetchDetail, inside, refined } from './chart_detail.js';
import { eventMarkers } from './chart_groups.js';
import { drawable, firstAtLeast, flattened, stretches } from './chart_lines.js';
import { createPlot, csvUrl, savePicture } from './chart_plot.js';

/** @typedef {import('./chart_groups.js').ChartSpec} ChartSpec */
/** @typedef {import('./chart_groups.js').LineSpec} LineSpec */
/** @typedef {import('./chart_lines.js').Flat} Flat */
/** @typedef {{from: number, to: number}} Zoom */
/**
 * A line that is drawn: `low` and `high` bound the band of a group.
 * @typedef {import('./chart_lines.js').Line & {flat: Flat, position: number, colour: string, isOld: boolean,
 *   low?: (number|null)[], high?: (number|null)[]}} Drawn
 * @typedef {{name: string, value: number|null}} Value
 * @typedef {(line: {run?: string}|null) => import('./chart_lines.js').Origins} OriginsOf
 */
/**
 * What cards share.
 * @typedef {{connection: import('../live/live_connection.js').LiveConnection, uPlot: any, settings:
 *   {smoothing: number, xAxis: import('./chart_toolbar.js').XAxis, logY: boolean, older: boolean}, theme:
 *   import('../elements/theme.js').Theme, origins: () => (line: any) => import('./chart_lines.js').Origins,
 *   pointAt: (x: number|null, from: ChartCard) => void, changed: (card: ChartCard) => void}} Shared
 */

const AXIS_WORDS = {
  step: 'step',
  time: 'training time',
  wall: 'clock',
  samples: 'samples',
  epoch: 'epoch',
  order: 'order of logging',
};
const HEIGHT_PX = 224;
const WIDE_HEIGHT_PX = 416;
const MOST_VALUES = 5;
/** The lowest and the highest of every other pixel or so look like all points, and cost less to paint. */
const PIXELS_A_BUCKET = 1.25;
const FEW_POINTS = 40;
/** An average over fewer points than this draws what is not there. */
const FEWEST_SMOOTHED = 100;
/** Share of points that repeat a step, from which steps say nothing about where points stand. */
const MANY_REPEATS = 0.05;

export class ChartCard {
  /** @type {import('uplot')|null} */
  _plot = null;
  /** @type {Drawn[]} */
  _drawn = [];
  /** @type {import('./chart_plot.js').Marker[]} */
  _markers = [];
  /** @type {{chip: HTMLElement, value: HTMLElement}[]} */
  _chips = [];
  _isTold = false;
  /** @type {import('./chart_toolbar.js').XAxis} */
  xAxis = 'step';
  /** Says that points share steps. */
  _repeated = '';
  _title = el('h2', { class: 'title' });
  _section = el('span', { class: 'section' });
  _value = el('output', { class: 'value' });
  _legend = el('div', { class: 'legend' });
  _note = el('span', { class: 'note' });
  _trouble = el('span', { class: 'trouble', role: 'status' });
  _csv = el(
    'a',
    {
      class: 'action',
      download: '',
      title: 'Download the points as CSV',
      'aria-label': 'Download the points as CSV',
    },
    icon('table'),
  );
  _place = el('div', { class: 'plot' });
  _reset = action('reset', 'Reset zoom (double-click)', () => this.resetZoom());
  element = el(
    'section',
    { class: 'card' },
    el(
      'header',
      {},
      this._title,
      this._section,
      el(
        'div',
        { class: 'actions' },
        this._reset,
        action('image', 'Download as PNG', () => this._savePicture()),
        this._csv,
        action('wide', 'Larger or smaller', () => this._toggleWide()),
      ),
      this._value,
    ),
    el('div', { class: 'under' }, this._legend, this._note, this._trouble),
    this._place,
  );

  /** @param {ChartSpec} spec @param {Shared} shared */
  constructor(spec, shared) {
    this.spec = spec;
    this.shared = shared;
    this.isVisible = false;
    /** @type {Zoom|null} */
    this._zoom = shared.connection.kept.get(`zoom ${spec.id}`) ?? null;
    /** @type {Map<string, import('../live/series_store.js').Series>} */
    this._detail = new Map();
    /** @type {Set<string>} series whose finer points were asked for */
    this._asked = new Set();
    this._structure = '';
    this._width = 0;
    /** @type {number|null} */
    this._pointedAt = null;
    this._reset.style.visibility = this._zoom ? '' : 'hidden';
    this.setSpec(this.spec);
  }

  /** The chart has other lines now. @param {ChartSpec} spec */
  setSpec(spec) {
    this.spec = spec;
    setText(this._title, spec.title);
    this.element.dataset.series = spec.lines.map((line) => line.name).join(' ');
    setAttribute(this._csv, 'href', this._csvUrl());
    this._buildLegend();
  }

  /** Name the section of the chart; '' where there is one alone. @param {string} title */
  setSection(title) {
    setText(this._section, title);
  }

  /** @param {number} width of the plot, in CSS pixels */
  setWidth(width) {
    this._width = Math.floor(width);
  }

  /** Draw what is known now. */
  draw() {
    if (!this.shared.uPlot || this._width < 50) return;
    this._chooseAxis();
    const origins = this._originsOf();
    const lines = this._lines(origins);
    const [plot, zoom] = [this._plotFor(lines), this._zoom];
    if (plot.width !== this._width || plot.height !== this._height) {
      plot.setSize({ width: this._width, height: this._height });
    }
    this._drawn = lines;
    this._markers = this._findMarkers(lines, origins);
    plot.setData(joined(this.shared.uPlot, lines), !zoom);
    if (zoom) plot.setScale('x', { min: zoom.from, max: zoom.to });
    this._showValues();
    if (zoom) this._refine(zoom);
  }

  /** Steps that many points share say nothing about where these stand: then they stand in the order of logging. */
  _chooseAxis() {
    const before = this.xAxis;
    const { store } = this.shared.connection;
    const most = this.spec.lines
      .flatMap(({ name }) => store.series.get(name) ?? [])
      .map(repeatsOf)
      .reduce((one, other) => (other.repeats > one.repeats ? other : one), { repeats: 0, logged: 0 });
    const { xAxis } = this.shared.settings;
    const isOrder = xAxis === 'step' && this._mayOrder && most.repeats > MANY_REPEATS * most.logged;
    this.xAxis = isOrder ? 'order' : xAxis;
    this._repeated = most.repeats
      ? `${count(most.repeats)} of ${count(most.logged)} points repeat a step${isOrder ? ': in order of logging' : ''}`
      : '';
    if (this._zoom && before !== this.xAxis && [before, this.xAxis].includes('order')) this.resetZoom();
  }

  /** Whether it may take another axis than the charts beside it. */
  get _mayOrder() {
    return true;
  }

  /** @returns {OriginsOf} */
  _originsOf() {
    return this.xAxis === 'order' ? () => 'order' : this.shared.origins();
  }

  /** Show the values at a position of the x axis, or the current ones. @param {number|null} x */
  pointAt(x) {
    this._pointedAt = x;
    this._showValues();
    if (!this._plot || !this.isVisible) return;
    const left = x === null ? -10 : this._plot.valToPos(x, 'x');
    const isInside = left >= 0 && left <= this._plot.over.clientWidth;
    this._isTold = true;
    this._plot.setCursor({ left: isInside ? left : -10, top: isInside ? 1 : -10 }, false);
    this._isTold = false;
  }

  /** The pointer is at a position of the x axis; null when it left. @param {number|null} x */
  _pointed(x) {
    this.shared.pointAt(x, this);
  }

  /** Colours, axis or lines changed: the plot is rebuilt at the next drawing. */
  invalidate() {
    this._structure = '';
    this._buildLegend();
  }

  resetZoom() {
    this.shared.connection.kept.delete(`zoom ${this.spec.id}`);
    this._show(null);
  }

  /** Show this part of the axis, or all of it. @param {Zoom|null} zoom */
  _show(zoom) {
    this._zoom = zoom;
    this._detail.clear();
    this._asked.clear();
    this._reset.style.visibility = zoom ? '' : 'hidden';
    this.showTrouble('');
    this.shared.changed(this);
  }

  destroy() {
    this._plot?.destroy();
    this._plot = null;
  }

  get _height() {
    return this.element.classList.contains('wide') ? WIDE_HEIGHT_PX : HEIGHT_PX;
  }

  get _isLog() {
    return this.shared.settings.logY;
  }

  /** The curve as it is drawn. @param {Flat} flat */
  _related(flat) {
    return flat;
  }

  get _buckets() {
    return this._width / PIXELS_A_BUCKET;
  }

  /** @returns {string|null} */
  _csvUrl() {
    return csvUrl(this.shared.connection.runId, this.spec.lines);
  }

  /** @param {import('./chart_groups.js').LineSpec} line */
  _colour(line) {
    const { palette } = this.shared.theme;
    return palette[line.role % palette.length];
  }

  _buildLegend() {
    this._chips = this.spec.lines.map((line) => {
      const value = el('b', {});
      const swatch = el('i', {});
      swatch.style.background = this._colour(line);
      const chip = el('span', { class: 'chip', title: line.name }, swatch, el('span', { text: line.label }), value);
      return { chip, value };
    });
    this._legend.replaceChildren(...this._chips.map(({ chip }) => chip));
    setAttribute(
      this.element,
      'aria-label',
      `${this.spec.title}: ${this.spec.lines.map((line) => line.name).join(', ')}`,
    );
  }

  /** Whether one of its lines has enough points to be smoothed. */
  canSmooth() {
    return this.spec.lines.some((line) => this._isSmoothed(line));
  }

  /** @param {LineSpec} line */
  _isSmoothed(line) {
    const series = this.shared.connection.store.series.get(line.name);
    return Boolean(line.smooth && series && countOf(series) >= FEWEST_SMOOTHED);
  }

  /** What is known of a series, as fine as it was loaded. @param {string} name */
  _seriesOf(name) {
    const series = this.shared.connection.store.series.get(name);
    const detail = this._detail.get(name);
    return series && detail ? refined(series, detail) : series;
  }

  /**
   * The lines to draw: one per series, and one per series for points that newer attempts replaced.
   * @param {OriginsOf} origins
   * @returns {Drawn[]}
   */
  _lines(origins) {
    const { settings } = this.shared;
    const lines = [];
    for (const [position, line] of this.spec.lines.entries()) {
      const series = this._seriesOf(line.name);
      if (!series) continue;
      const parts = stretches(series.attempts);
      const how = {
        buckets: this._buckets,
        weight: this._isSmoothed(line) ? settings.smoothing : 0,
        onlyPositive: this._isLog,
      };
      const colour = this._colour(line);
      const flat = this._related(flattened(parts, origins(line)));
      lines.push({ ...drawable(flat, this._zoom, how), flat, position, colour, isOld: false });
      if (settings.older && (parts.length > 1 || parts.some((part) => part.replaced))) {
        const old = flattened(parts, origins(line), true);
        lines.push({
          ...drawable(old, this._zoom, { ...how, weight: 0 }),
          flat: old,
          position,
          colour,
          isOld: true,
        });
      }
    }
    return lines;
  }

  /** The plot for such lines, which is kept where they look as before. @param {Drawn[]} lines */
  _plotFor(lines) {
    const { theme, uPlot } = this.shared;
    const structure = JSON.stringify([
      lines.map((line) => [line.colour, line.isOld, line.smooth !== null, Boolean(line.low)]),
      this.xAxis,
      this._isLog,
      theme,
    ]);
    if (structure === this._structure && this._plot) return this._plot;
    this._structure = structure;
    this._plot?.destroy();
    return (this._plot = createPlot(uPlot, this._place, {
      width: this._width,
      height: this._height,
      xAxis: this.xAxis,
      logY: this._isLog,
      theme,
      strokes: lines.flatMap((line, index) => this._strokes(line, index)),
      markers: () => this._markers,
      window: () => this._zoom,
      format: this.spec.format,
      onCursor: (x) => {
        if (!this._isTold) this._pointed(x);
      },
      onZoom: (from, to) => this._zoomTo(from, to),
      onReset: () => this.resetZoom(),
    }));
  }

  /** @param {Drawn} line @param {number} index @returns {import('./chart_plot.js').Stroke[]} */
  _strokes(line, index) {
    const dots = () => this._drawn[index]?.x.length <= FEW_POINTS;
    const base = { colour: line.colour, dots };
    if (line.low)
      return [
        { ...base, strength: 1, width: 1.8 },
        { ...base, strength: 1, width: 0, band: 'low' },
        { ...base, strength: 1, width: 0, band: 'high' },
      ];
    if (line.isOld) return [{ ...base, strength: 0.55, width: 1, dash: [4, 4], dots: () => false }];
    if (!line.smooth) return [{ ...base, strength: 1, width: 1.6 }];
    const faint = this.shared.theme.dark ? 0.3 : 0.25;
    return [
      { ...base, strength: faint, width: 1, dots: () => false },
      { ...base, strength: 1, width: 1.8 },
    ];
  }

  /** @param {Drawn[]} lines @param {OriginsOf} origins @returns {import('./chart_plot.js').Marker[]} */
  _findMarkers(lines, origins) {
    const boundaries = lines.flatMap((line) => line.boundaries);
    /** @type {Map<number, number>} */
    const attempts = new Map(boundaries.map(([at, attempt]) => [attempt, at]));
    /** @type {{attempt: number, text: string}[]} */
    const changes = this.shared.connection.run?.attempt_changes ?? [];
    const sentences = new Map(changes.map(({ attempt, text }) => [attempt, text]));
    /** @type {import('./chart_plot.js').Marker[]} */
    const markers = [...attempts].map(([attempt, at]) => ({
      at,
      text: sentences.get(attempt) ?? `attempt ${attempt}`,
      short: String(attempt),
      warns: false,
    }));
    const isOrder = this.xAxis === 'order';
    if (!isOrder) markers.push(...eventMarkers(this.shared.connection.store.series.values(), origins(null)));
    for (const line of lines) {
      const { x, y, count: points } = line.flat;
      if (line.isOld || !points || Number.isFinite(y[points - 1])) continue;
      let first = points - 1;
      while (first > 0 && Object.is(y[first - 1], y[points - 1])) first -= 1;
      const { notFiniteSince } = this._last(line);
      const at = this.xAxis === 'step' ? (notFiniteSince ?? x[first]) : x[first];
      markers.push({
        at,
        text: notFinite(y[points - 1], notFiniteSince),
        short: number(y[points - 1]),
        warns: true,
      });
    }
    return markers;
  }

  _showValues() {
    const isNewest = this._pointedAt === null;
    const main = this._drawn.filter((line) => !line.isOld);
    const { format } = this.spec;
    let [warning, position] = ['', ''];
    /** @type {Value[]} */
    const values = [];
    for (const line of main) {
      const index = this._indexOf(line.flat);
      const value = index < 0 ? null : line.flat.y[index];
      const chip = this._chips[line.position];
      const spec = this.spec.lines[line.position];
      const hasValue = main.length > 1 && main.length <= MOST_VALUES;
      const where = isNewest || index < 0 ? '' : placeOf(line.flat.x[index], this.xAxis);
      position ||= where;
      // Lines that log at different steps have their nearest points at different steps.
      const elsewhere = where === position ? '' : ` (${where})`;
      setText(chip.value, value === null || !hasValue ? '' : format(value) + elsewhere);
      setAttribute(chip.chip, 'title', `${spec.name} = ${exact(value)}${where && `, ${where}`}`);
      values.push({ name: spec.name, value });
      const { lastValue, notFiniteSince, lastNumber } = this._last(line);
      warning ||= notFinite(lastValue, notFiniteSince, lastNumber, format);
    }
    this._showMain(values);
    setText(this._note, position || warning || this._repeated);
    this._note.classList.toggle('warns', !position && warning !== '');
  }

  /** The point whose value is shown: at the pointer, else the newest. @param {Flat} flat */
  _indexOf(flat) {
    return this._pointedAt === null ? flat.count - 1 : nearest(flat, this._pointedAt);
  }

  /** The newest points of a line's series. @param {Drawn} line */
  _last(line) {
    const series = this.shared.connection.store.series.get(this.spec.lines[line.position].name);
    return series?.attempts.get(Math.max(...series.attempts.keys())) ?? new Columns();
  }

  /**
   * The first line's value; of many alike, ranks for instance, the span from the least to the most.
   * @param {Value[]} values
   */
  _showMain(values) {
    const { format, isSpan } = this.spec;
    const finite = values.flatMap(({ name, value }) => (isNumber(value) ? [{ name, value }] : []));
    finite.sort((a, b) => a.value - b.value);
    /** @param {Value} value */
    const valueText = ({ name, value }) => `${name} = ${exact(value)}`;
    if (isSpan && finite.length > 1) {
      const [least, most] = [finite[0], finite[finite.length - 1]];
      setText(this._value, range(least.value, most.value, format));
      setAttribute(this._value, 'title', `${valueText(least)}\n${valueText(most)}`);
    } else if (values.length) {
      setText(this._value, values[0].value === null ? '' : format(values[0].value, 4));
      setAttribute(this._value, 'title', valueText(values[0]));
    }
  }

  /** The chart's run, for the title of a picture. */
  get _subject() {
    const { connection } = this.shared;
    return connection.run?.name || connection.runId;
  }

  /** @param {Drawn} line */
  _labelOf(line) {
    return this.spec.lines[line.position].name;
  }

  /** Say below the title why something is missing; '' when nothing is. @param {string} sentence */
  showTrouble(sentence) {
    setText(this._trouble, sentence);
  }

  /** @param {number} from @param {number} to */
  _zoomTo(from, to) {
    this.shared.connection.kept.set(`zoom ${this.spec.id}`, { from, to });
    this._show({ from, to });
  }

  /** Ask once for finer points of what is drawn. @param {Zoom} zoom */
  _refine(zoom) {
    const drawn = new Set(this._drawn.map(({ position }) => this.spec.lines[position]));
    // Finer points of some steps would have no place in the order of all.
    const lines = this.xAxis === 'order' ? [] : [...drawn].filter(({ name }) => !this._asked.has(name));
    for (const { name } of lines) this._asked.add(name);
    if (lines.length) void this._loadDetail(zoom, lines);
  }

  /** Load finer points of the part that is shown. @param {Zoom} zoom @param {LineSpec[]} lines */
  async _loadDetail(zoom, lines) {
    const { connection } = this.shared;
    const origins = this._originsOf()(null);
    for (const { name } of lines) {
      const series = connection.store.series.get(name);
      const steps = series && inside(series, zoom, origins);
      if (!series || !steps?.mayHaveMore) continue;
      try {
        const detail = await fetchDetail(connection.runId, series, steps);
        if (this._zoom !== zoom) return;
        this._detail.set(name, detail);
        this.shared.changed(this);
      } catch (error) {
        if (this._zoom === zoom) this.showTrouble(`Finer points could not be read. ${sentenceOf(error)}`);
      }
    }
  }

  _toggleWide() {
    this.element.classList.toggle('wide');
    this.element.scrollIntoView({ block: 'nearest' });
    this.shared.changed(this);
  }

  _savePicture() {
    const { theme } = this.shared;
    if (!this._plot) return;
    const name = this._subject;
    void savePicture(this._plot.ctx.canvas, {
      title: this.spec.title,
      subtitle: `${name} · ${AXIS_WORDS[this.xAxis]}`,
      legend: this._drawn
        .filter((line) => !line.isOld)
        .map((line) => ({
          label: this._labelOf(line),
          value: line.flat.count ? this.spec.format(line.flat.y[line.flat.count - 1]) : '',
          colour: line.colour,
        })),
      theme,
      fileName: `${name}-${this.spec.title}.png`,
    });
  }
}

/**
 * One x for all lines; where a line has no point of its own it has `undefined`.
 * @param {typeof import('uplot')} uPlot
 * @param {Drawn[]} lines
 * @returns {import('uplot').AlignedData}
 */
function joined(uPlot, lines) {
  /** @type {any[]} columns with gaps, which uPlot takes but its types do not know */
  const tables = lines.map((line) => [
    line.x,
    line.raw,
    ...(line.smooth ? [line.smooth] : []),
    ...(line.low ? [line.low, line.high] : []),
  ]);
  if (tables.length === 0) return [[]];
  return tables.length === 1 ? tables[0] : uPlot.join(tables);
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

/**
 * The place of a point that was logged, in words.
 * @param {number} x
 * @param {import('./chart_toolbar.js').XAxis} xAxis
 */
export function placeOf(x, xAxis) {
  if (xAxis === 'wall') return new Date(x * 1000).toLocaleString();
  if (xAxis === 'samples') return `${count(Math.round(x))} samples`;
  if (xAxis === 'order') return `point ${count(Math.round(x) + 1)}`;
  if (xAxis === 'epoch') return `epoch ${number(x, 4)}`;
  return xAxis === 'time' ? timeSpan(x) : `step ${count(x)}`;
}

/** @param {import('../live/series_store.js').Series} series */
function countOf(series) {
  return [...series.attempts.values()].reduce((sum, columns) => sum + columns.count, 0);
}

/** @param {Parameters<typeof icon>[0]} name @param {string} label @param {() => void} onclick */
function action(name, label, onclick) {
  return el('button', { type: 'button', class: 'action', title: label, 'aria-label': label, onclick }, icon(name));
}
