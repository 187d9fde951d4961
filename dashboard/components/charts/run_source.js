/** Charts of one run: its series from its live connection, its attempts and events as marks. */

import { notFinite, number } from '../elements/numbers.js';
import { emptySentence } from '../live/live_connection.js';
import { apiUrl } from '../server/request.js';
import { fetchDetail, inside } from './chart_detail.js';
import { chartsFor, eventMarkers } from './chart_groups.js';
import { spansOf, timeOrigins } from './chart_lines.js';
import { loadSettings } from './chart_toolbar.js';

/** @typedef {import('./chart_card.js').ChartCard} ChartCard */
/** @typedef {import('./chart_card.js').Zoom} Zoom */
/** @typedef {import('./chart_groups.js').ChartSpec} ChartSpec */
/** @typedef {import('./chart_groups.js').LineSpec} LineSpec */
/** @typedef {import('./chart_plot.js').Marker} Marker */
/** @typedef {import('./drawn_lines.js').Drawn} Drawn */
/** @typedef {import('./drawn_lines.js').OriginsOf} OriginsOf */
/** @typedef {import('../live/live_connection.js').LiveConnection} LiveConnection */
/** @typedef {import('../live/series_store.js').Series} Series */
/**
 * What charts show: of one run here, of several in compare/.
 * @typedef {Pick<LiveConnection, 'store'|'sources'|'kept'|'run'|'status'|'want'|'forget'|'release'> &
 *   {on: (kind: any, listener: (message: any) => void) => () => void}} Connection
 *
 * @typedef {object} Source
 * @property {Connection} connection
 * @property {import('./chart_toolbar.js').Settings} settings
 * @property {boolean} sharesAxis whether all charts show the same part of one axis
 * @property {() => ChartSpec[]} specs in the order they are shown
 * @property {() => OriginsOf} origins what places the points of a line on the axis
 * @property {(lines: LineSpec[], zoom: Zoom) => Iterable<Promise<Map<string, Series>>>} details finer points of a
 *   part, by requests of which each may fail
 * @property {(spec: ChartSpec) => string} subject whose chart it is
 * @property {() => string} emptySentence why there is no chart
 * @property {(id: string) => Zoom|null} zoomOf the part of a chart that was shown last
 * @property {(id: string, zoom: Zoom|null) => void} keepZoom
 * @property {() => number} [attempts] how many the series have
 * @property {(lines: Drawn[], origins: OriginsOf, card: ChartCard) => Marker[]} [markers]
 * @property {(spec: ChartSpec) => string} [csvUrl] the address of a chart's points
 * @property {[string, string, string][]} [axes] choices of the horizontal axis
 * @property {HTMLElement[]} [choices] further ones, for the toolbar
 * @property {HTMLElement[]} [notes] what stands above the charts
 * @property {string} [query] what is looked for at first
 * @property {() => void} [arranged]
 * @property {(query: string) => void} [filtered]
 * @property {() => void} [settingsChanged]
 * @property {(key: string|null) => void} [highlighted] which line is drawn before all others
 */

/** @implements {Source} */
export class RunSource {
  settings = loadSettings();
  sharesAxis = false;

  /** @param {LiveConnection} connection */
  constructor(connection) {
    this.connection = connection;
  }

  specs() {
    return chartsFor([...this.connection.sources].map(([name, source]) => ({ name, source })));
  }

  /** @returns {OriginsOf} */
  origins() {
    const isTime = this.settings.xAxis === 'time';
    const origins = isTime ? timeOrigins(spansOf(this.connection.store.series.values())) : null;
    return () => origins;
  }

  attempts() {
    return this.connection.store.attempts().length;
  }

  /** @param {LineSpec[]} lines @param {Zoom} zoom */
  *details(lines, zoom) {
    const origins = this.origins()(null);
    for (const { name } of lines) {
      const series = this.connection.store.series.get(name);
      const steps = series && inside(series, zoom, origins);
      if (series && steps?.mayHaveMore) {
        yield fetchDetail(this.connection.runId, series, steps).then((detail) => new Map([[name, detail]]));
      }
    }
  }

  /** @param {Drawn[]} lines @param {OriginsOf} origins @param {ChartCard} card */
  markers(lines, origins, card) {
    const events = card.xAxis === 'order' ? [] : eventMarkers(this.connection.store.series.values(), origins(null));
    return [...this._attemptMarkers(lines), ...events, ...brokenMarkers(lines, card)];
  }

  /** @param {Drawn[]} lines @returns {Marker[]} */
  _attemptMarkers(lines) {
    /** @type {Map<number, number>} */
    const attempts = new Map(lines.flatMap((line) => line.boundaries).map(([at, attempt]) => [attempt, at]));
    /** @type {{attempt: number, text: string}[]} */
    const changes = this.connection.run?.attempt_changes ?? [];
    const sentences = new Map(changes.map(({ attempt, text }) => [attempt, text]));
    return [...attempts].map(([attempt, at]) => ({
      at,
      text: sentences.get(attempt) ?? `attempt ${attempt}`,
      short: String(attempt),
      warns: false,
    }));
  }

  /** @param {ChartSpec} spec */
  csvUrl({ lines }) {
    const query = new URLSearchParams(lines.map((line) => ['name', line.name]));
    query.set('source', 'all');
    return apiUrl(`api/runs/${encodeURIComponent(this.connection.runId)}/metrics.csv?${query}`);
  }

  subject() {
    return this.connection.run?.name || this.connection.runId;
  }

  emptySentence() {
    return emptySentence(this.connection);
  }

  /** @param {string} id @returns {Zoom|null} */
  zoomOf(id) {
    return this.connection.kept.get(`zoom ${id}`) ?? null;
  }

  /** @param {string} id @param {Zoom|null} zoom */
  keepZoom(id, zoom) {
    if (zoom) this.connection.kept.set(`zoom ${id}`, zoom);
    else this.connection.kept.delete(`zoom ${id}`);
  }
}

/** Where lines became NaN or infinite. @param {Drawn[]} lines @param {ChartCard} card @returns {Marker[]} */
function brokenMarkers(lines, card) {
  const markers = [];
  for (const line of lines) {
    const { x, y, count } = line.flat;
    if (line.isOld || !count || Number.isFinite(y[count - 1])) continue;
    let first = count - 1;
    while (first > 0 && Object.is(y[first - 1], y[count - 1])) first -= 1;
    const { notFiniteSince } = card.last(line);
    const at = card.xAxis === 'step' ? (notFiniteSince ?? x[first]) : x[first];
    markers.push({ at, text: notFinite(y[count - 1], notFiniteSince), short: number(y[count - 1]), warns: true });
  }
  return markers;
}
