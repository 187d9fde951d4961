/** The first lines of the Run page: name, state, the sentence that matters, progress, and a row of figures. */

import { el, mountOnce, setAttribute, setText } from '../elements/elements.js';
import {
  count,
  duration,
  exact,
  fromJson,
  learningRate,
  notFinite,
  number,
  plural,
  UNKNOWN,
} from '../elements/numbers.js';
import { GRAVE, LIVE } from '../elements/run_states.js';
import { follow, pageUrl } from '../links/links.js';
import { connect, STATUS_TEXT } from '../live/live_connection.js';
import { showInTab } from './tab_title.js';

/** @typedef {import('../server/documents.js').Run} Run */

/** Series whose newest values the figures show. */
const SHOWN = ['train/loss', 'train/lr', 'train/samples_per_s', 'probe/samples_per_s'];
const NO_CONTACT = 'no contact';
const NO_CONTACT_TITLE = 'No contact with its node. Training may continue; silence alone ends no run.';
const SENDING_TITLE =
  'It has ended, and its devices are free. Logs and checkpoints still arrive; its curves are complete.';
const SENDING_POINTS_TITLE =
  'It has ended, and its devices are free. Its last points, logs and checkpoints still arrive.';
const UNSENT_TITLE =
  'It has ended, and its devices are free. The rest follows once the node is back, unless you end the sending.';
const PRINTED = 'from the output';
const PRINTED_TITLE = 'parsed from what the script prints';
/** Those that many runs never know stand last, so that their empty places leave no gap. */
const FIGURES = ['Step', 'Train loss', 'Learning rate', 'Elapsed', 'Samples/s', 'ETA', 'Epoch'];
const SILENT_AFTER_S = 10;
const SHOWN_EVERY_MS = 100;

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new RunHeader(first));

/** @typedef {import('../elements/elements.js').Component} Component */

class RunHeader {
  _name = el('h1', { class: 'name', dir: 'auto' });
  /** @type {Map<string, {figure: HTMLElement, value: HTMLElement, more: HTMLElement}>} */
  _figures = new Map();
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  _timer;
  _shownAt = 0;
  _deleted = false;
  _shownTags = '';
  /** @type {(() => void)|undefined} */
  _leave;
  _state = el('span', { class: 'pill' });
  _contact = el('span', { class: 'pill contact', hidden: true });
  _sending = el('span', { class: 'sending', hidden: true });
  _live = el('span', { class: 'live', role: 'status' });
  _sentence = el('p', { class: 'sentence', role: 'status' });
  _next = el('p', { class: 'next', hidden: true });
  _tags = el('span', { class: 'tags', hidden: true });
  _project = el('a', {
    class: 'project',
    onclick: (event) => {
      this._leave = follow(event, this._project) ?? this._leave;
    },
  });
  _by = el('span', { class: 'by', hidden: true });
  _note = el('p', { class: 'note', hidden: true });
  _better = el('span', {});
  _baseline = el('a', {
    text: 'baseline',
    onclick: (event) => {
      this._leave = follow(event, this._baseline) ?? this._leave;
    },
  });
  _against = el('p', { class: 'against', hidden: true }, this._better, this._baseline);
  _bar = el('div', { class: 'bar' });
  _track = el(
    'div',
    {
      class: 'track',
      role: 'progressbar',
      'aria-label': 'Progress',
      'aria-valuemin': 0,
      'aria-valuemax': 100,
    },
    this._bar,
  );

  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    this._connection = connect(component.data.run_id);
    this._connection.want(this, SHOWN);
    this._hasPeople = component.data.has_people === true;
    setText(this._name, component.data.name ?? ''); // known before anything else is
    this._root = this._build();
    component.parentElement.append(this._root);
    this._endings = [
      this._connection.on('run', () => this._show()),
      this._connection.on('series', () => this._showSoon()),
      this._connection.on('status', () => this._show()),
      this._connection.on('deleted', () => {
        this._deleted = true;
        this._show();
      }),
    ];
    const ticking = setInterval(() => {
      if (!document.hidden) this._show();
    }, 1000);
    this._endings.push(() => clearInterval(ticking), showInTab(this._connection));
    this._show();
  }

  destroy() {
    for (const end of this._endings) end();
    this._leave?.();
    clearTimeout(this._timer);
    this._root.remove();
    this._connection.forget(this);
    this._connection.release();
  }

  _build() {
    const figures = el('dl', { class: 'figures' });
    for (const label of FIGURES) {
      const value = el('dd');
      const more = el('dd', { class: 'more' });
      const figure = el('div', { class: 'figure absent' }, el('dt', { text: label }), value, more);
      this._figures.set(label, { figure, value, more });
      figures.append(figure);
    }
    return el(
      'div',
      { class: 'run-header' },
      el(
        'div',
        { class: 'line' },
        this._name,
        this._state,
        this._contact,
        this._sending,
        this._project,
        this._by,
        this._tags,
        this._live,
      ),
      this._sentence,
      this._against,
      this._next,
      this._note,
      this._track,
      figures,
    );
  }

  /** Points arrive often, but figures that change more often cannot be read. */
  _showSoon() {
    const wait = this._shownAt + SHOWN_EVERY_MS - performance.now();
    if (wait <= 0) this._show();
    else {
      this._timer ??= setTimeout(() => {
        this._timer = undefined;
        this._show();
      }, wait);
    }
  }

  _show() {
    this._shownAt = performance.now();
    const { run, status } = this._connection;
    setText(this._live, STATUS_TEXT[status] ?? '');
    this._root.classList.toggle('unknown', !run);
    if (!run) return;
    const now = this._connection.now();
    setText(this._name, run.name || run.id);
    setAttribute(this._name, 'title', run.id);
    setText(this._project, run.project);
    setAttribute(this._project, 'href', pageUrl(`project?${new URLSearchParams({ name: run.project })}`));
    setAttribute(this._project, 'title', `Project ${run.project}`);
    this._by.hidden = !this._hasPeople || !run.by;
    setText(this._by, `by ${run.by}${run.via ? ` (${run.via.replace(/^token .*/, 'CLI')})` : ''}`);
    setAttribute(this._by, 'title', run.via ?? '');
    const state = this._deleted || status === 'gone' ? 'deleted' : run.state;
    this._showState(run, state);
    this._showContact(run);
    this._showSending(run);
    const [sentence, tone] = sentenceOf(run, now);
    setText(this._sentence, sentence);
    this._sentence.className = `sentence ${tone}`;
    this._next.hidden = run.state !== 'failed' || !run.next_step;
    setText(this._next, run.next_step ?? '');
    this._showEdited(run);
    this._showAgainstBaseline(run);
    this._showProgress(run);
    this._showFigures(run, now);
    this._uncoverPage();
  }

  /**
   * The page below waits for a complete header: its height depends on the sentences, and would push the rest
   * down.
   */
  _uncoverPage() {
    const { host = this._root } = /** @type {Partial<ShadowRoot>} */ (this._root.getRootNode());
    host.closest('.st-key-run_head')?.setAttribute('data-complete', '');
  }

  /**
   * Show the state; for a run that needs attention also why, in the tone of the table of runs.
   * @param {Run} run
   * @param {string} state
   */
  _showState(run, state) {
    const why = state === 'deleted' || run.attention === state ? null : run.attention;
    const reason = why === NO_CONTACT ? noContact(run) : why;
    setText(this._state, reason ? `${state} · ${reason}` : state);
    this._state.className = `pill ${why ? (GRAVE.has(why) ? 'grave' : 'warn') : state}`;
    setAttribute(this._state, 'title', why === NO_CONTACT ? NO_CONTACT_TITLE : why && run.finding);
  }

  /** What people wrote about it; only ever text. @param {Run} run */
  _showEdited(run) {
    const tags = [
      ...(run.baseline ? ['◆ baseline'] : []),
      ...(run.pinned ? ['★ pinned'] : []),
      ...(run.archived ? ['archived'] : []),
      ...(run.imported_from ? [`imported (${run.imported_from})`] : []),
      ...(run.watched ? [watchedOn(run.watched)] : []),
      ...(run.tags ?? []),
    ];
    this._tags.hidden = !tags.length;
    if (this._shownTags !== tags.join(' '))
      this._tags.replaceChildren(...tags.map((tag) => el('span', { class: 'tag', text: tag })));
    this._shownTags = tags.join(' ');
    this._note.hidden = !run.note;
    setText(this._note, run.note ?? '');
  }

  /** The result beside that of the project's baseline, with a link to the comparison. @param {Run} run */
  _showAgainstBaseline({ id, against_baseline: against }) {
    this._against.hidden = !against;
    if (!against) return;
    const [words, title] = againstBaseline(against);
    setText(this._better, words);
    setAttribute(this._better, 'title', title);
    setAttribute(this._baseline, 'href', pageUrl(`compare?runs=${id},${against.run_id}&baseline=${against.run_id}`));
    setAttribute(this._baseline, 'title', `Compare with ${against.name}`);
    const better = against.better_percent ?? 0;
    this._against.dataset.tone = better > 0 ? 'better' : better < 0 ? 'worse' : '';
  }

  /** @param {Run} run */
  _showContact(run) {
    const shown = run.lost_contact && LIVE.has(run.state) && run.attention !== NO_CONTACT;
    this._contact.hidden = !shown;
    if (!shown) return;
    setText(this._contact, noContact(run));
    setAttribute(this._contact, 'title', NO_CONTACT_TITLE);
  }

  /** What its nodes have still to send after the end. @param {Run} run */
  _showSending({ delivery }) {
    this._sending.hidden = !delivery;
    if (!delivery) return;
    const isSilent = delivery.silent_nodes.length > 0;
    setText(this._sending, delivery.sentence);
    this._sending.classList.toggle('silent', isSilent);
    const arriving = delivery.has_points ? SENDING_POINTS_TITLE : SENDING_TITLE;
    setAttribute(this._sending, 'title', isSilent ? UNSENT_TITLE : arriving);
  }

  /** @param {Run} run */
  _showProgress(run) {
    const share = run.state === 'succeeded' ? 1 : this._progress(run);
    const isKnown = share !== null;
    // An endless animation costs a tenth of a core: it is for the seconds of starting only.
    this._track.classList.toggle('moving', run.state === 'starting');
    this._track.dataset.state = run.state;
    this._bar.style.transform = `scaleX(${isKnown ? Math.min(1, Math.max(0, share)) : 0})`;
    setAttribute(this._track, 'aria-valuenow', isKnown ? String(Math.round(share * 100)) : null);
    setAttribute(
      this._track,
      'title',
      isKnown ? `${(share * 100).toFixed(1)} %` : 'The numbers of steps and epochs are unknown',
    );
  }

  /**
   * The run's own figure, moved on by steps that were pushed since.
   * @param {Run} run
   * @returns {number|null}
   */
  _progress(run) {
    const total = this._totalSteps(run);
    return total === null ? (run.progress ?? null) : (this._step(run) ?? 0) / total;
  }

  /** The number of steps, unless pushed steps have passed it since. @param {Run} run @returns {number|null} */
  _totalSteps(run) {
    const step = this._step(run);
    return run.total_steps && step !== null && step <= run.total_steps ? run.total_steps : null;
  }

  /** @param {Run} run @returns {number|null} */
  _step(run) {
    const pushed = LIVE.has(run.state) ? (this._pushed('train/loss')?.lastStep ?? null) : null;
    return pushed === null ? (run.step ?? null) : Math.max(pushed, run.step ?? 0);
  }

  /** @param {string} name */
  _pushed(name) {
    const { run, store } = this._connection;
    return run && store.series.get(name)?.attempts.get(run.attempt);
  }

  /** @param {Run} run @param {number} now by the server's clock, in seconds */
  _showFigures(run, now) {
    const step = this._step(run);
    const losses = this._pushed('train/loss');
    const loss = losses?.lastValue ?? run.last_loss;
    const since = losses?.count ? losses.notFiniteSince : run.loss_not_finite_since;
    const pushedRate = this._pushed('train/lr')?.lastValue;
    const rate = pushedRate ?? run.last_lr ?? run.lr;
    /** @param {string} name */
    const printed = (name) => run.inferred?.includes(name) ?? false;
    const isPrinted = {
      epoch: printed('epoch'),
      loss: !losses && printed('last_loss'),
      speed: printed('throughput'),
      rate: pushedRate === undefined && printed('last_lr'),
    };
    const speed = LIVE.has(run.state)
      ? (this._pushed('train/samples_per_s')?.lastValue ??
        this._pushed('probe/samples_per_s')?.lastValue ??
        run.throughput)
      : run.throughput;
    const begun = run.started_at ?? null;
    const elapsed = begun === null ? null : (run.ended_at ?? now) - begun;
    const epoch = run.current_epoch ?? run.epoch ?? null;
    const totalSteps = this._totalSteps(run);
    this._figure('Step', count(step), totalSteps === null ? '' : `of ${count(totalSteps)}`, exact(step));
    this._figure(
      'Epoch',
      number(epoch),
      run.total_epochs ? `of ${count(run.total_epochs)}` : '',
      exact(epoch),
      isPrinted.epoch,
    );
    const broken = notFinite(loss, since);
    this._figure(
      'Train loss',
      number(loss, 4),
      broken.replace(`${number(loss)} `, ''),
      notFinite(loss, since, losses?.lastNumber ?? null) || exact(loss),
      isPrinted.loss,
    );
    this._figure(
      'Samples/s',
      number(speed),
      run.throughput_mean ? `avg ${number(run.throughput_mean)}` : '',
      `now ${exact(speed)}, on average ${exact(run.throughput_mean)}`,
      isPrinted.speed,
    );
    this._figure('Learning rate', learningRate(rate), '', exact(rate), isPrinted.rate);
    this._figure('ETA', LIVE.has(run.state) ? duration(run.eta_s) : UNKNOWN, '', etaTitle(run, now));
    this._figure(
      'Elapsed',
      duration(elapsed),
      run.attempt > 1 ? `attempt ${run.attempt}` : '',
      begun === null
        ? null
        : `started ${new Date(begun * 1000).toLocaleString()}` +
            (run.attempt > 1 ? `; an attempt is one execution of the run: ${run.attempt - 1} came before` : ''),
    );
  }

  /**
   * Show a figure, or nothing in its place while it is unknown, so that no other moves when it appears.
   * @param {boolean} [isPrinted] read from the output: the script does not log it
   * @param {string} label
   * @param {string} value
   * @param {string} more
   * @param {string|null} title
   */
  _figure(label, value, more, title, isPrinted = false) {
    const shown = this._figures.get(label);
    if (!shown) return;
    shown.figure.classList.toggle('absent', value === UNKNOWN);
    setText(shown.value, value);
    setText(shown.more, more || (isPrinted ? PRINTED : ''));
    setAttribute(shown.figure, 'title', isPrinted ? `${title}: ${PRINTED_TITLE}` : title);
  }
}

/**
 * @param {Run} run
 * @param {number} now
 * @returns {[string, string]} the sentence that matters now, and its tone
 */
function sentenceOf(run, now) {
  if (run.state === 'failed') return [run.message || run.reason || 'It failed; see the log.', 'bad'];
  if (run.state === 'stopping' || (run.kill_at && LIVE.has(run.state))) return [stopping(run, now), 'warn'];
  if (run.state === 'queued') return [waiting(run, now), ''];
  if (run.state === 'starting' && run.waiting_for) return [`Starting: ${run.waiting_for}.`, ''];
  if (run.state === 'starting') return ['Starting its ranks.', ''];
  if (run.lost_contact && LIVE.has(run.state)) {
    return [silence(run), 'warn'];
  }
  if (run.finding && LIVE.has(run.state))
    return [sentenceCase(run.finding), run.finding.startsWith('hung') ? 'bad' : 'warn'];
  if (run.state === 'stopped' && run.stop_requested_at && run.message === 'Stopped.') {
    return [run.step ? `Stopped by user at step ${count(run.step)}.` : 'Stopped by user.', ''];
  }
  if (run.message) return [run.message, ''];
  if (run.imported_from) return ['It trained elsewhere.', ''];
  const nodes = run.nodes > 1 ? ` on ${run.nodes} nodes` : '';
  const batch = run.global_batch_size ? `, ${count(run.global_batch_size)} samples a step` : '';
  return [`${plural(run.world_size, 'rank')}${nodes}${batch}`, ''];
}

/**
 * @param {import('../server/documents.js').Watched} watched
 * @returns {string} watched on gpu-3, started by mara (Slurm job 4711)
 */
function watchedOn({ host, account, scheduler }) {
  return `watched on ${host}, started by ${account}${scheduler ? ` (${scheduler})` : ''}`;
}

/**
 * @param {import('../server/documents.js').BaselineChange} against
 * @returns {[string, string]} `val/loss 0.182, 4 % better than `, and both figures exactly
 */
function againstBaseline({ metric, value, baseline_value: base, better_percent: better, name }) {
  if (!metric)
    return ['No result to compare with the ', `${name} has logged no loss or accuracy that this run has too`];
  const title = `best so far: ${exact(fromJson(value))}, of ${name}: ${exact(fromJson(base))}`;
  const figure = `${metric} ${number(fromJson(value), 4)}`;
  if (better === null) return [`${figure}, to compare with `, title];
  if (better === 0) return [`${figure}, equal to `, title];
  return [`${figure}, ${number(Math.abs(better), 2)} % ${better > 0 ? 'better' : 'worse'} than `, title];
}

/** @param {Run} run */
function noContact(run) {
  return run.silent_s ? `${NO_CONTACT} for ${Math.round(run.silent_s)} s` : NO_CONTACT;
}

/**
 * Why it waits, and when it is expected to start, by the browser's clock.
 * @param {Run} run
 * @param {number} now
 */
function waiting(run, now) {
  if (!run.waiting_for) return 'Waiting for a node.';
  const sentence = `Waiting: ${run.waiting_for}.`;
  if (!run.expected_start_at || run.expected_start_at < now) return sentence;
  const start = new Date(run.expected_start_at * 1000);
  const isToday = start.toDateString() === new Date(now * 1000).toDateString();
  const when = isToday
    ? start.toLocaleTimeString([], { timeStyle: 'short' })
    : start.toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
  return `${sentence} Expected to start about ${when}.`;
}

/** @param {string} text */
function sentenceCase(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** @param {Run} run */
function silence(run) {
  const names = run.nodes > 1 ? (run.silent_nodes ?? []) : ['its node'];
  const nodes = names.length
    ? `${names.slice(0, 3).join(', ')}${names.length > 3 ? ` and ${names.length - 3} more` : ''}`
    : 'One of its nodes';
  const goesOn = run.watched || !(run.nodes > 1);
  return `No contact with ${nodes} for more than ${SILENT_AFTER_S} s. ${
    goesOn
      ? 'Training may continue; its data arrives when the node is back.'
      : 'The run is ended only if a node stays lost and the others stop making steps.'
  }`;
}

/** For how long it may still save, and which nodes are awaited. @param {Run} run @param {number} now */
function stopping(run, now) {
  const why = !run.stop_requested_at && run.message ? `${run.message} Ending it` : 'Stopping';
  const waits = run.waiting_for ? `; it ${run.waiting_for}` : '';
  if (!run.kill_at) return `${why}: SIGTERM sent${waits}.`;
  const left = Math.ceil(run.kill_at - now);
  return left > 0
    ? `${why}: SIGTERM sent, ${left} s until its ranks are killed${waits}.`
    : `${why}: the grace period is over, its ranks are being killed${waits}.`;
}

/** @param {Run} run @param {number} now */
function etaTitle(run, now) {
  if (run.eta_s === null || run.eta_s === undefined || !LIVE.has(run.state)) return null;
  return `about ${new Date((now + run.eta_s) * 1000).toLocaleString()}`;
}
