/** A sweep drawn: the metric of every trial as a curve, its parameters side by side, their importance, and a table. */

import { el, svg } from '../elements/elements.js';
import { number } from '../elements/numbers.js';
import { axis, bounds, isWide, scale, ticks } from '../plots/axes.js';
import { drawing, HEIGHT, itemLine, MARGIN, parallel } from '../plots/plots.js';

const ENDED = ['succeeded', 'failed', 'stopped'];

/**
 * @typedef {{number: number, run: string|null, value: number|null, rung: number, state: string, message:
 *   string|null, params: Record<string, any>}} Trial
 */
/**
 * @typedef {{metric: string, state: string, early_stop: string, best: Trial|null, trials: Trial[], hidden: number,
 *   curves: [number, number|string|null][][], units: ('step'|'epoch')[], scales: Record<string,
 *   import('../plots/axes.js').Kind>, importance: Record<string, number>|null}} Sweep
 */

/** @param {Sweep} sweep @returns {import('./studies.js').Picture} */
export function sweepPicture(sweep) {
  const isDrawn = sweep.curves.some((points) => points.length > 0);
  const trial = sweep.hidden ? 'trial that you see' : 'trial';
  return {
    figures: isDrawn ? figures(sweep) : [],
    tables: [trialsTable(sweep)],
    note: isDrawn ? '' : `No ${trial} has logged ${sweep.metric} yet.`,
    isLive: !ENDED.includes(sweep.state),
  };
}

/** @param {Sweep} sweep @returns {import('./studies.js').Picture['figures']} */
function figures(sweep) {
  /** @param {string} text */
  const caption = (text) => el('figcaption', { text });
  const shares = sweep.importance;
  return [
    (width) => unitsOf(sweep).flatMap((unit) => [caption(`${sweep.metric} over ${unit}s`), curves(sweep, width, unit)]),
    (width) => [caption('Parameters of each trial'), parameters(sweep, width)],
    ...(shares ? [() => [caption('Importance of the parameters'), importance(shares)]] : []),
  ];
}

/** @param {Trial} trial */
const label = (trial) =>
  Object.entries(trial.params)
    .map(([name, value]) => `${name}=${value}`)
    .join(' ');

/**
 * @param {Sweep} sweep
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

/** The trials with the best drawn last, above the others. @param {Sweep} sweep */
const bestLast = (sweep) =>
  [...sweep.trials].sort(
    (one, other) => Number(one.number === sweep.best?.number) - Number(other.number === sweep.best?.number),
  );

/** @param {[number, number|string|null][]} points @returns {[number, number][]} */
const finite = (points) => points.flatMap(([step, value]) => (typeof value === 'number' ? [[step, value]] : []));

/** What the drawn trials log by: steps and epochs share no axis. @param {Sweep} sweep */
function unitsOf(sweep) {
  const drawn = new Set(sweep.units.filter((_, at) => sweep.curves[at].length > 0));
  return /** @type {const} */ (['step', 'epoch']).filter((unit) => drawn.has(unit));
}

/** @param {Sweep} sweep @param {number} width @param {'step'|'epoch'} unit */
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

/** One axis per parameter and one for the metric. @param {Sweep} sweep @param {number} width */
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

/** @param {Sweep} sweep @returns {import('./table.js').Table} */
function trialsTable({ trials, best, scales, metric, early_stop }) {
  const names = Object.keys(scales);
  const hasRungs = early_stop !== 'none';
  /** @param {string} text */
  const figure = (text) => ({ text, kind: 'number' });
  const rungs = hasRungs ? ['Rung'] : [];
  return {
    isSortable: true,
    columns: [figure('Trial'), { text: 'Run' }, ...[...names, metric, ...rungs].map(figure), { text: 'State' }],
    rows: trials.map((trial) => ({
      kind: trial.number === best?.number ? 'best' : '',
      item: String(trial.number),
      cells: [
        { text: String(trial.number), value: trial.number },
        { text: trial.run ?? '–', address: trial.run && `run?id=${encodeURIComponent(trial.run)}`, value: trial.run },
        ...names.map((name) => ({
          text: shown(trial.params[name]),
          title: String(trial.params[name]),
          value: trial.params[name],
        })),
        { text: number(trial.value, 4), title: String(trial.value ?? ''), value: trial.value },
        ...(hasRungs ? [{ text: String(trial.rung), value: trial.rung }] : []),
        { text: outcome(trial), value: trial.state },
      ],
    })),
  };
}

/** A pruned trial's message says so itself. @param {Trial} trial */
function outcome({ state, message }) {
  if (!message) return state;
  return message.startsWith(state) ? message : `${state}: ${message}`;
}

/** @param {unknown} value */
const shown = (value) => (typeof value === 'number' ? number(value, 4) : String(value));
