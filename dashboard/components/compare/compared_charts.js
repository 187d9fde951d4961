/** The charts of several runs: one for each series, with the same zoom, pointer and highlighted run. */

import { inside } from '../charts/chart_detail.js';
import { byOrder, chartsFor } from '../charts/chart_groups.js';
import { timeOrigins } from '../charts/chart_lines.js';
import { loadSettings } from '../charts/chart_toolbar.js';
import { Charts } from '../charts/charts.js';
import { choose, chosen } from '../elements/address.js';
import { el, setAttribute, setText, toggle } from '../elements/elements.js';
import { change } from '../elements/numbers.js';
import { sentenceOf } from '../server/request.js';
import { ComparedCard } from './compared_card.js';
import { keyOf, nameOf, runOf } from './comparison.js';
import { EPOCH_NAMES, epochAxis, samplesAxis } from './run_lines.js';

/** @typedef {import('./compared_card.js').Zoom} Zoom */
/** @typedef {import('./comparison.js').ComparedRun} ComparedRun */

/** @type {[string, string, string][]} */
const AXES = [
  ['step', 'Step', 'Optimizer steps'],
  ['samples', 'Samples', 'Samples seen: each step counts the global batch of its attempt'],
  ['epoch', 'Epoch', 'Epochs, as the script logs them'],
  ['time', 'Relative', 'Time spent training; pauses between attempts do not count'],
  ['wall', 'Clock', 'The time of day at which points were logged'],
];
const WALL = new Map();
const NOWHERE = () => NaN;
const MOST_NAMES = 5;

export class ComparedCharts extends Charts {
  /** @type {string|null} */
  _highlighted = null;
  _zoom = zoomFrom();
  _isRelative = chosen('relative') === '1';
  _relative = toggle('% of baseline', '', this._isRelative, (on) => {
    this._isRelative = on;
    this._relate();
  });
  _unknown = el('p', { class: 'unknown-axis', role: 'status', hidden: true });
  _firstAxis = this.settings.xAxis;

  /**
   * @param {import('../elements/elements.js').Component} component
   * @param {import('./comparison.js').Comparison} comparison
   */
  constructor(component, comparison) {
    super(component, comparison);
    this._comparison = comparison;
    this._endings.push(comparison.on('batches', () => this._redrawAll()));
    this._relative.hidden = true;
    this._toolbar.element.append(this._relative);
    this._empty.before(this._unknown);
    Object.assign(this._shared, {
      highlight: (/** @type {string|null} */ run) => this.highlight(run),
      zoomAll: (/** @type {Zoom|null} */ zoom) => this._zoomAll(zoom),
      refine: this._refine.bind(this),
    });
    this._query = chosen('q') ?? '';
    const input = this._toolbar.element.querySelector('input');
    if (input) input.value = this._query;
  }

  get _compared() {
    return /** @type {ComparedCard[]} */ ([...this._cards.values()]);
  }

  /**
   * Draw a run or a group before all others, in every chart; null for none.
   * @param {string|null} run its key
   */
  highlight(run) {
    if (run === this._highlighted) return;
    this._highlighted = run;
    for (const card of this._compared) card.highlight(run);
    this._comparison.highlighted?.(run);
  }

  /** The runs are grouped, or by themselves again. */
  regroup() {
    this._highlighted = null;
    for (const card of this._cards.values()) card.invalidate();
    this._redrawAll();
  }

  /** The run to which differences are shown. @param {string|null} run @param {string|null} name */
  setBaseline(run, name) {
    this._relative.hidden = run === null;
    setAttribute(this._relative, 'title', `Show the difference to ${name ?? run} in per cent instead of values`);
    if (run === this._comparison.baseline) return;
    this._comparison.baseline = run;
    this._relate();
  }

  /** Show values, or differences in per cent. */
  _relate() {
    const { baseline } = this._comparison;
    this._comparison.isRelative = this._isRelative && baseline !== null;
    choose({ relative: this._isRelative ? '1' : null });
    for (const card of this._cards.values()) card.invalidate();
    this._arrange();
    this._redrawAll();
  }

  /** Other runs are hidden now. */
  rearrange() {
    this._arrange();
    this._redrawAll();
  }

  _loadSettings() {
    return settingsFrom(loadSettings());
  }

  _axes() {
    return AXES;
  }

  /** The axis may need more than the charts show. */
  _want() {
    super._want();
    const { xAxis } = this.settings;
    if (xAxis === 'samples') this._comparison.wantBatches();
    this._comparison.want(
      'axis',
      xAxis === 'epoch'
        ? this._comparison.runs.map(({ id }) => this._epochKey(id)).filter((key) => key !== undefined)
        : [],
    );
    this._showUnknown();
  }

  /** @param {Set<string>} names */
  _seriesChanged(names) {
    if (this.settings.xAxis === 'samples') this._comparison.wantBatches();
    super._seriesChanged(names);
    if (this.settings.xAxis === 'epoch' && [...names].some((key) => EPOCH_NAMES.includes(nameOf(key))))
      this._redrawAll();
  }

  _redrawAll() {
    this._showUnknown();
    super._redrawAll();
  }

  /** The series with the epochs of a run; undefined where its script logs none. @param {string} run */
  _epochKey(run) {
    return EPOCH_NAMES.map((name) => keyOf(run, name)).find((key) => this._comparison.sources.has(key));
  }

  /** Name the runs that have no place on the axis. */
  _showUnknown() {
    const { batches, hidden, runs } = this._comparison;
    const { xAxis } = this.settings;
    const shown = runs.filter((run) => !hidden.has(run.id));
    /** @param {ComparedRun} run */
    const isUnknown = ({ id }) => {
      if (xAxis === 'samples') return batches !== null && samplesAxis(batches[id] ?? []) === null;
      return xAxis === 'epoch' && this._comparison.status === 'live' && !this._epochKey(id);
    };
    const names = shown.filter(isUnknown).map(({ id, name }) => name || id);
    const listed =
      names.length > MOST_NAMES
        ? `${names.slice(0, MOST_NAMES).join(', ')} and ${names.length - MOST_NAMES} more`
        : names.join(', ');
    const reason =
      xAxis === 'samples'
        ? 'Samples are not known where the script sets its own batch size'
        : 'Epochs are not known where the script logs no series “epoch”';
    setText(this._unknown, names.length ? `${reason}: ${listed}.` : '');
    this._unknown.hidden = names.length === 0;
  }

  /** @param {string} query */
  _filter(query) {
    choose({ q: query });
    super._filter(query);
  }

  /** A part of one axis is no part of another. */
  _restructured() {
    if ((chosen('x') ?? this._firstAxis) !== this.settings.xAxis) this._zoomAll(null);
    this._writeSettings();
    this._want();
    super._restructured();
  }

  _smoothed() {
    this._writeSettings();
    super._smoothed();
  }

  _writeSettings() {
    const { xAxis, logY, smoothing } = this.settings;
    choose({ x: xAxis, log: logY ? '1' : '0', smoothing: smoothing.toFixed(2) });
  }

  /** @param {import('../charts/chart_groups.js').ChartSpec} spec */
  _newCard(spec) {
    const card = new ComparedCard(spec, this._shared);
    if (this._zoom) card.zoomTo(this._zoom);
    return card;
  }

  _specs() {
    const { hidden, isRelative, runs, position, sources } = this._comparison;
    /** @param {ComparedRun} run @param {string} name */
    const own = (run, name) => this._comparison.keyOfShown(run.id, name);
    const unit = isRelative ? { format: change, unit: '%' } : {};
    /** @type {Map<string, string>} */
    const names = new Map();
    for (const [key, source] of sources)
      if (!names.has(this._comparison.shownName(key))) names.set(this._comparison.shownName(key), source);
    const shown = runs.filter((run) => !hidden.has(run.id));
    const specs = [...names].flatMap(([name, source]) =>
      chartsFor([{ name, source }]).map((spec) => ({
        ...spec,
        ...unit,
        id: name,
        title: name,
        isSpan: true,
        lines: shown
          .filter((run) => sources.has(own(run, name)))
          .map((run) => ({
            name: own(run, name),
            label: run.name,
            role: position.get(run.id) ?? 0,
            smooth: spec.lines[0].smooth,
            run: run.id,
          })),
      })),
    );
    return specs.sort(byOrder);
  }

  /** @returns {import('../charts/chart_card.js').OriginsOf} */
  _originsNow() {
    if (this.settings.xAxis === 'step') return () => null;
    if (this.settings.xAxis === 'wall') return () => WALL;
    if (this.settings.xAxis !== 'time') return this._placesNow();
    /** @type {Map<string, Map<number, [number, number]>>} */
    const byRun = new Map();
    for (const [key, { attempts }] of this._comparison.store.series) {
      const run = runOf(key);
      const spans = byRun.get(run) ?? new Map();
      byRun.set(run, spans);
      for (const [attempt, columns] of attempts) {
        if (!columns.count) continue;
        const [first, last] = spans.get(attempt) ?? [Infinity, -Infinity];
        spans.set(attempt, [Math.min(first, columns.wall[0]), Math.max(last, columns.wall[columns.count - 1])]);
      }
    }
    const origins = new Map([...byRun].map(([run, spans]) => [run, timeOrigins(spans)]));
    return (line) => origins.get(line?.run ?? '') ?? WALL;
  }

  /**
   * Where the steps of each run stand on an axis of samples or epochs.
   * @returns {import('../charts/chart_card.js').OriginsOf}
   */
  _placesNow() {
    const { batches, runs, store } = this._comparison;
    const isEpoch = this.settings.xAxis === 'epoch';
    /** @param {string} run */
    const axisOf = (run) =>
      isEpoch ? epochAxis(store.series.get(this._epochKey(run) ?? '')) : samplesAxis(batches?.[run] ?? []);
    const places = new Map(runs.map(({ id }) => [id, axisOf(id) ?? NOWHERE]));
    return (line) => places.get(line?.run ?? '') ?? NOWHERE;
  }

  /** Replaced points are those of one run. */
  _countAttempts() {
    return 0;
  }

  /** @param {Zoom|null} zoom */
  _zoomAll(zoom) {
    this._zoom = zoom;
    choose({ zoom: zoom ? `${zoom.from},${zoom.to}` : null });
    for (const card of this._compared) card.zoomTo(zoom);
  }

  /**
   * Load finer points of the part that a chart shows.
   * @param {ComparedCard} card
   * @param {Zoom} zoom
   * @param {import('../charts/chart_groups.js').LineSpec[]} lines
   */
  async _refine(card, zoom, lines) {
    const { store } = this._comparison;
    const origins = this._originsNow();
    const steps = { first: Infinity, last: -Infinity };
    for (const line of lines) {
      const series = store.series.get(line.name);
      if (!series) continue;
      const { first, last } = inside(series, zoom, origins(line));
      steps.first = Math.min(steps.first, first);
      steps.last = Math.max(steps.last, last);
    }
    if (steps.last <= steps.first) return;
    try {
      const detail = await this._comparison.detail([...new Set(lines.map((line) => nameOf(line.name)))], steps);
      if (this._zoom === zoom) card.refine(detail);
    } catch (error) {
      if (this._zoom === zoom) card.showTrouble(`Finer points could not be read. ${sentenceOf(error)}`);
    }
  }

  _emptySentence() {
    if (this._comparison.status === 'reconnecting') return 'Rankzero does not answer. Trying again…';
    if (this._comparison.status === 'connecting') return 'Connecting…';
    return 'None of these runs has logged a point yet.';
  }
}

/** @type {import('../charts/chart_toolbar.js').XAxis[]} */
const X_AXES = ['step', 'samples', 'epoch', 'time', 'wall'];

/**
 * The settings of the charts, from the address; what it leaves out is as the browser remembers it.
 * @param {import('../charts/chart_toolbar.js').Settings} remembered
 * @returns {import('../charts/chart_toolbar.js').Settings}
 */
function settingsFrom(remembered) {
  const [axis, smoothing] = [chosen('x'), Number(chosen('smoothing') ?? NaN)];
  return {
    ...remembered,
    xAxis: X_AXES.find((name) => name === axis) ?? remembered.xAxis,
    smoothing: Number.isFinite(smoothing) ? Math.min(0.99, Math.max(0, smoothing)) : remembered.smoothing,
    logY: chosen('log') === null ? remembered.logY : chosen('log') === '1',
  };
}

/** The part of the horizontal axis that all charts show; null for all of it. */
function zoomFrom() {
  const [from, to] = (chosen('zoom') ?? '').split(',').map(Number);
  return Number.isFinite(from) && Number.isFinite(to) && to > from ? { from, to } : null;
}
