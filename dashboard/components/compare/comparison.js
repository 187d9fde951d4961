/**
 * Where the curves of several runs come from: those that train from their live connections, the others from one request
 * for all of them. Charts use it as they use the connection of one run; a series is named `RUN:NAME`.
 */

import { colourNumbers } from '../elements/theme.js';
import { connect } from '../live/live_connection.js';
import { Columns, SeriesStore } from '../live/series_store.js';
import { read, request } from '../server/request.js';

const LIVE = new Set(['queued', 'starting', 'running', 'stopping']);
/** Points of all runs of one chart together; a browser draws no more in a frame. */
const POINTS_A_CHART = 24_000;
const [LEAST_POINTS, MOST_POINTS] = [250, 1500];

/** @typedef {{id: string, name: string, state: string}} ComparedRun */

/** @param {string} runId @param {string} name */
export const keyOf = (runId, name) => `${runId}:${name}`;
/** @param {string} key */
export const runOf = (key) => key.slice(0, key.indexOf(':'));
/** @param {string} key */
export const nameOf = (key) => key.slice(key.indexOf(':') + 1);
/** @param {string} state */
export const isLive = (state) => LIVE.has(state);

/** @typedef {import('../live/live_connection.js').LiveConnection} LiveConnection */
/** @typedef {import('../live/live_connection.js').Status} Status */

export class Comparison {
  /** @type {Map<string, Set<(message: any) => void>>} */
  _listeners = new Map();
  /** @type {Map<object|string, string[]>} the series that each part of the page shows */
  _wants = new Map();
  /** @type {(() => void)[]} */
  _endings = [];
  /** @type {Promise<void>|undefined} */
  _soon;
  /** @type {Status} */
  status = 'connecting';
  _ended = false;
  _asksBatches = false;

  /** @param {ComparedRun[]} runs */
  constructor(runs) {
    this.runs = runs;
    this.position = new Map(runs.map((run, at) => [run.id, at]));
    /** By run. */
    this.colours = colourNumbers(runs.map((run) => run.id));
    this.store = new SeriesStore();
    /** @type {Map<string, string>} */
    this.sources = new Map();
    /**
     * @type {Map<string, string>} by `RUN:NAME`, the name that the same figure of another logger has in other
     *   runs
     */
    this._joined = new Map();
    this.kept = new Map();
    this.run = null;
    /**
     * @type {{key: string, label: string, runs: string[]}[]|null} of which the mean and the spread are drawn;
     *   null for every run by itself
     */
    this.groups = null;
    /** @type {Set<string>} runs that the charts leave out */
    this.hidden = new Set();
    /**
     * @type {Record<string, {attempt: number, global_batch: number|null, first_step: number|null}[]>|null} by
     *   run; null until asked for
     */
    this.batches = null;
    /**
     * @type {string|null} the run to whose values differences are shown, which need not be one of the runs
     */
    this.baseline = null;
    /** @type {Map<string, import('../live/live_connection.js').LiveConnection>} */
    this._live = new Map();
    /**
     * @type {Set<string>} names of series that the ended runs have been asked for; of a baseline beside them
     *   `RUN:NAME`
     */
    this._asked = new Set();
    for (const run of runs) if (isLive(run.state)) this._follow(run);
    void this._askNames();
  }

  /** Points of each run that a chart draws. */
  get mostPoints() {
    const share = Math.floor(POINTS_A_CHART / this.runs.length);
    return Math.min(MOST_POINTS, Math.max(LEAST_POINTS, share));
  }

  /**
   * The run, or the group it is in, as one item of the legend; a group has the colour of its first run.
   * @param {string} runId
   * @returns {{key: string, label: string, colour: number}}
   */
  itemOf(runId) {
    const group = this.groups?.find(({ runs }) => runs.includes(runId));
    if (group) return { ...group, colour: this._colourOf(group.runs[0]) };
    const { name } = this.runs[this.position.get(runId) ?? 0];
    return { key: runId, label: name || runId, colour: this._colourOf(runId) };
  }

  /** @param {string} runId */
  _colourOf(runId) {
    return this.colours.get(runId) ?? 0;
  }

  /** What a series is called among all runs. @param {string} key */
  shownName(key) {
    return this._joined.get(key) ?? nameOf(key);
  }

  /** The series of a run that is called so among all runs. @param {string} runId @param {string} shown */
  keyOfShown(runId, shown) {
    for (const [key, name] of this._joined) if (name === shown && runOf(key) === runId) return key;
    return keyOf(runId, shown);
  }

  /**
   * @param {'state'|'names'|'series'|'batches'|'status'|'run'|'deleted'} kind
   * @param {(message: any) => void} listener
   * @returns {() => void} ends it
   */
  on(kind, listener) {
    const listeners = this._listeners.get(kind) ?? new Set();
    this._listeners.set(kind, listeners.add(listener));
    return () => void listeners.delete(listener);
  }

  /**
   * Choose the series, as `RUN:NAME`, that a part of the page shows.
   * @param {object|string} part
   * @param {Iterable<string>} keys
   */
  want(part, keys) {
    this._wants.set(part, [...keys]);
    this._soon ??= Promise.resolve().then(() => this._wantNow());
  }

  /** @param {object|string} part */
  forget(part) {
    this._wants.delete(part);
  }

  release() {
    this._ended = true;
    for (const connection of this._live.values()) {
      connection.forget(this);
      connection.release();
    }
    for (const end of this._endings) end();
  }

  /**
   * The points of all runs between two steps, as fine as a chart can show them.
   * @param {string[]} names @param {{first: number, last: number}} steps
   */
  async detail(names, steps) {
    const ids = this.runs.map((run) => run.id);
    const window = { since: String(Math.floor(steps.first)), until: String(Math.ceil(steps.last)) };
    return seriesOf(await this._fetch(ids, names, window));
  }

  /** Ask for the batch of each attempt, once and for each attempt that begins later. */
  wantBatches() {
    /** @param {ComparedRun} run */
    const isNew = (run) =>
      Math.max(0, ...(this._live.get(run.id)?.store.attempts() ?? [])) > (this.batches?.[run.id]?.length ?? 0);
    if (this._asksBatches || (this.batches && !this.runs.some(isNew))) return;
    this._asksBatches = true;
    void this._askBatches();
  }

  async _askBatches() {
    try {
      const query = new URLSearchParams({ runs: this.runs.map((run) => run.id).join(',') });
      this.batches = await request(`api/compare/batches?${query}`);
      this._setStatus('live');
      this._tell('batches', null);
    } catch {
      this._setStatus('reconnecting');
    }
    // Not again at once: a new attempt may have no points yet.
    setTimeout(() => {
      this._asksBatches = false;
      if (!this.batches && !this._ended) this.wantBatches();
    }, 2000);
  }

  /** @param {ComparedRun} run */
  _follow(run) {
    const connection = connect(run.id);
    this._live.set(run.id, connection);
    this._endings.push(
      connection.on('names', () => this._named(run.id, Object.fromEntries(connection.sources))),
      connection.on('series', (names) => this._changed(run.id, connection, names)),
      connection.on('run', (view) => this._tell('state', { id: run.id, state: view.state })),
      connection.on('deleted', () => this._tell('state', { id: run.id, state: 'deleted' })),
    );
    if (connection.sources.size) this._named(run.id, Object.fromEntries(connection.sources));
  }

  /** @param {string} runId @param {LiveConnection} connection @param {Set<string>} names */
  _changed(runId, connection, names) {
    for (const name of names) {
      const series = connection.store.series.get(name);
      if (series) this.store.series.set(keyOf(runId, name), series);
    }
    this._tell('series', new Set([...names].map((name) => keyOf(runId, name))));
  }

  async _askNames() {
    const ended = this.runs.filter((run) => !this._live.has(run.id)).map((run) => run.id);
    try {
      const query = new URLSearchParams({ runs: ended.join(',') });
      /** @type {Record<string, Record<string, string>>} */
      const names = ended.length ? await request(`api/compare/names?${query}`) : {};
      for (const [runId, sources] of Object.entries(names)) this._take(runId, sources);
      await this._askJoined();
      this._setStatus('live');
    } catch {
      this._setStatus('reconnecting');
      if (!this._ended) setTimeout(() => void this._askNames(), 2000);
      return;
    }
    this._tell('names', null);
  }

  /** Which series of the runs are the same figure of different loggers. */
  async _askJoined() {
    const query = new URLSearchParams({ runs: this.runs.map((run) => run.id).join(',') });
    /** @type {Record<string, Record<string, string>>} */
    const joined = await request(`api/compare/joined?${query}`);
    this._joined = new Map(
      Object.entries(joined).flatMap(([runId, names]) =>
        Object.entries(names).map(([own, shown]) => [keyOf(runId, own), shown]),
      ),
    );
  }

  /** A run that trains has a series more. @param {string} runId @param {Record<string, string>} sources */
  async _named(runId, sources) {
    this._take(runId, sources);
    try {
      await this._askJoined();
    } catch {
      this._setStatus('reconnecting'); // the next series asks again
    }
    this._tell('names', null);
  }

  /** @param {string} runId @param {Record<string, string>} sources */
  _take(runId, sources) {
    for (const [name, source] of Object.entries(sources)) this.sources.set(keyOf(runId, name), source);
  }

  _wantNow() {
    this._soon = undefined;
    if (this._ended) return;
    const keys = new Set([...this._wants.values()].flat());
    for (const [runId, connection] of this._live) {
      connection.want(this, [...keys].filter((key) => runOf(key) === runId).map(nameOf));
    }
    const ended = new Set([...keys].filter((key) => !this._live.has(runOf(key))).map(nameOf));
    const fresh = [...ended].filter((name) => !this._asked.has(name));
    for (const name of fresh) this._asked.add(name);
    // One request a chart: the first is drawn while the others are read.
    for (const name of fresh)
      void this._load(
        name,
        this.runs
          .filter((run) => !this._live.has(run.id) && this.sources.has(keyOf(run.id, name)))
          .map((run) => run.id),
      );
    this._wantBaseline(new Set([...keys].map(nameOf)));
  }

  /** The curves of a baseline that is not one of the runs. @param {Set<string>} names */
  _wantBaseline(names) {
    const { baseline } = this;
    if (baseline === null || this.position.has(baseline)) return;
    for (const name of names) {
      const key = keyOf(baseline, name);
      if (!this._asked.has(key)) void this._load(name, [baseline], key);
      this._asked.add(key);
    }
  }

  /** @param {string} name @param {string[]} ids */
  async _load(name, ids, asked = name) {
    try {
      const series = seriesOf(await this._fetch(ids, [name], {}));
      for (const [key, found] of series) this.store.series.set(key, found);
      this._tell('series', new Set(asked === name ? series.keys() : this.runs.map(({ id }) => keyOf(id, name))));
    } catch {
      this._asked.delete(asked);
      this._setStatus('reconnecting');
      setTimeout(() => this._wantNow(), 2000);
    }
  }

  /** @param {string[]} ids @param {string[]} names @param {Record<string, string>} more */
  async _fetch(ids, names, more) {
    const query = new URLSearchParams({ runs: ids.join(','), max_points: String(this.mostPoints), ...more });
    for (const name of names) query.append('name', name);
    const curves = await read(`api/compare/curves?${query}`, {}, (answer) => answer.arrayBuffer());
    this._setStatus('live');
    return curves;
  }

  /** @param {Status} status */
  _setStatus(status) {
    if (this.status === status || this._ended) return;
    this.status = status;
    this._tell('status', status);
  }

  /** @param {string} kind @param {any} message */
  _tell(kind, message) {
    if (this._ended) return;
    for (const listener of this._listeners.get(kind) ?? []) listener(message);
  }
}

/** Series by key, from the binary columns of `GET /api/compare/curves`. @param {ArrayBuffer} buffer */
function seriesOf(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  /** @type {Map<string, import('../live/series_store.js').Series>} */
  const series = new Map();
  let at = 8 + length;
  for (const curve of head) {
    /** @param {number} number */
    const column = (number) => new Float64Array(buffer, at + 8 * number * curve.count, curve.count);
    const columns = Columns.of(column(0), column(1), column(2), curve.not_finite_since);
    at += 24 * curve.count;
    if (!curve.count) continue;
    const key = keyOf(curve.run, curve.name);
    const { attempts } = series.get(key) ?? { attempts: new Map() };
    attempts.set(curve.attempt, columns);
    series.set(key, { name: key, source: curve.source, attempts, version: 0 });
  }
  return series;
}
