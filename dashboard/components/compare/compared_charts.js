/** The charts of several runs: one for each series, with the same zoom, pointer and highlighted run. */

import { inside } from '../charts/chart_detail.js';
import { byOrder, chartsFor } from '../charts/chart_groups.js';
import { spansOf, timeOrigins } from '../charts/chart_lines.js';
import { loadSettings } from '../charts/chart_toolbar.js';
import { Charts } from '../charts/charts.js';
import { choose, chosen } from '../elements/address.js';
import { el, setAttribute, setText, toggle } from '../elements/elements.js';
import { change, plural } from '../elements/numbers.js';
import { emptySentence } from '../live/live_connection.js';
import { keyOf, nameOf, runOf } from './comparison.js';
import { EPOCH_NAMES, epochAxis, samplesAxis } from './run_axes.js';

/** @typedef {import('../charts/chart_card.js').Zoom} Zoom */
/** @typedef {import('../charts/chart_groups.js').ChartSpec} ChartSpec */
/** @typedef {import('../charts/chart_groups.js').LineSpec} LineSpec */
/** @typedef {import('../charts/drawn_lines.js').OriginsOf} OriginsOf */
/** @typedef {import('../charts/run_source.js').Source} Source */
/** @typedef {import('./comparison.js').ComparedRun} ComparedRun */

/** @type {[import('../charts/chart_toolbar.js').XAxis, string, string][]} */
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
const UNKNOWN = {
  samples: 'Samples are unknown if the script sets its own batch size',
  epoch: 'Epochs are unknown if the script logs no series “epoch”',
};

/** @implements {Source} */
export class ComparedCharts {
  axes = AXES;
  sharesAxis = true;
  settings = settingsFrom(loadSettings());
  query = chosen('q') ?? '';
  _zoom = zoomFrom();
  _isRelative = chosen('relative') === '1';
  _relative = toggle('% of baseline', '', this._isRelative, (on) => {
    this._isRelative = on;
    choose({ relative: on ? '1' : null });
    this.charts.rebuild();
  });
  _unknown = el('p', { class: 'unknown-axis', role: 'status', hidden: true });
  choices = [this._relative];
  notes = [this._unknown];

  /**
   * @param {HTMLElement} parent
   * @param {import('./comparison.js').Comparison} comparison
   * @param {(key: string|null) => void} highlighted is told which run or group the pointer is at
   */
  constructor(parent, comparison, highlighted) {
    this.connection = comparison;
    this.highlighted = highlighted;
    this._relative.hidden = true;
    this.charts = new Charts(parent, this);
    comparison.on('status', () => this._showUnknown());
    comparison.on('series', (names) => this._seriesChanged(names));
    comparison.on('batches', () => {
      this._showUnknown();
      this.charts.redraw();
    });
  }

  /** The run to which differences are shown. @param {string|null} run @param {string|null} name */
  setBaseline(run, name) {
    this._relative.hidden = run === null;
    setAttribute(this._relative, 'title', `Show the difference to ${name ?? run} in per cent instead of values`);
    if (run === this.connection.baseline) return;
    this.connection.baseline = run;
    this.charts.rebuild();
  }

  /** @returns {ChartSpec[]} one for each series, with a line for each run that is not hidden */
  specs() {
    // Of series that are joined, the first says where they come from.
    const sources = [...this.connection.sources].reverse();
    const names = new Map(sources.map(([key, source]) => [this.connection.shownName(key), source]));
    const specs = [...names].flatMap(([name, source]) =>
      chartsFor([{ name, source }]).map((spec) => this._specOf(name, spec)),
    );
    return specs.sort(byOrder);
  }

  /** @param {string} name @param {ChartSpec} spec of that series alone @returns {ChartSpec} */
  _specOf(name, spec) {
    const { baseline, groups, sources } = this.connection;
    const lines = this._shownRuns()
      .map((run) => this._lineOf(run, name, spec))
      .filter((line) => sources.has(line.name));
    const isRelative = this._isRelative && baseline !== null;
    return {
      ...spec,
      id: name,
      title: name,
      isSpan: true,
      isGrouped: groups !== null,
      isRelative,
      format: isRelative ? change : spec.format,
      baseline: baseline === null ? null : { run: baseline, name: this.connection.keyOfShown(baseline, name) },
      legend: this._joined(name, lines),
      lines,
    };
  }

  /** @param {ComparedRun} run @param {string} name @param {ChartSpec} spec @returns {LineSpec} */
  _lineOf({ id }, name, { lines: [{ smooth }] }) {
    const { key, label, colour } = this.connection.itemOf(id);
    return { name: this.connection.keyOfShown(id, name), label, role: colour, smooth, run: id, key };
  }

  /** Which series of different names a chart joins; the runs are named above all charts. */
  _joined(/** @type {string} */ title, /** @type {LineSpec[]} */ lines) {
    const others = new Set(lines.map((line) => nameOf(line.name)).filter((name) => name !== title));
    if (!others.size) return { text: '', title: '' };
    const runs = lines.map((line) => `${line.label}: ${nameOf(line.name)}`);
    return {
      text: `includes ${[...others].join(', ')}`,
      title: `The same figure of different loggers, by name:\n${runs.join('\n')}`,
    };
  }

  _shownRuns() {
    return this.connection.runs.filter((run) => !this.connection.hidden.has(run.id));
  }

  /** @returns {OriginsOf} */
  origins() {
    const { xAxis } = this.settings;
    if (xAxis === 'step') return () => null;
    if (xAxis === 'wall') return () => WALL;
    if (xAxis !== 'time') return this._places();
    /** @type {Map<string, import('../live/series_store.js').Series[]>} */
    const byRun = new Map();
    for (const [key, series] of this.connection.store.series) {
      const ofRun = byRun.get(runOf(key)) ?? [];
      ofRun.push(series);
      byRun.set(runOf(key), ofRun);
    }
    const origins = new Map([...byRun].map(([run, series]) => [run, timeOrigins(spansOf(series))]));
    return (line) => origins.get(line?.run ?? '') ?? WALL;
  }

  /** Where the steps of each run stand on an axis of samples or epochs. @returns {OriginsOf} */
  _places() {
    const { batches, runs, store } = this.connection;
    const isEpoch = this.settings.xAxis === 'epoch';
    /** @param {string} run */
    const axisOf = (run) =>
      isEpoch ? epochAxis(store.series.get(this._epochKey(run) ?? '')) : samplesAxis(batches?.[run] ?? []);
    const places = new Map(runs.map(({ id }) => [id, axisOf(id) ?? NOWHERE]));
    return (line) => places.get(line?.run ?? '') ?? NOWHERE;
  }

  /** The series with the epochs of a run; undefined where its script logs none. @param {string} run */
  _epochKey(run) {
    return EPOCH_NAMES.map((name) => keyOf(run, name)).find((key) => this.connection.sources.has(key));
  }

  /** Load what the axis needs beyond what the charts show. */
  arranged() {
    const { xAxis } = this.settings;
    if (xAxis === 'samples') this.connection.wantBatches();
    const epochs = xAxis === 'epoch' ? this.connection.runs.flatMap(({ id }) => this._epochKey(id) ?? []) : [];
    this.connection.want('axis', epochs);
    this._showUnknown();
  }

  /** @param {Set<string>} names */
  _seriesChanged(names) {
    const { xAxis } = this.settings;
    if (xAxis === 'samples') this.connection.wantBatches();
    if (xAxis === 'epoch' && [...names].some((key) => EPOCH_NAMES.includes(nameOf(key)))) this.charts.redraw();
  }

  /** Name the runs that have no place on the axis. */
  _showUnknown() {
    const { batches, status } = this.connection;
    const { xAxis } = this.settings;
    /** @param {ComparedRun} run */
    const isUnknown = ({ id }) => {
      if (xAxis === 'samples') return batches !== null && samplesAxis(batches[id] ?? []) === null;
      return xAxis === 'epoch' && status === 'live' && !this._epochKey(id);
    };
    const names = this._shownRuns()
      .filter(isUnknown)
      .map(({ id, name }) => name || id);
    const more = names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : '';
    const reason = xAxis === 'samples' ? UNKNOWN.samples : UNKNOWN.epoch;
    setText(this._unknown, names.length ? `${reason}: ${names.slice(0, MOST_NAMES).join(', ')}${more}.` : '');
    this._unknown.hidden = names.length === 0;
  }

  settingsChanged() {
    const { xAxis, logY, smoothing } = this.settings;
    choose({ x: xAxis, log: logY ? '1' : '0', smoothing: smoothing.toFixed(2) });
    this.arranged();
  }

  /** @param {string} query */
  filtered(query) {
    choose({ q: query });
  }

  zoomOf() {
    return this._zoom;
  }

  /** @param {string} _ @param {Zoom|null} zoom */
  keepZoom(_, zoom) {
    this._zoom = zoom;
    choose({ zoom: zoom ? `${zoom.from},${zoom.to}` : null });
  }

  /** The finer points of all runs, in one request. @param {LineSpec[]} lines @param {Zoom} zoom */
  *details(lines, zoom) {
    const origins = this.origins();
    const steps = { first: Infinity, last: -Infinity };
    for (const line of lines) {
      const series = this.connection.store.series.get(line.name);
      if (!series) continue;
      const { first, last } = inside(series, zoom, origins(line));
      steps.first = Math.min(steps.first, first);
      steps.last = Math.max(steps.last, last);
    }
    const names = new Set(lines.map((line) => nameOf(line.name)));
    if (steps.last > steps.first) yield this.connection.detail([...names], steps);
  }

  /** @param {ChartSpec} spec */
  subject({ lines }) {
    return plural(lines.length, 'run');
  }

  emptySentence() {
    const { status } = this.connection;
    return status === 'live' ? 'None of these runs has logged a point yet.' : emptySentence({ run: null, status });
  }
}

/**
 * The settings of the charts, from the address; what it leaves out is as the browser remembers it.
 * @param {import('../charts/chart_toolbar.js').Settings} remembered
 * @returns {import('../charts/chart_toolbar.js').Settings}
 */
function settingsFrom(remembered) {
  const [axis, smoothing] = [chosen('x'), Number(chosen('smoothing') ?? NaN)];
  return {
    ...remembered,
    xAxis: AXES.find(([name]) => name === axis)?.[0] ?? remembered.xAxis,
    smoothing: Number.isFinite(smoothing) ? Math.min(0.99, Math.max(0, smoothing)) : remembered.smoothing,
    logY: chosen('log') === null ? remembered.logY : chosen('log') === '1',
  };
}

/** The part of the horizontal axis that all charts show; null for all of it. */
function zoomFrom() {
  const [from, to] = (chosen('zoom') ?? '').split(',').map(Number);
  return Number.isFinite(from) && Number.isFinite(to) && to > from ? { from, to } : null;
}
