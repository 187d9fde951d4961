/** Search logs: a search in the logs of many runs, told answer by answer, and cancelled at any time. */

import { choose, chosen, keepSelection } from '../elements/address.js';
import { el, mountOnce, setText } from '../elements/elements.js';
import { count, plural } from '../elements/numbers.js';
import { follow, linkOf, pageUrl } from '../links/links.js';
import { request, sentenceOf } from '../server/request.js';

const MOST_SHOWN = 1000;

/**
 * @typedef {{id: string, name: string, lines: number, first: {attempt: number, rank: number|'launcher', stream:
 *   'out'|'err', line: number, text: string}}} Found a run whose logs match, with the first line that does
 */

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new LogFinder(first));

class LogFinder {
  /** @type {string[]} the runs that were found, as many as are shown */
  _ids = [];
  _runs = 0;
  _lines = 0;
  _searched = 0;
  _total = 0;
  /** @type {{id: string, lines: number, count: HTMLElement}|null} */
  _last = null;
  /** @type {AbortController|null} */
  _abort = null;
  /** @type {string|null} */
  _searching = null;
  /** @type {(() => void)|undefined} */
  _leave;

  /** @param {import('../elements/elements.js').Component} component */
  constructor({ parentElement }) {
    this._text = el('input', {
      type: 'search',
      'aria-label': 'Text in the logs',
      placeholder: 'Text in the logs, such as: CUDA out of memory',
      maxlength: '500',
      value: chosen('q') ?? '',
    });
    this._filter = el('input', {
      type: 'search',
      'aria-label': 'Only runs that match',
      placeholder: 'Only runs that match, such as: state:failed',
      maxlength: '500',
      value: chosen('filter') ?? '',
    });
    this._button = el('button', { type: 'submit', text: 'Search' });
    this._status = el('p', { class: 'status', role: 'status' });
    this._select = el('a', {
      class: 'select',
      href: pageUrl('./'),
      hidden: true,
      text: 'Select these runs',
      title: 'Compare, tag or export them on the Runs page',
      onclick: () => keepSelection(this._ids),
    });
    this._list = el('ol', { 'aria-label': 'Runs that printed it' });
    const form = el(
      'form',
      {
        role: 'search',
        'aria-label': 'Logs',
        onsubmit: (event) => {
          event.preventDefault();
          this._submitted();
        },
      },
      this._text,
      this._filter,
      this._button,
    );
    this._root = el(
      'section',
      { class: 'log-finder', 'aria-label': 'Search logs' },
      form,
      el('div', { class: 'outcome' }, this._status, this._select),
      this._list,
    );
    this._root.addEventListener('click', (event) => {
      const link = linkOf(event);
      if (link) this._leave = follow(event, link) ?? this._leave;
    });
    parentElement.append(this._root);
    this._text.focus({ preventScroll: true });
    if (this._text.value) void this._search();
    else
      setText(
        this._status,
        'The logs of every attempt, rank and stream are searched, newest runs first; case is ignored.',
      );
  }

  destroy() {
    this._abort?.abort();
    this._leave?.();
    this._root.remove();
  }

  /** The button cancels the search that is shown; Enter after other words begins theirs. */
  _submitted() {
    const isShown = this._searching === this._words();
    if (this._abort) this._cancel();
    if (this._text.value && !isShown) void this._search();
  }

  _words() {
    return `${this._text.value}\n${this._filter.value}`;
  }

  _cancel() {
    this._abort?.abort();
    this._end();
    this._say('Cancelled: ');
  }

  async _search() {
    const abort = (this._abort = new AbortController());
    this._searching = this._words();
    const [text, filter] = [this._text.value, this._filter.value];
    choose({ q: text, filter });
    Object.assign(this, { _searched: 0, _total: 0, _lines: 0, _runs: 0, _last: null, _ids: [] });
    this._select.hidden = true;
    this._list.replaceChildren();
    setText(this._button, 'Cancel');
    setText(this._status, 'Searching…');
    try {
      for (let after = /** @type {string|null} */ (''); after !== null; ) {
        const answer = await request(`api/logs/search?${new URLSearchParams({ q: text, filter, after })}`, abort);
        this._add(answer, text);
        this._say(answer.after === null ? '' : 'Searching: ');
        after = answer.after;
      }
    } catch (error) {
      if (abort.signal.aborted) return;
      setText(this._status, sentenceOf(error));
    }
    if (this._abort === abort) this._end();
  }

  _end() {
    this._abort = null;
    this._searching = null;
    this._select.hidden = this._runs === 0;
    setText(this._button, 'Search');
  }

  /** @param {string} begin */
  _say(begin) {
    const runs = `${count(this._searched)} of ${plural(this._total, 'run')} searched`;
    const matches = this._runs
      ? `${plural(this._runs, 'run')} printed it, in ${plural(this._lines, 'line')}`
      : 'none printed it';
    const more = this._runs > MOST_SHOWN ? ` The newest ${count(MOST_SHOWN)} are shown.` : '';
    setText(this._status, `${begin}${runs}, ${matches}.${more}`);
  }

  /**
   * A run that the answer before left in the middle comes again with the lines that follow.
   * @param {{runs: Found[], searched: number, total: number}} answer
   * @param {string} text
   */
  _add({ runs, searched, total }, text) {
    this._searched += searched;
    this._total = total;
    for (const run of runs) {
      this._lines += run.lines;
      const isSame = this._last?.id === run.id;
      /** @type {{id: string, lines: number, count: HTMLElement}} */
      const last = isSame && this._last ? this._last : { id: run.id, lines: 0, count: el('span', { class: 'count' }) };
      last.lines += run.lines;
      setText(last.count, plural(last.lines, 'line'));
      this._last = last;
      if (isSame) continue;
      this._runs += 1;
      if (this._runs > MOST_SHOWN) continue;
      this._ids.push(run.id);
      this._list.append(item(run, last.count, text));
    }
  }
}

/**
 * A run and its first matching line, which is a link to that line.
 * @param {Found} run
 * @param {HTMLElement} lines
 * @param {string} text
 */
function item({ id, name, first }, lines, text) {
  const { attempt, rank, stream, line } = first;
  const who = rank === 'launcher' ? rank : `rank ${rank}`;
  const where = [who, stream === 'err' ? 'stderr' : 'stdout', `line ${count(line)}`];
  const place = [...where, ...(attempt > 1 ? [`attempt ${attempt}`] : [])].join(', ');
  const query = new URLSearchParams({
    id,
    tab: 'logs',
    log: `${rank}.${stream}.${attempt}`,
    line: String(line),
    find: text,
  });
  return el(
    'li',
    {},
    el(
      'div',
      { class: 'head' },
      el('a', { href: pageUrl(`run?id=${encodeURIComponent(id)}`), title: id, text: name || id }),
      lines,
      el('span', { class: 'place', text: place }),
    ),
    el(
      'a',
      { class: 'line', href: pageUrl(`run?${query}`), 'aria-label': `${name || id}, ${place}` },
      el('code', {}, ...marked(first.text, text)),
    ),
  );
}

/** The line with the matches marked. @param {string} line @param {string} text */
function marked(line, text) {
  const parts = [];
  const [lowered, sought] = [line.toLowerCase(), text.toLowerCase()];
  // A letter whose small form is longer: places would differ.
  if (lowered.length !== line.length || !sought) return [document.createTextNode(line)];
  let from = 0;
  for (let at = lowered.indexOf(sought); at >= 0; at = lowered.indexOf(sought, from)) {
    parts.push(document.createTextNode(line.slice(from, at)), el('mark', { text: line.slice(at, at + sought.length) }));
    from = at + sought.length;
  }
  return [...parts, document.createTextNode(line.slice(from))];
}
