/**
 * One WebSocket a page, shared by every component that shows the same run: it reconnects by itself, goes on after what
 * was seen last, and ends with the last component. And the sentences that stand where a run has no points.
 */

import { fromJson } from '../elements/numbers.js';
import { BASE, request } from '../server/request.js';
import { SeriesStore } from './series_store.js';

const LONGEST_WAIT_MS = 5000;
const SILENT_BEFORE_SHOWN_MS = 600;
const UNKNOWN_RUN = 4404;
const NO_ROLE = 4403;
const FAILURES_BEFORE_ASKING = 2;
/** Figures of a run that may be NaN or infinite, which travel as words. */
const FIGURES = ['epoch', 'current_epoch', 'last_loss', 'last_lr', 'throughput', 'throughput_mean'];
const SHARED = Symbol.for('rankzero.live');
/** Why a run is not shown, by the status of an answer. @type {Map<number, Status>} */
const REASON_OF = new Map([
  [401, 'refused'],
  [403, 'denied'],
]);

/**
 * @typedef {'connecting'|'live'|'reconnecting'|'refused'|'denied'|'gone'} Status
 * @typedef {{rank: number|'launcher'|'all', stream: 'out'|'err'|'both', attempt: number|null}} LogChoice
 */

/**
 * The run's connection; call `release` on it when the component leaves.
 * @param {string} runId
 * @returns {LiveConnection}
 */
export function connect(runId) {
  const page = /** @type {Record<symbol, Map<string, LiveConnection>>} */ (/** @type {unknown} */ (window));
  const shared = (page[SHARED] ??= new Map());
  let connection = shared.get(runId);
  if (!connection) shared.set(runId, (connection = new LiveConnection(runId, () => shared.delete(runId))));
  connection.users += 1;
  return connection;
}

export class LiveConnection {
  /** @type {Promise<void>|undefined} */
  _wantSoon;
  /** @type {string[]|undefined} the series that were asked for last */
  _asked;
  /** @type {Map<string, Set<(message: any) => void>>} */
  _listeners = new Map();

  /** @param {string} runId @param {() => void} onEnd */
  constructor(runId, onEnd) {
    this.runId = runId;
    this.users = 0;
    this.store = new SeriesStore();
    /** @type {Map<string, string>} where each series of the run comes from, by its name, loaded or not */
    this.sources = new Map();
    /** State that components restore when they are shown again: zooms, folds. @type {Map<string, any>} */
    this.kept = new Map();
    /** @type {Map<object, Iterable<string>>} */
    this._wants = new Map();
    /** @type {import('../server/documents.js').Run|null} */
    this.run = null;
    /** @type {Status} */
    this.status = 'connecting';
    /** What it means that there is no such run for the visitor. @type {'gone'|'denied'} */
    this._absent = 'gone';
    /** Server's clock minus the browser's, in seconds. */
    this.clockOffset = 0;
    this._onEnd = onEnd;
    /** @type {LogChoice|null} */
    this._logs = null;
    this._failures = 0;
    this._wake = () => this._retryNow();
    window.addEventListener('online', this._wake);
    document.addEventListener('visibilitychange', this._wake);
    this._open();
  }

  /** Now by the server's clock, in seconds since the epoch. */
  now() {
    return Date.now() / 1000 + this.clockOffset;
  }

  /**
   * @param {'run'|'names'|'series'|'log'|'checkpoints'|'history'|'deleted'|'status'} kind
   * @param {(message: any) => void} listener
   * @returns {() => void} ends it
   */
  on(kind, listener) {
    const listeners = this._listeners.get(kind) ?? new Set();
    this._listeners.set(kind, listeners.add(listener));
    return () => void listeners.delete(listener);
  }

  /** Choose the log that is followed; null for none. @param {LogChoice|null} choice */
  followLog(choice) {
    this._logs = choice;
    this._subscribe(null);
  }

  /**
   * Choose the series whose points a part of the page shows; no others are loaded.
   * @param {object} part
   * @param {Iterable<string>} names
   */
  want(part, names) {
    this._wants.set(part, [...names]);
    this._wantSoon ??= Promise.resolve().then(() => this._wantNow());
  }

  /** The part has gone. @param {object} part */
  forget(part) {
    this._wants.delete(part);
    this._wantSoon ??= Promise.resolve().then(() => this._wantNow());
  }

  release() {
    this.users -= 1;
    if (this.users > 0) return;
    this._ended = true;
    clearTimeout(this._timer);
    clearTimeout(this._shown);
    window.removeEventListener('online', this._wake);
    document.removeEventListener('visibilitychange', this._wake);
    this._socket?.close();
    this._onEnd();
  }

  _open() {
    const url = new URL(`api/live?run=${encodeURIComponent(this.runId)}`, BASE);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = (this._socket = new WebSocket(url));
    socket.onopen = () => this._subscribe(this.store.seen());
    socket.onmessage = (event) => this._received(JSON.parse(event.data));
    socket.onclose = (event) => {
      if (socket === this._socket) this._closed(event.code);
    };
  }

  /** @param {Record<string, number>|null} since only a connection's first subscription says it */
  _subscribe(since) {
    this._asked = this._wanted();
    this._send({ type: 'subscribe', since, logs: this._logs, series: this._asked });
  }

  _wanted() {
    return [...new Set([...this._wants.values()].flatMap((names) => [...names]))].sort();
  }

  /** Request series; for those requested before, only newer points. */
  _wantNow() {
    this._wantSoon = undefined;
    const [requests, before] = [this._wanted(), this._asked];
    if (!before || JSON.stringify(requests) === JSON.stringify(before)) return;
    const fresh = requests.filter((name) => !before.includes(name));
    this._asked = requests;
    this._send({ type: 'want', since: this.store.seen(fresh), series: requests });
  }

  /** @param {object} message */
  _send(message) {
    if (this._socket?.readyState === WebSocket.OPEN) this._socket.send(JSON.stringify(message));
  }

  /** @param {any} message */
  _received(message) {
    this._failures = 0;
    this._setStatus('live');
    if (message.type === 'run') {
      const { run } = message;
      for (const name of FIGURES) run[name] = fromJson(run[name]);
      this.run = run;
      this._absent = 'gone';
      if (typeof message.now === 'number') this.clockOffset = message.now - Date.now() / 1000;
      this._tell('run', this.run);
    } else if (message.type === 'names') {
      this._name(Object.entries(message.series));
    } else if (message.type === 'series') {
      this._name(Object.keys(message.series).map((name) => [name, message.series[name].source ?? 'events']));
      this._tell('series', this.store.apply(message.series));
    } else if (message.type === 'resync') {
      // The server dropped messages for us: our points may have gaps, so everything is loaded again.
      this._subscribe(null);
    } else {
      this._tell(message.type, message);
    }
  }

  /** @param {[string, string][]} sources */
  _name(sources) {
    const before = this.sources.size;
    for (const [name, source] of sources) this.sources.set(name, source);
    if (this.sources.size > before) this._tell('names', null);
  }

  /** @param {number} code */
  _closed(code) {
    if (this._ended) return;
    if (code === UNKNOWN_RUN) {
      this._setStatus(this._absent);
      return;
    }
    if (code === NO_ROLE) {
      this._absent = 'denied';
      void this._askWhy();
    }
    clearTimeout(this._shown);
    // A connection that recovers at once is not reported.
    this._shown = setTimeout(() => {
      if (![...REASON_OF.values(), 'gone'].includes(this.status)) this._setStatus('reconnecting');
    }, SILENT_BEFORE_SHOWN_MS);
    const longest = Math.min(LONGEST_WAIT_MS, 250 * 2 ** this._failures);
    this._failures += 1;
    this._timer = setTimeout(() => this._open(), longest * (0.5 + Math.random() / 2));
    if (this._failures === FAILURES_BEFORE_ASKING) void this._askWhy();
  }

  /** A WebSocket does not say why it was not let in; a request does. */
  async _askWhy() {
    try {
      await request(`api/runs/${encodeURIComponent(this.runId)}`, { cache: 'no-store' });
    } catch (error) {
      const { status } = /** @type {import('../server/request.js').RequestError} */ (error);
      const reason = status === 404 ? this._absent : REASON_OF.get(status);
      // It still retries: people sign in again in another tab.
      if (reason && !this._ended) this._setStatus(reason);
    }
  }

  _retryNow() {
    if (document.hidden || this._socket?.readyState !== WebSocket.CLOSED) return;
    clearTimeout(this._timer);
    this._open();
  }

  /** @param {Status} status */
  _setStatus(status) {
    clearTimeout(this._shown);
    if (this.status === status) return;
    this.status = status;
    this._tell('status', status);
  }

  /** @param {string} kind @param {any} message */
  _tell(kind, message) {
    for (const listener of this._listeners.get(kind) ?? []) listener(message);
  }
}

/** A few words about the connection, where it is not as it should be. */
export const STATUS_TEXT = /** @type {Record<string, string>} */ ({
  reconnecting: 'Reconnecting…',
  refused: 'Signed out: reload the page',
  denied: 'You no longer have a role here',
  gone: 'Deleted',
});

/**
 * @param {Pick<LiveConnection, 'run'|'status'>} connection
 * @returns {string}
 */
export function emptySentence({ run, status }) {
  if (status === 'refused') return 'You are signed out. Reload the page to sign in again.';
  if (status === 'denied') return 'You no longer have a role here. Reload the page to see whom to ask.';
  if (status === 'gone') return 'There is no such run: it was deleted, or is in a project in which you have no role.';
  if (!run) return status === 'reconnecting' ? 'Rankzero does not answer. Trying again…' : 'Connecting…';
  switch (run.state) {
    case 'queued':
      return run.waiting_for ? `Waiting to start: ${run.waiting_for}` : 'Waiting for a node.';
    case 'starting':
      if (run.waiting_for) return `Starting: ${run.waiting_for}.`;
      return 'Waiting for the first point. The run is starting.';
    case 'running':
      if (run.waiting_for) return `Waiting for the first point: ${run.waiting_for}.`;
      return 'Waiting for the first point. Every tag the script logs with SummaryWriter appears here.';
    case 'stopping':
      return 'The run is being stopped; it has logged no point.';
    case 'failed':
      if (run.reason === 'preflight') return 'Nothing was started: the History tab shows what preflight found.';
      if (run.reason === 'environment')
        return 'Nothing was started: the sentence above says why the environment could not be built.';
      return 'The run failed before it logged a point. See the log of the failing rank.';
    case 'stopped':
      return 'The run was stopped before it logged a point.';
    default:
      return 'The run ended without logging a point. Charts show what a script logs with SummaryWriter.';
  }
}
