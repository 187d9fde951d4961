/** One chart card: title and current value, legend, plot and buttons. */

import { el, icon, setAttribute, setText } from '../elements/elements.js';
import { change, count, exact, isNumber, notFinite, range } from '../elements/numbers.js';
import { runColour } from '../elements/theme.js';
import { Columns, repeatsOf } from '../live/series_store.js';
import { sentenceOf } from '../server/request.js';
import { refined } from './chart_detail.js';
import { createPlot, placeOf, savePicture } from './chart_plot.js';
import { baselineOf, changeAt, linesOf, nearest } from './drawn_lines.js';

/** @typedef {import('./chart_groups.js').ChartSpec} ChartSpec */
/** @typedef {import('./chart_groups.js').LineSpec} LineSpec */
/** @typedef {import('./chart_lines.js').Flat} Flat */
/** @typedef {import('./drawn_lines.js').Drawn} Drawn */
/** @typedef {import('./drawn_lines.js').OriginsOf} OriginsOf */
/** @typedef {{from: number, to: number}} Zoom */
/** @typedef {{name: string, value: number|null}} Value */
/**
 * What cards share.
 * @typedef {{source: import('./run_source.js').Source, uPlot: any, theme: import('../elements/theme.js').Theme,
 *   highlighted: string|null, highlight: (key: string|null) => void, pointAt: (x: number|null, from: ChartCard) =>
 *   void, zoomTo: (zoom: Zoom|null, from: ChartCard) => void, changed: (card: ChartCard) => void}} Shared
 * `highlighted`: the key of the line that is drawn before all others
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
  /** The curve to which values are compared. @type {import('./group_lines.js').Curve|null} */
  _base = null;
  _isTold = false;
  _isPointed = false;
  _isFocused = false;
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
    this._zoom = shared.source.zoomOf(spec.id);
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
    const csv = this.shared.source.csvUrl?.(spec);
    this._csv.hidden = csv === undefined;
    setAttribute(this._csv, 'href', csv);
    this._buildLegend();
  }

  /** Name the section of the chart; '' where there is one alone. @param {string} title */
  setSection(title) {
    setText(this._section, this.spec.legend ? '' : title);
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
    this._markers = this.shared.source.markers?.(lines, origins, this) ?? [];
    plot.setData(joined(this.shared.uPlot, lines), !zoom);
    if (zoom) plot.setScale('x', { min: zoom.from, max: zoom.to });
    this.showHighlighted();
    if (zoom) void this._refine(zoom);
  }

  /** Steps that many points share say nothing about where these stand: then they stand in the order of logging. */
  _chooseAxis() {
    const before = this.xAxis;
    const { sharesAxis, settings } = this.shared.source;
    const { repeats, logged } = sharesAxis ? { repeats: 0, logged: 0 } : this._mostRepeats();
    const isOrder = settings.xAxis === 'step' && repeats > MANY_REPEATS * logged;
    this.xAxis = isOrder ? 'order' : settings.xAxis;
    this._repeated = repeats
      ? `${count(repeats)} of ${count(logged)} points repeat a step${isOrder ? ': in order of logging' : ''}`
      : '';
    if (before !== this.xAxis && [before, this.xAxis].includes('order')) this.resetZoom();
  }

  _mostRepeats() {
    return this.spec.lines
      .flatMap(({ name }) => this._storedOf(name) ?? [])
      .map(repeatsOf)
      .reduce((one, other) => (other.repeats > one.repeats ? other : one), { repeats: 0, logged: 0 });
  }

  /** @returns {OriginsOf} */
  _originsOf() {
    return this.xAxis === 'order' ? () => 'order' : this.shared.source.origins();
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
    // uPlot says so at each drawing, also where the pointer never was: then somebody else chose the line.
    if (x === null && !this._isPointed) return;
    this._isPointed = x !== null;
    this.shared.pointAt(x, this);
    this.shared.highlight(x === null ? null : this._nearestKey());
  }

  /** The key of the line that passes nearest to the pointer; null where lines have none. */
  _nearestKey() {
    const plot = this._plot;
    if (!plot) return null;
    const { cursor, data } = plot;
    let least = Infinity;
    /** @type {string|null} */
    let key = null;
    this._drawn.forEach((line, index) => {
      const at = this._plotted(index);
      const value = data[at]?.[cursor.idxs?.[at] ?? -1];
      if (value === null || value === undefined) return;
      const away = Math.abs(plot.valToPos(value, 'y') - (cursor.top ?? 0));
      if (away < least) [least, key] = [away, this._specOf(line).key ?? null];
    });
    return key;
  }

  /**
   * The number of a line among uPlot's series: the first is the axis, a smoothed line has two, one with a
   * band three.
   * @param {number} index
   */
  _plotted(index) {
    const before = this._drawn.slice(0, index).reduce((sum, line) => sum + (line.low ? 3 : line.smooth ? 2 : 1), 1);
    return before + (this._drawn[index].smooth ? 1 : 0);
  }

  /** Draw the highlighted line before all others, and show its values. */
  showHighlighted() {
    this._showValues();
    if (!this._plot || !this.isVisible) return;
    const index = this._drawn.findIndex((line) => this._isHighlighted(line));
    if (index < 0 && !this._isFocused) return;
    this._isFocused = index >= 0;
    this._plot.setSeries(index < 0 ? null : this._plotted(index), { focus: true }, false);
  }

  /** @param {Drawn} line */
  _isHighlighted(line) {
    const { highlighted } = this.shared;
    return highlighted !== null && this._specOf(line).key === highlighted;
  }

  /** @param {Drawn} line */
  _specOf(line) {
    return this.spec.lines[line.position];
  }

  /** Colours, axis or lines changed: the plot is rebuilt at the next drawing. */
  invalidate() {
    this._structure = '';
    this._buildLegend();
  }

  resetZoom() {
    if (this._zoom) this.shared.zoomTo(null, this);
  }

  /** Show this part of the axis, or all of it. @param {Zoom|null} zoom */
  show(zoom) {
    this._zoom = zoom;
    this._detail.clear();
    this._asked.clear();
    this._reset.style.visibility = zoom ? '' : 'hidden';
    setText(this._trouble, '');
    this.shared.changed(this);
  }

  /** What is loaded later is drawn no more. */
  destroy() {
    this.isVisible = false;
    this._plot?.destroy();
    this._plot = null;
  }

  get _height() {
    return this.element.classList.contains('wide') ? WIDE_HEIGHT_PX : HEIGHT_PX;
  }

  /** Differences may be negative. */
  get _isLog() {
    return this.shared.source.settings.logY && !this.spec.isRelative;
  }

  /** @param {LineSpec} line */
  _colour({ role }) {
    return runColour(role, this.shared.theme);
  }

  _buildLegend() {
    const { legend, lines, title } = this.spec;
    if (legend) {
      setText(this._legend, legend.text);
      setAttribute(this._legend, 'title', legend.title);
    } else this._buildChips();
    const named = legend
      ? ` of ${this.shared.source.subject(this.spec)}`
      : `: ${lines.map(({ name }) => name).join(', ')}`;
    setAttribute(this.element, 'aria-label', title + named);
  }

  _buildChips() {
    this._chips = this.spec.lines.map((line) => {
      const value = el('b', {});
      const swatch = el('i', {});
      swatch.style.background = this._colour(line);
      const chip = el('span', { class: 'chip', title: line.name }, swatch, el('span', { text: line.label }), value);
      return { chip, value };
    });
    this._legend.replaceChildren(...this._chips.map(({ chip }) => chip));
  }

  /** Whether one of its lines has enough points to be smoothed. */
  canSmooth() {
    return this.spec.lines.some((line) => this._isSmoothed(line));
  }

  /** @param {LineSpec} line */
  _isSmoothed(line) {
    const series = this._storedOf(line.name);
    return Boolean(line.smooth && series && countOf(series) >= FEWEST_SMOOTHED);
  }

  /** @param {string} name */
  _storedOf(name) {
    return this.shared.source.connection.store.series.get(name);
  }

  /** What is known of a series, as fine as it was loaded. @param {string} name */
  _seriesOf(name) {
    const series = this._storedOf(name);
    const detail = this._detail.get(name);
    return series && detail ? refined(series, detail) : series;
  }

  /** The lines to draw. @param {OriginsOf} origins @returns {Drawn[]} */
  _lines(origins) {
    /** @param {string} name */
    const seriesOf = (name) => this._seriesOf(name);
    this._base = baselineOf(this.spec, seriesOf, origins);
    return linesOf(this.spec, {
      ...this.shared.source.settings,
      isLog: this._isLog,
      zoom: this._zoom,
      width: this._width,
      base: this._base,
      origins,
      seriesOf,
      colourOf: (line) => this._colour(line),
      isSmoothed: (line) => this._isSmoothed(line),
    });
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
      onZoom: (from, to) => this.shared.zoomTo({ from, to }, this),
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

  _showValues() {
    const main = this._drawn.filter((line) => !line.isOld);
    const highlighted = main.find((line) => line.flat.count && this._isHighlighted(line));
    if (highlighted) this._showLine(highlighted);
    else this._showAll(main);
  }

  /** @param {Drawn} line */
  _showLine(line) {
    const { flat } = line;
    const [at, name] = [this._indexOf(flat), this._nameOf(line)];
    setText(this._value, this.spec.format(flat.y[at], 4));
    setAttribute(this._value, 'title', `${name} = ${exact(flat.y[at])}`);
    setText(this._note, `${name}, ${placeOf(flat.x[at], this.xAxis)}${this._beside(line, at)}`);
    this._note.classList.remove('warns');
  }

  /**
   * By how much a value differs from the baseline's at the same place, in words.
   * @param {Drawn} line
   * @param {number} at
   */
  _beside(line, at) {
    const { baseline, isGrouped, isRelative } = this.spec;
    const isBaseline = !isGrouped && this._specOf(line).run === baseline?.run;
    const percent = isRelative || isBaseline ? null : changeAt(this._base, line.flat.x[at], line.flat.y[at]);
    return percent === null ? '' : `, ${change(percent)} to baseline`;
  }

  /** @param {Drawn[]} main */
  _showAll(main) {
    const isNewest = this._pointedAt === null;
    const { format } = this.spec;
    let position = '';
    /** @type {Value[]} */
    const values = [];
    for (const line of main) {
      const index = this._indexOf(line.flat);
      const value = index < 0 ? null : line.flat.y[index];
      const [chip, name] = [this._chips[line.position], this._nameOf(line)];
      const hasValue = main.length > 1 && main.length <= MOST_VALUES;
      const where = isNewest || index < 0 ? '' : placeOf(line.flat.x[index], this.xAxis);
      position ||= where;
      // Lines that log at different steps have their nearest points at different steps.
      const elsewhere = where === position ? '' : ` (${where})`;
      if (chip) {
        setText(chip.value, value === null || !hasValue ? '' : format(value) + elsewhere);
        setAttribute(chip.chip, 'title', `${name} = ${exact(value)}${where && `, ${where}`}`);
      }
      values.push({ name, value });
    }
    this._showMain(values);
    const warning = this._warning(main);
    setText(this._note, position || warning || this._repeated);
    this._note.classList.toggle('warns', !position && warning !== '');
  }

  /**
   * The first line that ended as something that is no number; or that there is nothing to compare with.
   * @param {Drawn[]} lines
   */
  _warning(lines) {
    const { format, isRelative, isSpan } = this.spec;
    if (isRelative) return this._base ? '' : 'The baseline has no values here';
    for (const line of lines) {
      const { lastValue, notFiniteSince, lastNumber } = this.last(line);
      const text = notFinite(lastValue, notFiniteSince, lastNumber, format);
      if (text) return isSpan ? `${this._specOf(line).label}: ${text}` : text;
    }
    return '';
  }

  /** The point whose value is shown: at the pointer, else the newest. @param {Flat} flat */
  _indexOf(flat) {
    return this._pointedAt === null ? flat.count - 1 : nearest(flat, this._pointedAt);
  }

  /** The newest points of a line's series. @param {Drawn} line */
  last(line) {
    const series = this._storedOf(this._specOf(line).name);
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
    } else {
      const [shown] = isSpan ? finite : values;
      const value = shown?.value ?? null;
      setText(this._value, value === null ? '' : format(value, 4));
      setAttribute(this._value, 'title', shown && valueText(shown));
    }
  }

  /** What a line is called: where it has a key, by its label. @param {Drawn} line */
  _nameOf(line) {
    const { key, label, name } = this._specOf(line);
    return key === undefined ? name : label;
  }

  /** Load finer points of what is drawn, once. @param {Zoom} zoom */
  async _refine(zoom) {
    // Finer points of some steps would have no place in the order of all.
    if (this.xAxis === 'order') return;
    const lines = [...new Set(this._drawn.map((line) => this._specOf(line)))].filter(
      ({ name }) => !this._asked.has(name),
    );
    for (const { name } of lines) this._asked.add(name);
    for (const asked of this.shared.source.details(lines, zoom)) {
      try {
        const found = await asked;
        if (this._zoom !== zoom) return;
        for (const [name, series] of found) this._detail.set(name, series);
        this.shared.changed(this);
      } catch (error) {
        if (this._zoom === zoom) setText(this._trouble, `Finer points could not be read. ${sentenceOf(error)}`);
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
    const name = this.shared.source.subject(this.spec);
    void savePicture(this._plot.ctx.canvas, {
      title: this.spec.title,
      subtitle: `${name} · ${AXIS_WORDS[this.xAxis]}`,
      legend: this._drawn
        .filter((line) => !line.isOld)
        .map((line) => ({
          label: this._nameOf(line),
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

/** @param {import('../live/series_store.js').Series} series */
function countOf(series) {
  return [...series.attempts.values()].reduce((sum, columns) => sum + columns.count, 0);
}

/** @param {Parameters<typeof icon>[0]} name @param {string} label @param {() => void} onclick */
function action(name, label, onclick) {
  return el('button', { type: 'button', class: 'action', title: label, 'aria-label': label, onclick }, icon(name));
}
