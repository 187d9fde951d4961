/** The log of one rank, following what is written. */

import { el, setText, toggle } from './elements.js';
import { apiUrl, connect } from './live_connection.js';
import { LogPane } from './log_pane.js';
import { mountOnce } from './mounting.js';
import { count } from './numbers.js';

const EARLIER_BYTES = 256 * 1024;

/** @param {import('./mounting.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new LogView(first));

class LogView {
  /** @param {import('./mounting.js').Component} component */
  constructor(component) {
    this._connection = connect(component.data.run_id);
    /** @type {import('./live_connection.js').LogChoice} */
    this._choice = { rank: 0, stream: 'out', attempt: null };
    this._build();
    component.parentElement.append(this._root);
    this._endings = [
      this._connection.on('run', (run) => this._showRun(run)),
      this._connection.on('log', (message) => this._received(message)),
      () => this._pane.destroy(),
    ];
    if (this._connection.run) this._showRun(this._connection.run);
    this._choose({});
  }

  destroy() {
    for (const end of this._endings) end();
    this._connection.followLog(null);
    this._root.remove();
    this._connection.release();
  }

  _build() {
    this._rank = el('select', { 'aria-label': 'Rank' }, el('option', { value: '0', text: 'rank 0' }));
    this._stream = el(
      'select', { 'aria-label': 'Stream' },
      el('option', { value: 'out', text: 'stdout' }), el('option', { value: 'err', text: 'stderr' }),
    );
    this._attempt = el('select', { 'aria-label': 'Attempt', hidden: true });
    for (const select of [this._rank, this._stream, this._attempt]) {
      select.addEventListener('change', () => this._chosen());
    }
    const search = el('input', { type: 'search', placeholder: 'Only lines with…', 'aria-label': 'Show only lines that contain' });
    search.addEventListener('input', () => this._pane.search(search.value));
    this._found = el('span', { class: 'found', role: 'status' });
    this._follow = toggle('Follow', 'Stay at the end as lines arrive', true, (on) => this._pane.follow(on));
    this._download = el('a', { class: 'download', download: '', text: 'Whole file', title: 'Download the whole file' });
    this._pane = new LogPane({
      onFollow: (on) => this._follow.setAttribute('aria-pressed', String(on)),
      onFound: (found, all) => setText(this._found, found === null ? '' : `${count(found)} of ${count(all)} lines`),
      onEarlier: () => void this._loadEarlier(),
    });
    this._root = el(
      'div', { class: 'log-view' },
      el(
        'div', { class: 'log-bar' }, this._rank, this._stream, this._attempt, search, this._found,
        el('span', { class: 'space' }), this._follow,
        toggle('Wrap', 'Break long lines', false, (on) => this._pane.wrap(on)), this._download,
      ),
      this._pane.element,
    );
  }

  _showRun(run) {
    const ranks = ['launcher', ...Array.from({ length: run.world_size }, (_, rank) => String(rank))];
    fill(this._rank, [...ranks.slice(1), ranks[0]], (rank) => (rank === 'launcher' ? 'launcher' : `rank ${rank}`));
    const attempts = Array.from({ length: run.attempt }, (_, i) => String(run.attempt - i));
    fill(this._attempt, attempts, (attempt) => `attempt ${attempt}`);
    this._attempt.hidden = run.attempt < 2;
    const isFirst = this._attemptSeen === undefined;
    if (isFirst && run.state === 'failed') this._showFailure(run);
    // A new attempt writes new files: whoever looked at the latest one goes on with it.
    else if (!isFirst && run.attempt > this._attemptSeen && this._choice.attempt === null) {
      this._attempt.value = String(run.attempt);
      this._choose({});
    }
    this._attemptSeen = run.attempt;
    this._pane.setEmptySentence(emptyLog(run, this._choice.stream));
  }

  /** A failed run opens at the words of the rank that failed first. */
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
      rank: value === 'launcher' ? 'launcher' : Number(value),
      stream: this._stream.value === 'err' ? 'err' : 'out',
      attempt: !this._attempt.value || Number(this._attempt.value) === latest ? null : Number(this._attempt.value),
    });
  }

  _choose(change) {
    this._choice = { ...this._choice, ...change };
    this._pane.clear();
    this._firstOffset = 0;
    if (this._connection.run) this._pane.setEmptySentence(emptyLog(this._connection.run, this._choice.stream));
    this._download.href = this._url();
    const { rank, stream } = this._choice;
    this._download.download = `${this._connection.runId}-${rank === 'launcher' ? rank : `rank${rank}`}.${stream}.log`;
    this._connection.followLog(this._choice);
  }

  _received(message) {
    if (String(message.rank) !== String(this._choice.rank) || message.stream !== this._choice.stream) return;
    if (this._choice.attempt !== null && message.attempt !== this._choice.attempt) return;
    if (message.reset) {
      this._pane.clear();
      this._firstOffset = message.offset;
      this._pane.offerEarlier(message.offset > 0);
    }
    this._pane.append(message.text);
  }

  async _loadEarlier() {
    const until = this._firstOffset;
    const from = Math.max(0, until - EARLIER_BYTES);
    const choice = this._choice;
    try {
      const response = await fetch(this._url({ offset: from, limit: until - from }));
      if (!response.ok) throw new Error(`Earlier lines could not be read (${response.status}).`);
      const text = new TextDecoder().decode(await response.arrayBuffer());
      if (choice !== this._choice || until !== this._firstOffset) return;
      this._firstOffset = from;
      this._pane.prepend(text);
      this._pane.offerEarlier(from > 0);
    } catch (error) {
      this._pane.offerEarlier(true, /** @type {Error} */ (error).message);
    }
  }

  _url(more = {}) {
    const { rank, stream, attempt } = this._choice;
    const query = new URLSearchParams({ rank: String(rank), stream });
    if (attempt !== null) query.set('attempt', String(attempt));
    for (const [name, value] of Object.entries(more)) query.set(name, String(value));
    return apiUrl(`api/runs/${encodeURIComponent(this._connection.runId)}/logs?${query}`);
  }
}

/** Make the options these, keeping what is chosen. */
function fill(select, values, textOf) {
  if (select.options.length === values.length && [...select.options].every((o, i) => o.value === values[i])) return;
  const chosen = select.value;
  select.replaceChildren(...values.map((value) => el('option', { value, text: textOf(value) })));
  if (values.includes(chosen)) select.value = chosen;
}

function emptyLog(run, stream) {
  const where = stream === 'err' ? 'stderr' : 'stdout';
  if (run.state === 'queued') return 'The run has not started yet.';
  return ['succeeded', 'failed', 'stopped'].includes(run.state) ? `Nothing was written to ${where}.` : `Nothing on ${where} yet.`;
}
