/** Searches a whole log on the server: how many lines match, and the way from one to the next. */

import { el, setText } from './elements.js';
import { count } from './numbers.js';

const TYPING_MS = 250;

/** @typedef {{line: number, offset: number, text: string}} Hit */

export class LogSearch {
  /** @param {{urlOf: (more: object) => string, onHit: (hit: Hit, query: string) => void}} log */
  constructor(log) {
    this._log = log;
    this._input = el('input', { type: 'search', placeholder: 'Search log…', 'aria-label': 'Search the whole log', maxlength: '500' });
    this._input.addEventListener('input', () => {
      clearTimeout(this._typing);
      this._typing = setTimeout(() => void this.again(), TYPING_MS);
    });
    this._input.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') this._go(event.shiftKey ? -1 : 1);
    });
    this._said = el('span', { class: 'found', role: 'status' });
    this._before = el('button', { type: 'button', text: '↑', title: 'Previous match (Shift+Enter)', 'aria-label': 'Previous match', onclick: () => this._go(-1) });
    this._after = el('button', { type: 'button', text: '↓', title: 'Next match (Enter)', 'aria-label': 'Next match', onclick: () => this._go(1) });
    const error = el('button', { type: 'button', text: 'First error', title: 'The first line that reads like an error', onclick: () => void this._firstError() });
    this.element = el('span', { class: 'log-search' }, this._input, this._before, this._after, this._said, error);
    this._clear();
  }

  destroy() {
    clearTimeout(this._typing);
    this._abort?.abort();
  }

  /** Search anew for what is typed: it was changed, or the log is another. */
  async again() {
    this._clear();
    const query = this._input.value;
    if (query) await this._told(() => this._searchAll(query));
  }

  /** @param {object} more @returns {Promise<{hits: Hit[], lines: number, offset: number, line: number, is_complete: boolean}>} */
  async ask(more) {
    this._abort ??= new AbortController();
    const response = await fetch(this._log.urlOf(more), { signal: this._abort.signal });
    if (!response.ok) throw new Error(`The log could not be searched (${response.status}).`);
    return response.json();
  }

  async _searchAll(query) {
    for (let place = { offset: 0, line: 1, is_complete: false }; !place.is_complete; ) {
      const found = await this.ask({ q: query, offset: place.offset, line: place.line });
      const isSame = found.hits.length > 0 && this._hits.at(-1)?.line === found.hits[0].line;
      this._hits.push(...found.hits.slice(isSame ? 1 : 0));
      this._lines += found.lines - (isSame ? 1 : 0);
      this._isComplete = found.is_complete || found.offset === place.offset;
      place = { ...found, is_complete: this._isComplete };
      this._say();
    }
  }

  async _firstError() {
    this._clear();
    this._input.value = '';
    await this._told(async () => {
      for (let place = { offset: 0, line: 1 }; ; ) {
        const found = await this.ask({ errors: true, offset: place.offset, line: place.line });
        if (found.hits.length) return this._log.onHit(found.hits[0], '');
        if (found.is_complete || found.offset === place.offset) return setText(this._said, 'No line reads like an error.');
        place = found;
      }
    });
  }

  async _told(work) {
    try {
      await work();
    } catch (error) {
      if (/** @type {Error} */ (error).name !== 'AbortError') setText(this._said, /** @type {Error} */ (error).message);
    }
  }

  _clear() {
    this._abort?.abort();
    this._abort = null;
    /** @type {Hit[]} */
    this._hits = [];
    this._lines = 0;
    this._current = -1;
    this._isComplete = true;
    this._say();
  }

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
