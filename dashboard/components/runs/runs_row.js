/** One run as a row of the table of runs. */

import { el, setAttribute, setText, svg } from '../elements/elements.js';
import { ago, count, duration, exact, fromJson, number, UNKNOWN } from '../elements/numbers.js';
import { GRAVE, LIVE, MARKS } from '../elements/run_states.js';
import { pageUrl } from '../links/links.js';
import { isNumeric, valueText } from './columns.js';

/**
 * @typedef {{id: string, name: string, project: string, state: string, attention: string|null, note: string,
 *   progress: number|null, tags: string[], own_note: string|null, pinned: boolean, baseline: boolean,
 *   archived: boolean, imported_from: string|null, watched: boolean, step: number|null, total_steps: number|null,
 *   current_epoch?: number|null, total_epochs?: number|null, loss: number|string|null, curve: number[]|null,
 *   throughput: number|string|null, created_at: number, started_at: number|null, ended_at: number|null,
 *   values: any[], changes: (number|null)[]}} Run
 */

const CURVE = { width: 104, height: 22 };

export class RunRow {
  /** @type {{key: string, kind: string}[]} */
  _columns = [];
  _shownTags = '';

  /** @param {Run} run @param {import('./columns.js').Column[]} columns */
  constructor(run, columns) {
    this.run = run;
    this.check = el('input', { type: 'checkbox', class: 'check', 'data-run': run.id });
    this._mark = el('i', { 'aria-hidden': 'true' });
    this._word = el('span', {});
    this._pill = el('span', { class: 'pill' }, this._mark, this._word);
    this.link = el('a', { href: pageUrl(`run?id=${run.id}`), 'data-run': run.id });
    this._baseline = el('span', {
      class: 'pin',
      text: '◆',
      title: 'Baseline of its project',
      role: 'img',
      'aria-label': 'Baseline',
      hidden: true,
    });
    this._pin = el('span', { class: 'pin', text: '★', title: 'Pinned', hidden: true });
    this._tags = el('span', { class: 'tags' });
    this._under = el('span', { class: 'under' });
    this._bar = el('i', {});
    this._share = el('span', { class: 'share' });
    this._track = el('span', { class: 'track', 'aria-hidden': 'true' }, this._bar);
    this._line = svg('polyline', {});
    const curve = svg('svg', { viewBox: `0 0 ${CURVE.width} ${CURVE.height}`, 'aria-hidden': 'true' }, this._line);
    /** @type {Record<string, Element[]>} */
    const inside = {
      pick: [el('label', {}, this.check)],
      state: [this._pill],
      name: [this._baseline, this._pin, this.link, this._tags, this._under],
      progress: [this._track, this._share],
      curve: [curve],
    };
    /** @type {Map<string, HTMLElement>} */
    this._values = new Map(
      columns
        .filter(({ key }) => !(key in inside))
        .map(({ key }) => [key, el(key === 'project' ? 'a' : 'span', { class: 'value' })]),
    );
    const cells = columns.map((column) =>
      el('td', { class: classOf(column) }, ...(inside[column.key] ?? [this._values.get(column.key) ?? ''])),
    );
    this.root = el('tr', {}, ...cells);
  }

  /**
   * @param {Run} run
   * @param {number} now by the server's clock, in seconds
   * @param {{key: string, kind: string}[]} columns those of its values
   */
  show(run, now, columns) {
    this.run = run;
    this._columns = columns;
    for (const { key, kind } of columns)
      this._values.get(key)?.parentElement?.classList.toggle('number', isNumeric(kind));
    this._showState(run);
    setText(this.link, run.name || run.id);
    setAttribute(this.check, 'aria-label', `Select ${run.name || run.id}`);
    setAttribute(this.link, 'title', `${run.name}\n${run.id}`);
    this._pin.hidden = !run.pinned;
    this._baseline.hidden = !run.baseline;
    this._showTags([
      ...(run.archived ? ['archived'] : []),
      ...(run.imported_from ? [`imported (${run.imported_from})`] : []),
      ...(run.watched ? ['watched'] : []),
      ...run.tags,
    ]);
    const note = run.note || run.own_note;
    setText(this._under, note || run.project);
    const share = run.progress === null ? null : Math.floor(run.progress * 100);
    setText(this._share, share === null ? UNKNOWN : `${share} %`);
    setAttribute(this._share, 'title', share === null ? 'The numbers of steps and epochs are unknown' : placeOf(run));
    this._track.hidden = share === null;
    this._bar.style.width = `${share ?? 0}%`;
    this._showProject(run.project);
    this._put('step', count(run.step), exact(run.step));
    this._put('loss', run.loss === null ? UNKNOWN : number(fromJson(run.loss), 4), exact(run.loss));
    this._put(
      'throughput',
      run.throughput === null ? UNKNOWN : number(fromJson(run.throughput)),
      exact(run.throughput),
    );
    this._put('note', note ?? '', note);
    this._showCurve(run.curve);
    this.tick(now);
  }

  /**
   * Check the box of a selected run, in the run's colour in a comparison; null where it is not selected.
   * @param {string|null} colour
   */
  showSelected(colour) {
    this.check.checked = colour !== null;
    this.check.style.accentColor = colour ?? '';
  }

  /** Update the cells that change with time. @param {number} now */
  tick(now) {
    const { run } = this;
    const began = run.started_at ?? run.created_at;
    this._put('duration', duration(elapsed(run, now)), null);
    const isQueued = run.state === 'queued';
    this._put('started', isQueued ? UNKNOWN : ago(now - began), new Date(began * 1000).toLocaleString());
    this._columns.forEach(({ key, kind }, at) =>
      this._put(key, ...valueText(run.values[at], kind, now, run.changes[at])),
    );
  }

  /** @param {Run} run */
  _showState(run) {
    const state = run.attention ?? run.state;
    const tone =
      run.attention && run.attention !== 'failed' ? (GRAVE.has(run.attention) ? 'grave' : 'warn') : run.state;
    setText(this._mark, run.attention && run.attention !== 'failed' ? '!' : (MARKS[run.state] ?? ''));
    setText(this._word, state);
    this._pill.className = `pill ${tone}`;
    setAttribute(
      this._pill,
      'title',
      [state === run.state ? null : run.state, run.note].filter(Boolean).join(': ') || null,
    );
    this.root.classList.toggle('imported', Boolean(run.imported_from) || run.watched);
    this.root.classList.toggle('ended', !LIVE.has(run.state) && run.state !== 'queued');
  }

  /** @param {string} name */
  _showProject(name) {
    const link = this._values.get('project');
    if (!link || link.textContent === name) return;
    setText(link, name);
    setAttribute(link, 'title', name);
    setAttribute(link, 'href', pageUrl(`project?${new URLSearchParams({ name })}`));
  }

  /** @param {string[]} tags */
  _showTags(tags) {
    if (this._shownTags === tags.join(' ')) return;
    this._shownTags = tags.join(' ');
    this._tags.replaceChildren(...tags.map((tag) => el('span', { class: 'tag', text: tag })));
    setAttribute(this._tags, 'title', this._shownTags || null);
  }

  /** @param {string} key @param {string} text @param {string|null|undefined} title */
  _put(key, text, title) {
    const element = this._values.get(key);
    if (!element) return;
    setText(element, text);
    setAttribute(element, 'title', title && title !== UNKNOWN ? title : null);
  }

  /** @param {number[]|null} curve */
  _showCurve(curve) {
    setAttribute(this._line, 'points', curve ? pointsOf(curve) : '');
  }
}

/**
 * The class of a column's cells; an added one may have any name.
 * @param {import('./columns.js').Column} column
 */
export function classOf({ key, isNumber, isAdded }) {
  return `${isAdded ? (key === 'by' ? 'added by' : 'added') : key}${isNumber ? ' number' : ''}`;
}

/** @param {Run} run @param {number} now */
function elapsed(run, now) {
  return run.started_at === null ? null : Math.max(0, (run.ended_at ?? now) - run.started_at);
}

/** @param {number[]} curve */
function pointsOf(curve) {
  const [low, high] = [Math.min(...curve), Math.max(...curve)];
  /** @param {number} at */
  const x = (at) => ((at * CURVE.width) / (curve.length - 1)).toFixed(1);
  /** @param {number} value */
  const y = (value) =>
    (high === low ? CURVE.height / 2 : 1 + ((high - value) * (CURVE.height - 2)) / (high - low)).toFixed(1);
  return curve.map((value, at) => `${x(at)},${y(value)}`).join(' ');
}

/** The step or the epoch that a run is at. @param {Run} run */
function placeOf(run) {
  if (run.total_steps || !run.total_epochs) return `step ${run.step ?? 0} of ${run.total_steps ?? 'unknown'}`;
  return `epoch ${number(run.current_epoch ?? 0)} of ${run.total_epochs}`;
}
