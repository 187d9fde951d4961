/** The log of one rank, or of all by time, following what is written. */

import { el, mountOnce, setText, toggle } from '../elements/elements.js';
import { connect } from '../live/live_connection.js';
import { apiUrl, Newest, read, sentenceOf } from '../server/request.js';
import { LogPane } from './log_pane.js';
import { isMerged, LogOffsets, linesAround, linesBefore, linesBehind, orderSentence } from './log_positions.js';
import { LogSearch } from './log_search.js';

const EARLIER_BYTES = 256 * 1024;
const BEFORE_HIT_BYTES = 64 * 1024;
const BEGINNING = { offset: 0, line: 1 };
const BEGINNING_OF_ALL = '0.0.0';

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new LogView(first));

/** @typedef {import('../live/live_connection.js').LogChoice} LogChoice */
/** @typedef {LogChoice & {line: number}} Marked the line that a link leads to */
/** @typedef {{at: number, decoder: TextDecoder}} Later where the lines go on that are not here */

class LogView {
  /** @type {LogChoice} */
  _choice = { rank: 0, stream: 'out', attempt: null };
  /** @type {Marked|null} */
  _marked = null;
  /** @type {Marked|null} */
  _linked = null;
  /** @type {number|undefined} */
  _attemptSeen;
  /** @type {Later|undefined} */
  _later;
  _isLive = true;
  /** Which place was asked for last: an answer that comes late shows no earlier one. */
  _places = 0;
  _offsets = new LogOffsets();
  _newest = new Newest();

  _rank = el('select', { 'aria-label': 'Rank' }, el('option', { value: '0', text: 'rank 0' }));
  _stream = el(
    'select',
    { 'aria-label': 'Stream' },
    el('option', { value: 'out', text: 'stdout' }),
    el('option', { value: 'err', text: 'stderr' }),
    el('option', { value: 'both', text: 'both streams' }),
  );
  _attempt = el('select', { 'aria-label': 'Attempt', hidden: true });
  _search = new LogSearch({
    urlOf: (more) => this._url(more, isMerged(this._choice) ? '/merged/search' : '/search'),
    onHit: (hit) => void this._search.told(() => this._showHit(hit)),
    onQuery: (query) => this._pane.mark(query),
  });
  _follow = toggle('Follow', 'Stay at the end as lines arrive', true, (on) => this._setFollow(on));
  _copy = el('button', {
    type: 'button',
    text: 'Copy',
    title: 'Copy the selection, or the lines shown',
    onclick: () => void this._copied(this._copy, this._pane.copied()),
  });
  _link = el('button', {
    type: 'button',
    text: 'Copy link',
    title: 'Copy the address of the marked line',
    disabled: true,
    onclick: () => this._marked && void this._copied(this._link, this._linkTo(this._marked)),
  });
  _download = el('a', {
    class: 'download',
    download: '',
    text: 'Download log',
    title: 'Download the whole log',
  });
  _order = el('p', { class: 'by-time', hidden: true });
  _pane = new LogPane({
    // The end of a stretch around a match is not the log's end.
    onFollow: (on) => this._follow.setAttribute('aria-pressed', String(on && this._isLive)),
    onChosen: (line) => void this._search.told(() => this._markChosen(line)),
    onEarlier: () => void this._loadEarlier(),
    onLater: () => void this._loadLater(),
  });

  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    this._connection = connect(component.data.run_id);
    for (const select of [this._rank, this._stream, this._attempt])
      select.addEventListener('change', () => this._chosen());
    this._root = el('div', { class: 'log-view' }, this._bar(), this._order, this._pane.element);
    component.parentElement.append(this._root);
    this._endings = [
      this._connection.on('run', (run) => this._showRun(run)),
      this._connection.on('log', (message) => this._received(message)),
      () => this._pane.destroy(),
      () => this._search.destroy(),
    ];
    const linked = (this._linked = linkedLine());
    if (this._connection.run) this._showRun(this._connection.run);
    if (linked) void this._search.told(() => this._openLink(linked));
    else this._choose({});
  }

  destroy() {
    for (const end of this._endings) end();
    this._connection.followLog(null);
    this._root.remove();
    this._connection.release();
  }

  _bar() {
    const beginning = el('button', {
      type: 'button',
      text: 'Beginning',
      title: 'Go to the first line',
      onclick: () => void this._search.told(() => this._toBeginning()),
    });
    return el(
      'div',
      { class: 'log-bar' },
      this._rank,
      this._stream,
      this._attempt,
      this._search.element,
      beginning,
      el('span', { class: 'space' }),
      this._link,
      this._copy,
      this._follow,
      toggle('Wrap', 'Break long lines', false, (on) => this._pane.wrap(on)),
      this._download,
    );
  }

  /** @param {import('../server/documents.js').Run} run */
  _showRun(run) {
    const ranks = ['launcher', ...Array.from({ length: run.world_size }, (_, rank) => String(rank))];
    /**
     * @param {HTMLSelectElement} select
     * @param {string[]} values
     * @param {(value: string) => string} textOf
     */
    fill(this._rank, ['all', ...ranks.slice(1), ranks[0]], (rank) =>
      rank === 'all' ? 'all ranks' : rank === 'launcher' ? rank : `rank ${rank}`,
    );
    const attempts = Array.from({ length: run.attempt }, (_, i) => String(run.attempt - i));
    fill(this._attempt, attempts, (attempt) => `attempt ${attempt}`);
    this._attempt.hidden = run.attempt < 2;
    const seen = this._attemptSeen;
    if (seen === undefined && run.state === 'failed' && !this._linked) this._showFailure(run);
    // A new attempt writes new files: a view of the latest attempt follows it.
    else if (seen !== undefined && run.attempt > seen && this._choice.attempt === null) {
      this._attempt.value = String(run.attempt);
      this._choose({});
    }
    this._attemptSeen = run.attempt;
    this._pane.setEmptySentence(emptyLog(run, this._choice.stream));
  }

  /**
   * A failed run opens at the words of the rank that failed first.
   * @param {import('../server/documents.js').Run} run
   */
  _showFailure(run) {
    const rank = run.error?.rank ?? null;
    this._rank.value = rank === null ? 'launcher' : String(rank);
    this._stream.value = 'err';
    this._chosen();
  }

  _chosen() {
    const { value } = this._rank;
    const latest = this._connection.run?.attempt ?? 1;
    this._choose({
      rank: value === 'launcher' || value === 'all' ? value : Number(value),
      stream: /** @type {'out'|'err'|'both'} */ (this._stream.value),
      attempt: !this._attempt.value || Number(this._attempt.value) === latest ? null : Number(this._attempt.value),
    });
  }

  /** @param {Partial<LogChoice>} change */
  _choose(change) {
    this._choice = { ...this._choice, ...change };
    this._isLive = true;
    this._mark(null);
    if (Object.keys(change).length) void this._search.again();
    this._pane.clear();
    this._offsets = new LogOffsets();
    if (this._connection.run) this._pane.setEmptySentence(emptyLog(this._connection.run, this._choice.stream));
    this._download.hidden = isMerged(this._choice);
    this._order.hidden = !isMerged(this._choice);
    setText(this._order, orderSentence(false));
    this._download.href = apiUrl(this._url());
    const { rank, stream } = this._choice;
    this._download.download = `${this._connection.runId}-${rank === 'launcher' ? rank : `rank${rank}`}.${stream}.log`;
    this._connection.followLog(this._choice);
  }

  /** Go on at the end; from a stretch around a match the live log comes back. @param {boolean} on */
  _setFollow(on) {
    if (on && !this._isLive) this._choose({});
    this._pane.follow(on);
  }

  /** Show a line with what stands around it. @param {import('./log_search.js').Hit|typeof BEGINNING} hit */
  async _showHit(hit) {
    if ('position' in hit && hit.position) return this._showMergedHit(hit);
    const choice = this._choice;
    const place = ++this._places;
    const from = Math.max(0, hit.offset - BEFORE_HIT_BYTES);
    let bytes = await this._bytes(from, EARLIER_BYTES + hit.offset - from);
    if (choice !== this._choice || place !== this._places) return;
    let begin = from;
    if (from > 0) {
      // at the beginning of a line, so that numbers hold
      const whole = Math.min(bytes.indexOf(10) + 1 || hit.offset - from, hit.offset - from);
      bytes = bytes.subarray(whole);
      begin += whole;
    }
    const before = bytes.subarray(0, hit.offset - begin).reduce((lines, byte) => lines + (byte === 10 ? 1 : 0), 0);
    this._stay();
    const decoder = new TextDecoder();
    this._pane.showAround(decoder.decode(bytes, { stream: true }), hit.line - before, hit.line);
    const at = begin + bytes.length;
    this._later = { at, decoder };
    this._pane.offerLater(at === hit.offset + EARLIER_BYTES);
    this._offsets.begin(this._pane.firstLine, begin);
    this._pane.offerEarlier(begin > 0);
    this._mark({ ...choice, line: hit.line });
  }

  /** @param {import('./log_search.js').Hit} hit */
  async _showMergedHit(hit) {
    const choice = this._choice;
    if (await this._showAllAround(hit.position ?? '')) this._mark({ ...choice, ...hit });
  }

  /**
   * Show the lines of several logs around a position; false where another log or place was chosen meanwhile.
   * @param {string} position
   */
  async _showAllAround(position) {
    const choice = this._choice;
    const place = ++this._places;
    const { lines, before, hasLater, chosen } = await linesAround(this._urlOf, position);
    if (choice !== this._choice || place !== this._places) return false;
    this._stay();
    this._pane.showLines(lines, chosen);
    this._pane.offerEarlier(before !== null);
    this._pane.offerLater(hasLater);
    return true;
  }

  async _toBeginning() {
    if (!isMerged(this._choice)) return this._showHit(BEGINNING);
    if (await this._showAllAround(BEGINNING_OF_ALL)) this._mark(null);
  }

  /** Follow no longer: what is shown is not the end. */
  _stay() {
    this._isLive = false;
    this._connection.followLog(null);
    this._follow.setAttribute('aria-pressed', 'false');
  }

  /**
   * Somebody chose a line: in lines of several logs its number is known to the server alone.
   * @param {number} line
   */
  async _markChosen(line) {
    const source = this._pane.sourceOf(line);
    const choice = this._choice;
    if (!source) return this._mark({ ...choice, line });
    this._mark(null);
    const { rank, stream, offset } = source;
    const found = await this._newest.request(this._url({ rank, stream, begins_at: offset }, '/search'));
    if (found?.hits.length) this._mark({ ...choice, rank, stream, line: found.hits[0].line });
  }

  /** @param {Marked|null} marked */
  _mark(marked) {
    this._newest.end();
    this._marked = marked;
    this._link.disabled = marked === null;
  }

  /** A line's address leads to it in the log of its own rank. @param {Marked} marked */
  _linkTo({ rank, stream, attempt, line }) {
    const address = new URL(location.href);
    address.searchParams.set('log', [rank, stream, ...(attempt === null ? [] : [attempt])].join('.'));
    address.searchParams.set('line', String(line));
    address.searchParams.set('tab', 'logs');
    return String(address);
  }

  /** @param {Marked} linked */
  async _openLink({ line, ...choice }) {
    this._choose(choice);
    this._rank.value = String(choice.rank);
    this._stream.value = choice.stream;
    const { hits } = await this._search.ask({ line });
    if (hits.length) await this._showHit(hits[0]);
    const text = new URLSearchParams(location.search).get('find');
    if (text) await this._search.begin(text.slice(0, 500), line);
  }

  /** @param {HTMLElement} button @param {string} text */
  async _copied(button, text) {
    const before = button.textContent ?? '';
    await navigator.clipboard.writeText(text);
    setText(button, 'Copied');
    setTimeout(() => setText(button, before), 1500);
  }

  /** @param {any} message */
  _received(message) {
    if (!this._isLive) return;
    if (String(message.rank) !== String(this._choice.rank) || message.stream !== this._choice.stream) return;
    if (this._choice.attempt !== null && message.attempt !== this._choice.attempt) return;
    if (message.lines) return this._receivedLines(message);
    if (message.reset) {
      this._pane.clear(message.offset === 0 ? 0 : undefined);
      this._offsets.begin(this._pane.firstLine, message.offset);
      this._pane.offerEarlier(message.offset > 0);
    } else this._offsets.follow(this._pane.openLine, message.offset);
    this._pane.append(message.text);
    if (this._offsets.hasDropped(this._pane.firstLine)) this._pane.offerEarlier(true);
  }

  /** @param {any} message */
  _receivedLines({ lines, before, reset, is_untimed }) {
    if (reset) {
      this._pane.clear();
      this._pane.offerEarlier(before !== null);
    }
    setText(this._order, orderSentence(is_untimed));
    this._pane.appendLines(lines);
  }

  async _loadEarlierLines() {
    const choice = this._choice;
    const first = this._pane.firstSource;
    if (!first) return;
    try {
      const { lines, before } = await linesBefore(this._urlOf, first.position);
      if (choice !== this._choice || first !== this._pane.firstSource) return;
      this._pane.prependLines(lines);
      this._pane.offerEarlier(before !== null);
    } catch (error) {
      this._pane.offerEarlier(true, sentenceOf(error));
    }
  }

  async _loadEarlier() {
    if (isMerged(this._choice)) return this._loadEarlierLines();
    const choice = this._choice;
    const first = this._pane.firstLine;
    try {
      const until = await this._offsets.startOf(first, (offset, limit) => this._bytes(offset, limit));
      const from = Math.max(0, until - EARLIER_BYTES);
      const text = new TextDecoder().decode(await this._bytes(from, until - from));
      if (choice !== this._choice) return;
      if (first !== this._pane.firstLine) return this._pane.offerEarlier(true); // more was dropped meanwhile
      this._pane.prepend(text);
      this._offsets.begin(this._pane.firstLine, from);
      this._pane.offerEarlier(from > 0);
    } catch (error) {
      this._pane.offerEarlier(true, sentenceOf(error));
    }
  }

  /** Lines behind a stretch of the log that is not its end. */
  async _loadLater() {
    const [choice, later] = [this._choice, this._later];
    try {
      const hasMore = isMerged(choice)
        ? await this._appendLaterLines(choice)
        : later !== undefined && (await this._appendLater(choice, later));
      this._pane.offerLater(hasMore);
    } catch (error) {
      this._pane.offerLater(true, sentenceOf(error));
    }
  }

  /** @param {LogChoice} choice @param {Later} later @returns {Promise<boolean>} whether more may follow */
  async _appendLater(choice, later) {
    const bytes = await this._bytes(later.at, EARLIER_BYTES);
    if (choice !== this._choice || later !== this._later) return !this._isLive;
    this._offsets.follow(this._pane.openLine, later.at);
    this._pane.append(later.decoder.decode(bytes, { stream: true }));
    later.at += bytes.length;
    if (this._offsets.hasDropped(this._pane.firstLine)) this._pane.offerEarlier(true);
    return bytes.length === EARLIER_BYTES;
  }

  /** @param {LogChoice} choice */
  async _appendLaterLines(choice) {
    const last = this._pane.lastSource;
    if (!last) return false;
    const { lines, hasLater } = await linesBehind(this._urlOf, last.position);
    if (choice !== this._choice || last !== this._pane.lastSource) return !this._isLive;
    this._pane.appendLines(lines);
    return hasLater;
  }

  /** @param {number} offset @param {number} limit */
  async _bytes(offset, limit) {
    return new Uint8Array(await read(this._url({ offset, limit }), {}, (answer) => answer.arrayBuffer()));
  }

  /** @param {object} more @param {string} below */
  _urlOf = (more, below) => this._url(more, below);

  /** @param {object} more */
  _url(more = {}, below = '') {
    const { rank, stream, attempt } = this._choice;
    const query = new URLSearchParams({ rank: String(rank), stream });
    if (attempt !== null) query.set('attempt', String(attempt));
    for (const [name, value] of Object.entries(more)) query.set(name, String(value));
    return `api/runs/${encodeURIComponent(this._connection.runId)}/logs${below}?${query}`;
  }
}

/** The line that the address names, such as `log=0.err&line=12`. @returns {Marked|null} */
function linkedLine() {
  const query = new URLSearchParams(location.search);
  const found = /^(launcher|\d{1,6})\.(out|err)(?:\.(\d{1,6}))?$/.exec(query.get('log') ?? '');
  const line = Number(query.get('line'));
  if (!found || !Number.isSafeInteger(line) || line < 1) return null;
  const rank = found[1] === 'launcher' ? found[1] : Number(found[1]);
  return {
    rank,
    stream: /** @type {'out'|'err'} */ (found[2]),
    attempt: found[3] ? Number(found[3]) : null,
    line,
  };
}

/** Make the options these, keeping what is chosen. */
/** @param {HTMLSelectElement} select @param {string[]} values @param {(value: string) => string} textOf */
function fill(select, values, textOf) {
  if (select.options.length === values.length && [...select.options].every((o, i) => o.value === values[i])) return;
  const chosen = select.value;
  select.replaceChildren(...values.map((value) => el('option', { value, text: textOf(value) })));
  if (values.includes(chosen)) select.value = chosen;
}

/** @param {import('../server/documents.js').Run} run @param {LogChoice['stream']} stream */
function emptyLog(run, stream) {
  const where = { err: 'stderr', out: 'stdout', both: 'stdout or stderr' }[stream];
  if (run.state === 'queued') return 'The run has not started yet.';
  return ['succeeded', 'failed', 'stopped'].includes(run.state)
    ? `Nothing was written to ${where}.`
    : `Nothing on ${where} yet.`;
}
