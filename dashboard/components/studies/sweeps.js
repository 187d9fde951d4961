/** A sweep: the metric of every trial as a curve, its parameters side by side, their importance, and a table. */

import { closestTo, connecting, el, mountOnce, redraw, setText, svg } from '../elements/elements.js';
import { number } from '../elements/numbers.js';
import { follow, linkOf, pageUrl } from '../links/links.js';
import { axis, bounds, isWide, scale, ticks } from '../plots/axes.js';
import { drawing, HEIGHT, itemLine, MARGIN, markItems, parallel } from '../plots/plots.js';
import { Polling } from '../server/polling.js';

const ENDED = ['succeeded', 'failed', 'stopped'];

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new Sweep(first));

/**
 * @typedef {{number: number, run: string|null, value: number|null, rung: number, state: string, message:
 *   string|null, params: Record<string, any>}} Trial
 */
/**
 * @typedef {{metric: string, state: string, early_stop: string, best: Trial|null, trials: Trial[], hidden: number,
 *   curves: [number, number|string|null][][], units: ('step'|'epoch')[], scales: Record<string,
 *   import('../plots/axes.js').Kind>, importance: Record<string, number>|null}} Picture
 * @typedef {{column: number, isDown: boolean}} Order
 */

class Sweep {
  /** @type {Picture|null} */
  _sweep = null;
  /** @type {Order|null} */
  _order = null;
  /** @type {(() => void)|undefined} */
  _left;

  /** @param {import('../elements/elements.js').Component} component */
  constructor({ data, parentElement }) {
    this._trouble = el('p', { class: 'trouble', role: 'status' }, connecting());
    this._curves = el('figure');
    this._axes = el('figure');
    this._importance = el('figure');
    this._charts = el('div', { class: 'charts plots', hidden: true }, this._curves, this._axes, this._importance);
    this._table = el('div', { class: 'scroll' });
    this._root = el('section', { class: 'sweep', 'aria-label': 'Sweep' }, this._trouble, this._charts, this._table);
    parentElement.append(this._root);
    this._polling = new Polling(
      this._root,
      this._trouble,
      () => `api/sweeps/${data.sweep_id}/curves`,
      (sweep) => this._show(sweep),
      () => !(this._sweep && ENDED.includes(this._sweep.state)),
    );
    this._observer = new ResizeObserver(() => this._draw());
    this._observer.observe(this._root);
    this._root.addEventListener('pointerover', (event) => this._hover(event, true));
    this._root.addEventListener('pointerout', (event) => this._hover(event, false));
    this._root.addEventListener('click', (event) => {
      const link = linkOf(event);
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

  /** @param {Picture|null} sweep */
  _show(sweep) {
    if (!sweep) return;
    this._sweep = sweep;
    this._showTable(sweep);
    this._draw();
  }

  _draw() {
    const sweep = this._sweep;
    if (!sweep) return;
    const isDrawn = sweep.curves.some((points) => points.length > 0);
    this._charts.hidden = !isDrawn;
    const trial = sweep.hidden ? 'trial that you see' : 'trial';
    setText(this._trouble, isDrawn ? '' : `No ${trial} has logged ${sweep.metric} yet.`);
    if (!isDrawn) return;
    const width = () => Math.max(260, this._curves.clientWidth);
    redraw(
      this._curves,
      ...unitsOf(sweep).flatMap((unit) => [
        el('figcaption', { text: `${sweep.metric} over ${unit}s` }),
        curves(sweep, width(), unit),
      ]),
    );
    redraw(this._axes, el('figcaption', { text: 'Parameters of each trial' }), parameters(sweep, width()));
    this._importance.hidden = !sweep.importance;
    if (sweep.importance) {
      this._importance.replaceChildren(
        el('figcaption', { text: 'Importance of the parameters' }),
        importance(sweep.importance),
      );
    }
  }

  /** @param {Picture} sweep */
  _showTable(sweep) {
    redraw(
      this._table,
      table(sweep, this._order, (at) => this._sortBy(at)),
    );
  }

  /**
   * The first click on a head sorts upwards, the second downwards, the third by number again.
   * @param {number} at
   */
  _sortBy(at) {
    const { column, isDown } = this._order ?? { column: -1, isDown: false };
    this._order = column !== at ? { column: at, isDown: false } : isDown ? null : { column: at, isDown: true };
    if (this._sweep) this._showTable(this._sweep);
  }

  /** @param {Event} event @param {boolean} isOver */
  _hover(event, isOver) {
    const key = closestTo(event, '[data-item]')?.getAttribute('data-item');
    if (key) markItems(this._root, new Set(isOver ? [key] : []));
  }
}

/** @param {Trial} trial */
const label = (trial) =>
  Object.entries(trial.params)
    .map(([name, value]) => `${name}=${value}`)
    .join(' ');

/**
 * @param {Picture} sweep
 * @param {Trial} trial
 * @param {any[]} values
 * @returns {import('../plots/plots.js').Item}
 */
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

/** The trials with the best drawn last, above the others. @param {Picture} sweep */
const bestLast = (sweep) =>
  [...sweep.trials].sort(
    (one, other) => Number(one.number === sweep.best?.number) - Number(other.number === sweep.best?.number),
  );

/** @param {[number, number|string|null][]} points @returns {[number, number][]} */
const finite = (points) => points.flatMap(([step, value]) => (typeof value === 'number' ? [[step, value]] : []));

/** What the drawn trials log by: steps and epochs share no axis. @param {Picture} sweep */
function unitsOf(sweep) {
  const drawn = new Set(sweep.units.filter((_, at) => sweep.curves[at].length > 0));
  return /** @type {const} */ (['step', 'epoch']).filter((unit) => drawn.has(unit));
}

/** @param {Picture} sweep @param {number} width @param {'step'|'epoch'} unit */
function curves(sweep, width, unit) {
  /** By number, since hidden trials leave gaps. @type {Map<number, [number, number][]>} */
  const lines = new Map(
    sweep.trials.map((trial, at) => [trial.number, sweep.units[at] === unit ? finite(sweep.curves[at]) : []]),
  );
  const all = [...lines.values()].flat();
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
  for (const [at, step] of steps.entries()) {
    const anchor = at === 0 ? 'start' : 'end';
    root.append(svg('text', { x: x(step), y: HEIGHT - 10, 'text-anchor': anchor }, number(step)));
  }
  for (const trial of bestLast(sweep)) {
    const points = lines.get(trial.number) ?? [];
    if (!points.length) continue;
    root.append(
      itemLine(
        item(sweep, trial),
        points.map(([step, value]) => [x(step), y(value)]),
      ),
    );
  }
  return root;
}

/** One axis per parameter and one for the metric. @param {Picture} sweep @param {number} width */
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

/** @param {Record<string, number>} shares */
function importance(shares) {
  const rows = Object.entries(shares)
    .sort((one, other) => other[1] - one[1])
    .flatMap(([name, share]) => {
      const bar = el('i');
      bar.style.width = `${100 * share}%`;
      return [el('dt', { text: name }), el('dd', {}, bar), el('dd', { text: `${Math.round(100 * share)} %` })];
    });
  return el('dl', { class: 'importance' }, ...rows);
}

/** @param {(at: number) => void} onSort @param {Picture} sweep @param {Order|null} order */
function table(sweep, order, onSort) {
  const names = Object.keys(sweep.scales);
  const hasRungs = sweep.early_stop !== 'none';
  const columns = ['Trial', 'Run', ...names, sweep.metric, ...(hasRungs ? ['Rung'] : []), 'State'];
  /** @param {number} at */
  const isNumber = (at) => at === 0 || (at > 1 && at < columns.length - 1);
  const heads = columns.map((text, at) =>
    /**
     * @param {string} text
     * @param {boolean} isNumber
     * @param {'ascending'|'descending'|'none'} sort
     * @param {() => void} onclick
     */
    head(text, isNumber(at), order?.column === at ? (order.isDown ? 'descending' : 'ascending') : 'none', () =>
      onSort(at),
    ),
  );
  const rows = sorted(sweep.trials, order, valuesOf(names, hasRungs)).map((trial) =>
    row(sweep, trial, names, hasRungs),
  );
  return el('table', {}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...rows));
}

/**
 * @param {string} text
 * @param {boolean} isNumber
 * @param {'ascending'|'descending'|'none'} sort
 * @param {() => void} onclick
 */
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

/**
 * What each column sorts by.
 * @param {string[]} names
 * @param {boolean} hasRungs
 * @returns {((trial: Trial) => any)[]}
 */
function valuesOf(names, hasRungs) {
  const params = names.map((name) => (/** @type {Trial} */ trial) => trial.params[name]);
  return [
    (trial) => trial.number,
    (trial) => trial.run,
    ...params,
    (trial) => trial.value,
    ...(hasRungs ? [(/** @type {Trial} */ trial) => trial.rung] : []),
    (trial) => trial.state,
  ];
}

/**
 * Trials without a value come last, either way.
 * @param {Trial[]} trials
 * @param {Order|null} order
 * @param {((trial: Trial) => any)[]} values
 */
function sorted(trials, order, values) {
  if (!order) return trials;
  const value = values[order.column];
  /** @param {Trial} trial */
  const isMissing = (trial) => value(trial) === null || value(trial) === undefined;
  /** @param {Trial} one @param {Trial} other */
  const upwards = (one, other) => (value(one) < value(other) ? -1 : Number(value(one) > value(other)));
  const present = trials
    .filter((trial) => !isMissing(trial))
    .sort((one, other) => (order.isDown ? -1 : 1) * upwards(one, other));
  return [...present, ...trials.filter(isMissing)];
}

/** @param {Picture} sweep @param {Trial} trial @param {string[]} names @param {boolean} hasRungs */
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

/** A pruned trial's message says so itself. @param {Trial} trial */
function outcome({ state, message }) {
  if (!message) return state;
  return message.startsWith(state) ? message : `${state}: ${message}`;
}

/** @param {unknown} value */
const shown = (value) => (typeof value === 'number' ? number(value, 4) : String(value));

/** @param {string} run */
function link(run) {
  return el('a', { text: run, href: pageUrl(`run?id=${encodeURIComponent(run)}`) });
}
