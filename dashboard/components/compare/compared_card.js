/** One series of several runs as a chart: a line a run, the one nearest to the pointer before all others. */

import { ChartCard, placeOf } from '../charts/chart_card.js';
import { flattened, stretches } from '../charts/chart_lines.js';
import { setAttribute, setText } from '../elements/elements.js';
import { change, changePercent, exact, notFinite, plural, range } from '../elements/numbers.js';
import { runColour } from '../elements/theme.js';
import { nameOf } from './comparison.js';
import { finitePoints, groupLine, valueAt } from './run_lines.js';

/**
 * With more runs than these the logged values are not drawn behind the smoothed ones: they would cover them.
 */
const MOST_WITH_LOGGED = 4;
const PIXELS_A_BUCKET = 2;

/** @typedef {import('../charts/chart_card.js').Drawn} Drawn */
/** @typedef {import('../charts/chart_card.js').OriginsOf} OriginsOf */
/** @typedef {import('../charts/chart_lines.js').Flat} Flat */
/** @typedef {import('../charts/chart_groups.js').LineSpec} LineSpec */
/** @typedef {import('../charts/chart_card.js').Zoom} Zoom */
/**
 * @typedef {import('../charts/chart_card.js').Shared & {zoomAll: (zoom: Zoom|null) => void, highlight: (key:
 *   string|null) => void, refine: (card: ComparedCard, zoom: Zoom, lines: LineSpec[]) => Promise<void>}} Shared
 */

export class ComparedCard extends ChartCard {
  /** @type {string|null} */
  _highlighted = null;
  /** @type {{x: number[], y: number[], count: number}|null} */
  _base = null;
  _isPointed = false;

  get _comparison() {
    return /** @type {import('./comparison.js').Comparison} */ (/** @type {unknown} */ (this.shared.connection));
  }

  get _page() {
    return /** @type {Shared} */ (this.shared);
  }

  /** @param {import('../charts/chart_groups.js').ChartSpec} spec */
  setSpec(spec) {
    super.setSpec(spec);
    this._csv.hidden = true;
  }

  /** Its title is the whole name of the series. */
  setSection() {}

  draw() {
    super.draw();
    this._focus();
  }

  /** Draw the line of a run or a group before all others; null for none. @param {string|null} key */
  highlight(key) {
    this._highlighted = key;
    this._focus();
    this._showValues();
  }

  /** All charts show this part of the axis. @param {Zoom|null} zoom */
  zoomTo(zoom) {
    this._show(zoom);
  }

  /**
   * Finer points for the part that is shown.
   * @param {Map<string, import('../live/series_store.js').Series>} found
   */
  refine(found) {
    for (const { name } of this.spec.lines) {
      const series = found.get(name);
      if (series) this._detail.set(name, series);
    }
    this.shared.changed(this);
  }

  resetZoom() {
    this._page.zoomAll(null);
  }

  /** @param {number} from @param {number} to */
  _zoomTo(from, to) {
    this._page.zoomAll({ from, to });
  }

  /** @param {Zoom} zoom @param {LineSpec[]} lines */
  async _loadDetail(zoom, lines) {
    await this._page.refine(this, zoom, lines);
  }

  /** @returns {string|null} */
  _csvUrl() {
    return null;
  }

  /** @param {import('../charts/chart_groups.js').LineSpec} line */
  _colour(line) {
    return runColour(this._itemOf(line).colour, this.shared.theme);
  }

  /** @param {import('../charts/chart_groups.js').LineSpec} line */
  _itemOf(line) {
    return this._comparison.itemOf(line.run ?? '');
  }

  get _subject() {
    return plural(this.spec.lines.length, 'run');
  }

  /** @param {Drawn} line */
  _labelOf(line) {
    return this._itemOf(this.spec.lines[line.position]).label;
  }

  /**
   * There is one legend for all charts, above them; here stands which series of different names are joined.
   */
  _buildLegend() {
    const names = new Set(this.spec.lines.map((line) => nameOf(line.name)));
    const others = [...names].filter((name) => name !== this.spec.title);
    setText(this._legend, others.length ? `includes ${others.join(', ')}` : '');
    const runs = this.spec.lines.map((line) => `${line.label}: ${nameOf(line.name)}`);
    setAttribute(
      this._legend,
      'title',
      others.length ? `The same figure of different loggers, by name:\n${runs.join('\n')}` : '',
    );
    setAttribute(this.element, 'aria-label', `${this.spec.title} of ${plural(this.spec.lines.length, 'run')}`);
  }

  /** All charts show the same part of one axis. */
  get _mayOrder() {
    return false;
  }

  /** Differences may be negative. */
  get _isLog() {
    return super._isLog && !this._comparison.isRelative;
  }

  /** The baseline's curve of this series; null where it has none. @param {OriginsOf} origins */
  _baselineCurve(origins) {
    const { baseline } = this._comparison;
    const series = this._seriesOf(this._comparison.keyOfShown(baseline ?? '', this.spec.id));
    return series ? finitePoints(flattened(stretches(series.attempts), origins({ run: baseline ?? '' }))) : null;
  }

  /**
   * The difference to the baseline in per cent, where that is shown instead of the values.
   * @param {Flat} flat
   */
  _related(flat) {
    if (!this._comparison.isRelative) return flat;
    const y = Array.from({ length: flat.count }, (_, i) => this._changeAt(flat.x[i], flat.y[i]) ?? NaN);
    return { ...flat, y };
  }

  /**
   * The change of a value to the baseline's at the same place, in per cent; null where that says nothing.
   * @param {number} x
   * @param {number} value
   */
  _changeAt(x, value) {
    return this._base?.count ? changePercent(value, valueAt(this._base, x)) : null;
  }

  /** @param {OriginsOf} origins @returns {Drawn[]} */
  _lines(origins) {
    this._base = this._baselineCurve(origins);
    const lines = super._lines(origins);
    if (this._comparison.groups) return this._groupLines(lines);
    if (lines.length <= MOST_WITH_LOGGED) return lines;
    return lines.map((line) => (line.smooth ? { ...line, raw: line.smooth, smooth: null } : line));
  }

  /** @param {Drawn[]} lines @returns {Drawn[]} */
  _groupLines(lines) {
    const { smoothing } = this.shared.settings;
    /** @type {Map<string, Drawn[]>} */
    const byKey = new Map();
    for (const line of lines) {
      const { key } = this._itemOf(this.spec.lines[line.position]);
      byKey.set(key, [...(byKey.get(key) ?? []), line]);
    }
    return [...byKey.values()].map((members) => {
      const [first] = members;
      const weight = this.spec.lines[first.position].smooth && members.some(({ smooth }) => smooth) ? smoothing : 0;
      const line = groupLine(
        members.map(({ flat }) => flat),
        this._zoom,
        { weight, onlyPositive: this._isLog },
      );
      return {
        ...first,
        ...line,
        smooth: null,
        boundaries: [],
        flat: { x: line.x, y: line.raw.map((value) => value ?? NaN), count: line.x.length, boundaries: [] },
      };
    });
  }

  get _buckets() {
    const runs = this.spec.lines.length;
    return runs > MOST_WITH_LOGGED ? Math.min(this._width / PIXELS_A_BUCKET, 12_000 / runs) : super._buckets;
  }

  /** @returns {import('../charts/chart_plot.js').Marker[]} */
  _findMarkers() {
    return [];
  }

  /** @param {number|null} x */
  _pointed(x) {
    // uPlot says so at each drawing, also where the pointer never was: then somebody else chose the run.
    if (x === null && !this._isPointed) return;
    this._isPointed = x !== null;
    super._pointed(x);
    this._page.highlight(x === null ? null : this._nearestRun());
  }

  /** The run whose line passes nearest to the pointer. */
  _nearestRun() {
    const plot = this._plot;
    if (!plot) return null;
    const { cursor, data } = plot;
    let least = Infinity;
    /** @type {string|null} */
    let run = null;
    this._drawn.forEach((line, index) => {
      const at = this._plotted(index);
      const value = data[at]?.[cursor.idxs?.[at] ?? -1];
      if (value === null || value === undefined) return;
      const away = Math.abs(plot.valToPos(value, 'y') - (cursor.top ?? 0));
      if (away < least) [least, run] = [away, this._itemOf(this.spec.lines[line.position]).key];
    });
    return run;
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

  _focus() {
    if (!this._plot || !this.isVisible) return;
    const index = this._drawn.findIndex(
      (line) => this._itemOf(this.spec.lines[line.position]).key === this._highlighted,
    );
    this._plot.setSeries(index < 0 ? null : this._plotted(index), { focus: true }, false);
  }

  _showValues() {
    const shown = this._drawn.filter(({ flat }) => flat.count);
    const run = shown.find(({ position }) => this._itemOf(this.spec.lines[position]).key === this._highlighted);
    const warning = run ? '' : this._notFinite(shown);
    if (run) this._showRun(run);
    else this._showSpan(shown);
    if (!run) setText(this._note, warning);
    this._note.classList.toggle('warns', warning !== '');
  }

  /** @param {Drawn} line */
  _showRun(line) {
    const { flat } = line;
    const label = this._labelOf(line);
    const at = this._indexOf(flat);
    setText(this._value, this.spec.format(flat.y[at], 4));
    setAttribute(this._value, 'title', `${label} = ${exact(flat.y[at])}`);
    setText(this._note, `${label}, ${placeOf(flat.x[at], this.xAxis)}${this._beside(line, at)}`);
  }

  /**
   * By how much a value differs from the baseline's at the same place, in words.
   * @param {Drawn} line
   * @param {number} at
   */
  _beside({ position, flat }, at) {
    const { baseline, groups, isRelative } = this._comparison;
    const isBaseline = !groups && this.spec.lines[position].run === baseline;
    const percent = isRelative || isBaseline ? null : this._changeAt(flat.x[at], flat.y[at]);
    return percent === null ? '' : `, ${change(percent)} to baseline`;
  }

  /** @param {Drawn[]} lines */
  _showSpan(lines) {
    const { format } = this.spec;
    const values = lines.map((line) => line.flat.y[this._indexOf(line.flat)]).filter(Number.isFinite);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    setText(this._value, values.length ? range(least, most, format) : '');
    setAttribute(this._value, 'title', 'The lowest and the highest of the runs');
  }

  /**
   * The first run whose values ended as something that is no number; or that there is nothing to compare
   * with.
   * @param {Drawn[]} lines
   */
  _notFinite(lines) {
    if (this._comparison.isRelative) return this._base?.count ? '' : 'The baseline has no values here';
    for (const line of lines) {
      const { lastValue, notFiniteSince } = this._last(line);
      const text = notFinite(lastValue, notFiniteSince);
      if (text) return `${this.spec.lines[line.position].label}: ${text}`;
    }
    return '';
  }
}
