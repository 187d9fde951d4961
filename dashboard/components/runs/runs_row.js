/** The columns of the table of runs, and one run as a row of it. */

import { el, setAttribute, setText } from '../elements/elements.js';
import { pageUrl } from '../links/following.js';
import { count, duration, exact, fromJson, number, UNKNOWN } from '../elements/numbers.js';

/**
 * @typedef {{id: string, name: string, project: string, state: string, attention: string|null, note: string, progress: number|null,
 *            step: number|null, total_steps: number|null, loss: number|string|null, curve: number[]|null, throughput: number|string|null,
 *            created_at: number, started_at: number|null, ended_at: number|null}} Run
 */

const LIVE = new Set(['starting', 'running', 'stopping']);
const GRAVE = new Set(['hung', 'NaN loss', 'failed']);
const MARKS = { queued: '○', starting: '◌', running: '●', stopping: '◐', succeeded: '✓', failed: '✕', stopped: '■' };
const CURVE = { width: 104, height: 22 };

/** The columns with their sort values; null always comes last. `first`: the direction of the first click. */
export const COLUMNS = [
  { key: 'state', title: 'State', first: 1, value: (run) => run.attention ?? run.state },
  { key: 'name', title: 'Name', first: 1, value: (run) => run.name.toLowerCase() },
  { key: 'project', title: 'Project', first: 1, value: (run) => run.project.toLowerCase() },
  { key: 'progress', title: 'Progress', first: -1, value: (run) => run.progress },
  { key: 'step', title: 'Step', first: -1, isNumber: true, value: (run) => run.step },
  { key: 'loss', title: 'Loss', first: 1, isNumber: true, value: (run) => finite(run.loss) },
  { key: 'curve', title: 'Loss curve' },
  { key: 'throughput', title: 'Samples/s', first: -1, isNumber: true, value: (run) => finite(run.throughput) },
  { key: 'duration', title: 'Duration', first: -1, isNumber: true, value: (run, now) => elapsed(run, now) },
  { key: 'started', title: 'Started', first: -1, isNumber: true, value: (run) => run.started_at ?? run.created_at },
  { key: 'note', title: 'Note' },
];

export class RunRow {
  /** @param {Run} run */
  constructor(run) {
    this._mark = el('i', { 'aria-hidden': 'true' });
    this._word = el('span', {});
    this._pill = el('span', { class: 'pill' }, this._mark, this._word);
    this.link = el('a', { href: pageUrl(`run?id=${run.id}`), 'data-run': run.id });
    this._under = el('span', { class: 'under' });
    this._bar = el('i', {});
    this._share = el('span', { class: 'share' });
    this._track = el('span', { class: 'track', 'aria-hidden': 'true' }, this._bar);
    this._line = document.createElementNS('http://www.w3.org/2000/svg', 'polyline');
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    for (const [name, value] of [['viewBox', `0 0 ${CURVE.width} ${CURVE.height}`], ['aria-hidden', 'true']]) svg.setAttribute(name, value);
    svg.append(this._line);
    this._values = new Map(['project', 'step', 'loss', 'throughput', 'duration', 'started', 'note'].map((key) => [key, el('span', { class: 'value' })]));
    const inside = { state: [this._pill], name: [this.link, this._under], progress: [this._track, this._share], curve: [svg] };
    const cells = COLUMNS.map(({ key, isNumber }) => el('td', { class: `${key}${isNumber ? ' number' : ''}` }, ...(inside[key] ?? [this._values.get(key)])));
    this.root = el('tr', {}, ...cells);
  }

  /** @param {Run} run @param {number} now by the server's clock, in seconds */
  show(run, now) {
    this.run = run;
    this._showState(run);
    setText(this.link, run.name || run.id);
    setAttribute(this.link, 'title', `${run.name}\n${run.id}`);
    setText(this._under, run.note || run.project);
    const share = run.progress === null ? null : Math.floor(run.progress * 100);
    setText(this._share, share === null ? UNKNOWN : `${share} %`);
    setAttribute(this._share, 'title', share === null ? 'The total number of steps is unknown' : `step ${run.step ?? 0} of ${run.total_steps ?? 'unknown'}`);
    this._track.hidden = share === null;
    this._bar.style.width = `${share ?? 0}%`;
    this._put('project', run.project, run.project);
    this._put('step', count(run.step), exact(run.step));
    this._put('loss', run.loss === null ? UNKNOWN : number(fromJson(run.loss), 4), exact(run.loss));
    this._put('throughput', run.throughput === null ? UNKNOWN : number(fromJson(run.throughput)), exact(run.throughput));
    this._put('note', run.note, run.note);
    this._showCurve(run.curve);
    this.tick(now);
  }

  /** Update the cells that change with time. */
  tick(now) {
    const { run } = this;
    const began = run.started_at ?? run.created_at;
    this._put('duration', duration(elapsed(run, now)), null);
    this._put('started', ago(now - began), new Date(began * 1000).toLocaleString());
  }

  _showState(run) {
    const state = run.attention ?? run.state;
    const tone = run.attention && run.attention !== 'failed' ? (GRAVE.has(run.attention) ? 'grave' : 'warn') : run.state;
    setText(this._mark, run.attention && run.attention !== 'failed' ? '!' : MARKS[run.state] ?? '');
    setText(this._word, state);
    this._pill.className = `pill ${tone}`;
    setAttribute(this._pill, 'title', [state === run.state ? null : run.state, run.note].filter(Boolean).join(': ') || null);
    this.root.classList.toggle('ended', !LIVE.has(run.state) && run.state !== 'queued');
  }

  _put(key, text, title) {
    const element = this._values.get(key);
    setText(element, text);
    setAttribute(element, 'title', title && title !== UNKNOWN ? title : null);
  }

  _showCurve(curve) {
    setAttribute(this._line, 'points', curve ? pointsOf(curve) : '');
  }
}

/** 40 s ago, 12 min ago, 3 h ago, 5 d ago. */
export function ago(seconds) {
  if (seconds < 5) return 'just now';
  for (const [limit, length, unit] of [[90, 1, 's'], [5400, 60, 'min'], [172_800, 3600, 'h']]) {
    if (seconds < limit) return `${Math.trunc(seconds / length)} ${unit} ago`;
  }
  return `${Math.trunc(seconds / 86_400)} d ago`;
}

function elapsed(run, now) {
  return run.started_at === null ? null : Math.max(0, (run.ended_at ?? now) - run.started_at);
}

function finite(value) {
  return typeof value === 'number' ? value : null;
}

function pointsOf(curve) {
  const [low, high] = [Math.min(...curve), Math.max(...curve)];
  const x = (at) => ((at * CURVE.width) / (curve.length - 1)).toFixed(1);
  const y = (value) => (high === low ? CURVE.height / 2 : 1 + ((high - value) * (CURVE.height - 2)) / (high - low)).toFixed(1);
  return curve.map((value, at) => `${x(at)},${y(value)}`).join(' ');
}
