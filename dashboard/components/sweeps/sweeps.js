/**
 * A sweep: the metric of every trial as a curve, its parameters side by side, their importance, and a table.
 */

import { el, redraw, setText } from '../elements/elements.js';
import { mountOnce } from '../elements/mounting.js';
import { number } from '../elements/numbers.js';
import { follow, pageUrl } from '../links/following.js';
import { axis, bounds, isWide, scale, ticks } from '../plots/axes.js';
import { drawing, HEIGHT, itemLine, MARGIN, markItems, svg } from '../plots/drawing.js';
import { parallel } from '../plots/parallel.js';
import { Polling } from '../server/polling.js';

const ENDED = ['succeeded', 'failed', 'stopped'];

/** @param {import('../elements/mounting.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new Sweep(first));

class Sweep {
  constructor({ data, parentElement }) {
    this._trouble = el('p', { class: 'trouble', role: 'status', text: 'Connecting…' });
    this._curves = el('figure');
    this._axes = el('figure');
    this._importance = el('figure');
    this._charts = el(
      'div',
      { class: 'charts plots', hidden: true },
      this._curves,
      this._axes,
      this._importance,
    );
    this._table = el('div', { class: 'scroll' });
    this._root = el(
      'section',
      { class: 'sweep', 'aria-label': 'Sweep' },
      this._trouble,
      this._charts,
      this._table,
    );
    parentElement.append(this._root);
    this._polling = new Polling(
      this._root,
      this._trouble,
      () => `api/sweeps/${data.sweep_id}/curves`,
      (sweep) => this._show(sweep),
      () => !(this._sweep && ENDED.includes(this._sweep.state)),
    );
    /** @type {{column: number, isDown: boolean}|null} */
    this._order = null;
    this._observer = new ResizeObserver(() => this._draw());
    this._observer.observe(this._root);
    for (const [kind, isOver] of [
      ['pointerover', true],
      ['pointerout', false],
    ]) {
      this._root.addEventListener(kind, (event) => this._hover(event, isOver));
    }
    this._root.addEventListener('click', (event) => {
      const link = event.target.closest?.('a');
      if (link) this._left = follow(event, link) ?? this._left;
    });
    this._polling.askSoon(0);
  }

  destroy() {
    this._polling.destroy();
    this._observer.disconnect();
    this._left?.();
    this._root.remove();
  }

  _show(sweep) {
    if (!sweep) return;
    this._sweep = sweep;
    this._showTable();
    this._draw();
  }

  _draw() {
    const sweep = this._sweep;
    if (!sweep) return;
    const isDrawn = sweep.curves.some((points) => points.length > 0);
    this._charts.hidden = !isDrawn;
    setText(this._trouble, isDrawn ? '' : `No trial has logged ${sweep.metric} yet.`);
    if (!isDrawn) return;
    const width = () => Math.max(260, this._curves.clientWidth);
    redraw(this._curves, el('figcaption', { text: `${sweep.metric} over steps` }), curves(sweep, width()));
    redraw(this._axes, el('figcaption', { text: 'Parameters of each trial' }), parameters(sweep, width()));
    this._importance.hidden = !sweep.importance;
    if (sweep.importance) {
      this._importance.replaceChildren(
        el('figcaption', { text: 'Importance of the parameters' }),
        importance(sweep),
      );
    }
  }

  _showTable() {
    redraw(
      this._table,
      table(this._sweep, this._order, (at) => this._sortBy(at)),
    );
  }

  /** The first click on a head sorts upwards, the second downwards, the third by number again. */
  _sortBy(at) {
    const { column, isDown } = this._order ?? {};
    this._order =
      column !== at ? { column: at, isDown: false } : isDown ? null : { column: at, isDown: true };
    this._showTable();
  }

  _hover(event, isOver) {
    const key = event.target.closest?.('[data-item]')?.getAttribute('data-item');
    if (key) markItems(this._root, new Set(isOver ? [key] : []));
  }
}

const label = (trial) =>
  Object.entries(trial.params)
    .map(([name, value]) => `${name}=${value}`)
    .join(' ');

function item(sweep, trial, values = []) {
  const isBest = sweep.best?.number === trial.number;
  const kind = isBest ? 'best' : trial.value === null || trial.state === 'failed' ? 'without' : '';
  return {
    key: String(trial.number),
    kind,
    run: trial.run,
    title: `${label(trial)}: ${number(trial.value)}, ${trial.state}`,
    values,
  };
}

/** The trials with the best drawn last, above the others. */
const bestLast = (sweep) =>
  [...sweep.trials].sort(
    (one, other) => (one.number === sweep.best?.number) - (other.number === sweep.best?.number),
  );

function curves(sweep, width) {
  const finite = sweep.curves.map((points) => points.filter(([, value]) => typeof value === 'number'));
  const all = finite.flat();
  const values = bounds(all.map(([, value]) => value));
  const isLog = values[0] > 0 && values[1] / values[0] > 100;
  const x = scale(bounds(all.map(([step]) => step)), [MARGIN.left, width - MARGIN.right], false);
  const y = scale(values, [HEIGHT - MARGIN.bottom, MARGIN.top], isLog);
  const root = drawing(width, `${sweep.metric} of each trial`);
  for (const value of ticks(values, isLog)) {
    root.append(
      svg('line', { class: 'grid', x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
      svg('text', { x: MARGIN.left - 8, y: y(value) + 4, 'text-anchor': 'end' }, number(value, 2)),
    );
  }
  const steps = bounds(all.map(([step]) => step));
  for (const [step, anchor] of [
    [steps[0], 'start'],
    [steps[1], 'end'],
  ]) {
    root.append(svg('text', { x: x(step), y: HEIGHT - 10, 'text-anchor': anchor }, number(step)));
  }
  for (const trial of bestLast(sweep)) {
    root.append(
      itemLine(
        item(sweep, trial),
        finite[trial.number].map(([step, value]) => [x(step), y(value)]),
      ),
    );
  }
  return root;
}

/** One axis per parameter and one for the metric. */
function parameters(sweep, width) {
  const { scales, trials, metric } = sweep;
  const names = Object.keys(scales);
  const axes = names.map((name) =>
    axis(
      name,
      scales[name],
      trials.map(({ params }) => params[name]),
    ),
  );
  const values = trials.map(({ value }) => value).filter((value) => value !== null);
  if (values.length) axes.push(axis(metric, isWide(values) ? 'log' : 'linear', values));
  const items = bestLast(sweep).map((trial) =>
    item(sweep, trial, [...names.map((name) => trial.params[name]), trial.value]),
  );
  return parallel(axes, items, width, 'Parameters and metric of each trial');
}

function importance({ importance: shares }) {
  const rows = Object.entries(shares)
    .sort((one, other) => other[1] - one[1])
    .flatMap(([name, share]) => {
      const bar = el('i');
      bar.style.width = `${100 * share}%`;
      return [
        el('dt', { text: name }),
        el('dd', {}, bar),
        el('dd', { text: `${Math.round(100 * share)} %` }),
      ];
    });
  return el('dl', { class: 'importance' }, ...rows);
}

/** @param {{column: number, isDown: boolean}|null} order @param {(at: number) => void} onSort */
function table(sweep, order, onSort) {
  const names = Object.keys(sweep.scales);
  const hasRungs = sweep.early_stop !== 'none';
  const columns = ['Trial', 'Run', ...names, sweep.metric, ...(hasRungs ? ['Rung'] : []), 'State'];
  const isNumber = (at) => at === 0 || (at > 1 && at < columns.length - 1);
  const heads = columns.map((text, at) =>
    head(
      text,
      isNumber(at),
      order?.column === at ? (order.isDown ? 'descending' : 'ascending') : 'none',
      () => onSort(at),
    ),
  );
  const rows = sorted(sweep.trials, order, valuesOf(names, hasRungs)).map((trial) =>
    row(sweep, trial, names, hasRungs),
  );
  return el('table', {}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...rows));
}

function head(text, isNumber, sort, onclick) {
  const mark = { ascending: ' ▲', descending: ' ▼', none: '' }[sort];
  const button = el(
    'button',
    { type: 'button', 'aria-label': `Sort by ${text}`, onclick },
    el('span', { text }),
    el('i', { 'aria-hidden': 'true', text: mark }),
  );
  return el('th', { scope: 'col', class: isNumber && 'number', 'aria-sort': sort }, button);
}

/** What each column sorts by. */
function valuesOf(names, hasRungs) {
  const params = names.map((name) => (trial) => trial.params[name]);
  return [
    (trial) => trial.number,
    (trial) => trial.run,
    ...params,
    (trial) => trial.value,
    ...(hasRungs ? [(trial) => trial.rung] : []),
    (trial) => trial.state,
  ];
}

/** Trials without a value come last, either way. */
function sorted(trials, order, values) {
  if (!order) return trials;
  const value = values[order.column];
  const isMissing = (trial) => value(trial) === null || value(trial) === undefined;
  const upwards = (one, other) => (value(one) < value(other) ? -1 : Number(value(one) > value(other)));
  const present = trials
    .filter((trial) => !isMissing(trial))
    .sort((one, other) => (order.isDown ? -1 : 1) * upwards(one, other));
  return [...present, ...trials.filter(isMissing)];
}

function row(sweep, trial, names, hasRungs) {
  return el(
    'tr',
    { class: trial.number === sweep.best?.number && 'best', 'data-item': trial.number },
    el('td', { class: 'number', text: String(trial.number) }),
    el('td', {}, trial.run ? link(trial.run) : el('span', { text: '–' })),
    ...names.map((name) =>
      el('td', { class: 'number', text: shown(trial.params[name]), title: String(trial.params[name]) }),
    ),
    el('td', { class: 'number', text: number(trial.value, 4), title: String(trial.value ?? '') }),
    ...(hasRungs ? [el('td', { class: 'number', text: String(trial.rung) })] : []),
    el('td', { text: outcome(trial) }),
  );
}

/** A pruned trial's message says so itself. */
function outcome({ state, message }) {
  if (!message) return state;
  return message.startsWith(state) ? message : `${state}: ${message}`;
}

const shown = (value) => (typeof value === 'number' ? number(value, 4) : String(value));

function link(run) {
  return el('a', { text: run, href: pageUrl(`run?id=${encodeURIComponent(run)}`) });
}
