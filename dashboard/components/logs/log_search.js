/** Searches a whole log on the server: how many lines match, and the way from one to the next. */

import { el, setText } from '../elements/elements.js';
import { count } from '../elements/numbers.js';
import { request, sentenceOf } from '../server/request.js';

const TYPING_MS = 250;
/** @typedef {{log?: number, offset: number, line: number}} Place where to go on */
/** @typedef {Place & {hits: Hit[], lines: number, is_complete: boolean}} Found */

/** @type {Place} */
const BEGINNING = { offset: 0, line: 1 };

/**
 * @typedef {{line: number, offset: number, text: string, rank?: number|'launcher', stream?: 'out'|'err',
 *   position?: string}} Hit the last three where several logs are searched
 */

export class LogSearch {
  /** @type {Hit[]} */
  _hits = [];
  _lines = 0;
  _current = -1;
  _isComplete = true;
  _sought = '';
  /** @type {AbortController|null} */
  _abort = null;
  /** @type {Promise<void>|null} */
  _pending = null;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  _typing;

  /**
   * @param {{urlOf: (more: object) => string, onHit: (hit: Hit, query: string) => void, onQuery: (query:
   *   string) => void}} log
   */
  constructor(log) {
    this._log = log;
    this._input = el('input', {
      type: 'search',
      placeholder: 'Search log…',
      'aria-label': 'Search the whole log',
      maxlength: '500',
    });
    this._input.addEventListener('input', () => {
      clearTimeout(this._typing);
      this._typing = setTimeout(() => void this.again(), TYPING_MS);
    });
    this._input.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') void this._entered(event.shiftKey ? -1 : 1);
    });
    this._said = el('span', { class: 'found', role: 'status' });
    this._before = el('button', {
      type: 'button',
      text: '↑',
      title: 'Previous match (Shift+Enter)',
      'aria-label': 'Previous match',
      onclick: () => this._go(-1),
    });
    this._after = el('button', {
      type: 'button',
      text: '↓',
      title: 'Next match (Enter)',
      'aria-label': 'Next match',
      onclick: () => this._go(1),
    });
    const error = el('button', {
      type: 'button',
      text: 'First error',
      title: 'The first line that looks like an error',
      onclick: () => void this._firstError(),
    });
    this.element = el('span', { class: 'log-search' }, this._input, this._before, this._after, this._said, error);
    this._clear();
  }

  destroy() {
    clearTimeout(this._typing);
    this._abort?.abort();
  }

  /** Search for a text, of which a line is shown already. @param {string} text @param {number} line */
  async begin(text, line) {
    this._input.value = text;
    await this.again();
    this._current = this._hits.findIndex((hit) => hit.line === line);
    this._say();
  }

  /** Search anew for what is typed: it was changed, or the log is another. */
  async again() {
    this._clear();
    const query = (this._sought = this._input.value);
    this._log.onQuery(query);
    this._pending = query ? this.told(() => this._searchAll(query)) : null;
    await this._pending;
  }

  /** @param {object} more @returns {Promise<Found>} */
  async ask(more) {
    this._abort ??= new AbortController();
    return request(this._log.urlOf(more), { signal: this._abort.signal });
  }

  /** @param {string} query */
  async _searchAll(query) {
    /** @type {Hit|undefined} of the log that the next answer goes on in */
    let last;
    /** @type {Place} */
    let place = BEGINNING;
    for (this._isComplete = false; !this._isComplete; ) {
      const found = await this.ask({ q: query, ...placeOf(place) });
      const isSame = found.hits.length > 0 && isSameLine(last, found.hits[0]);
      last = found.hits.at(-1) ?? last;
      this._add(found.hits.slice(isSame ? 1 : 0));
      this._lines += found.lines - (isSame ? 1 : 0);
      this._isComplete = found.is_complete || isStuck(place, found);
      place = found;
      this._say();
    }
  }

  /** Add what was found; of several logs by time. @param {Hit[]} hits */
  _add(hits) {
    const current = this._hits[this._current];
    this._hits = this._hits.concat(hits);
    if (hits[0]?.position) this._hits.sort(byPosition);
    if (current) this._current = this._hits.indexOf(current);
  }

  async _firstError() {
    this._clear();
    this._input.value = '';
    this._log.onQuery('');
    await this.told(async () => {
      /** @type {Hit[]} */
      const hits = [];
      for (let place = BEGINNING; ; ) {
        const found = await this.ask({ errors: true, ...placeOf(place) });
        hits.push(...found.hits);
        // Of several logs the first error is known when all of them were looked through.
        if (found.is_complete || isStuck(place, found) || (hits.length && !hits[0].position)) break;
        place = found;
      }
      if (!hits.length) return setText(this._said, 'No line looks like an error.');
      this._log.onHit(hits[0].position ? hits.sort(byPosition)[0] : hits[0], '');
    });
  }

  /** Do what somebody asked for; where the server does not, say so. @param {() => Promise<unknown>} work */
  async told(work) {
    try {
      await work();
    } catch (error) {
      if (/** @type {Error} */ (error).name !== 'AbortError') setText(this._said, sentenceOf(error));
    }
  }

  _clear() {
    this._abort?.abort();
    this._abort = null;
    this._hits = [];
    this._lines = 0;
    this._current = -1;
    this._isComplete = true;
    this._say();
  }

  /**
   * Go to the next match; of a text that was just typed, to the first one once the log is searched.
   * @param {number} step
   */
  async _entered(step) {
    clearTimeout(this._typing);
    if (this._input.value !== this._sought) void this.again();
    await this._pending;
    this._go(step);
  }

  /** @param {number} step */
  _go(step) {
    if (!this._hits.length) return;
    const start = this._current < 0 && step < 0 ? 0 : this._current;
    this._current = (start + step + this._hits.length) % this._hits.length;
    this._say();
    this._log.onHit(this._hits[this._current], this._input.value);
  }

  _say() {
    const all = `${count(this._lines)}${this._isComplete ? '' : '+'}`;
    const place = this._current < 0 ? '' : `${count(this._current + 1)} of `;
    setText(this._said, this._input.value ? `${place}${all} ${this._lines === 1 ? 'line' : 'lines'}` : '');
    this._before.disabled = this._after.disabled = !this._hits.length;
  }
}

/** Where to go on: `log` only where several are searched. @param {Place} place */
function placeOf({ log, offset, line }) {
  return log === undefined ? { offset, line } : { log, offset, line };
}

/** @param {Place} place @param {Place} found */
function isStuck(place, found) {
  return found.offset === place.offset && found.log === place.log;
}

/** @param {Hit|undefined} one @param {Hit} other */
function isSameLine(one, other) {
  return one !== undefined && one.line === other.line && one.rank === other.rank && one.stream === other.stream;
}

/** Time, then rank and stream, then place in the log. @param {Hit} one @param {Hit} other */
function byPosition(one, other) {
  const [a, b] = [one, other].map((hit) => (hit.position ?? '').split('.').map(Number));
  return a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
}
