/** What the ranks of a run spend their steps on: a stacked strip over time, and a heat map of ranks x time. */

import { connecting, el, htmlIn, keepChildren, mountOnce, setAttribute, setText } from '../elements/elements.js';
import { count, timeSpan } from '../elements/numbers.js';
import { faded, readTheme, watchTheme } from '../elements/theme.js';
import { Polling } from '../server/polling.js';
import { COLOURS, meanOf, ownWork, spansOf } from './phases_model.js';

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new Phases(first));

class Phases {
  _title = el('h2', { text: 'Where a step goes' });
  _all = el('button', {
    type: 'button',
    class: 'all',
    text: 'All ranks',
    hidden: true,
    onclick: () => this._choose(null),
  });
  _trouble = el('span', { class: 'trouble', role: 'status' });
  _strip = el('canvas', { class: 'strip', role: 'img' });
  _legend = el('ul', { class: 'legend' });
  _heatTitle = el('h2', { text: 'Compute per rank' });
  _heat = el('canvas', { class: 'heat', role: 'img' });
  _about = el('p', { class: 'about' });
  _body = el(
    'div',
    { class: 'body', hidden: true },
    this._strip,
    this._legend,
    this._heatTitle,
    this._heat,
    this._about,
  );
  _empty = el('p', { class: 'about' }, connecting());
  _root = el(
    'section',
    { class: 'phases', 'aria-label': 'Where a step goes' },
    el('div', { class: 'head' }, this._title, this._all, this._trouble),
    this._empty,
    this._body,
  );

  /** @param {import('../elements/elements.js').Component} component */
  constructor({ data, parentElement }) {
    /** @type {import('./phases_model.js').Spans|null} */
    this._spans = null;
    /** The rank whose strip is drawn; null for the mean of all. @type {number|null} */
    this._rank = null;
    /** @type {number|null} */
    this._column = null;
    this._polling = new Polling(
      this._root,
      this._trouble,
      () => `api/runs/${data.run_id}/phases/spans`,
      (picture) => this._show(picture),
      () => this._root.getClientRects().length > 0,
    );
    this._listen();
    parentElement.append(this._root);
    this._theme = readTheme(this._root);
    this._unwatch = watchTheme(this._root, (theme) => {
      this._theme = theme;
      this._draw();
    });
    this._resizing = new ResizeObserver(() => this._draw());
    this._resizing.observe(this._root);
    this._polling.askSoon(0);
  }

  destroy() {
    this._polling.destroy();
    this._resizing.disconnect();
    this._unwatch();
    this._root.remove();
  }

  _listen() {
    for (const canvas of [this._strip, this._heat]) {
      canvas.addEventListener('pointermove', (event) => this._pointed(event, canvas));
      canvas.addEventListener('pointerleave', () => this._point(null));
    }
    this._heat.addEventListener('click', (event) => this._choose(this._rankAt(event)));
  }

  /** @param {any} picture */
  _show(picture) {
    if (!picture) return;
    this._spans = spansOf(picture);
    const isEmpty = this._spans === null;
    this._body.hidden = isEmpty;
    this._empty.hidden = !isEmpty;
    setText(this._empty, 'No rank has been seen making two optimizer steps yet. Once one has, its time appears here.');
    if (!isEmpty) this._draw();
  }

  /** @param {number|null} rank */
  _choose(rank) {
    this._rank = rank === this._rank ? null : rank;
    this._draw();
  }

  /** @param {PointerEvent} event @param {HTMLCanvasElement} canvas */
  _pointed(event, canvas) {
    const spans = this._spans;
    if (!spans) return;
    const column = columnAt(event.offsetX, canvas.clientWidth, spans.length);
    const rank = canvas === this._heat ? this._rankAt(event) : this._rank;
    this._point(column, rank);
  }

  /** @param {number|null} column */
  _point(column, rank = this._rank) {
    this._column = column;
    this._write(rank);
  }

  /** @param {MouseEvent} event */
  _rankAt(event) {
    const spans = this._spans;
    const row = Math.floor(event.offsetY / rowHeight(spans?.ranks.length ?? 1));
    return spans?.ranks[row]?.rank ?? null;
  }

  _draw() {
    const spans = this._spans;
    if (!spans || !this._root.clientWidth) return;
    this._all.hidden = this._rank === null;
    const strip = meanOf(spans, this._rank);
    drawStrip(this._strip, this._theme, spans, strip);
    drawHeat(this._heat, this._theme, spans, this._rank);
    const isAlone = spans.ranks.length < 2;
    this._heatTitle.hidden = this._heat.hidden = isAlone;
    this._write(this._rank);
  }

  /** The figures of the span under the pointer, else of all spans. @param {number|null} rank */
  _write(rank) {
    const spans = this._spans;
    if (!spans) return;
    const means = meanOf(spans, rank, this._column);
    const step = spans.phases.reduce((sum, name) => sum + means.typical[name], 0);
    const whose =
      rank === null
        ? spans.ranks.length > 1
          ? 'mean of all ranks'
          : `rank ${spans.ranks[0].rank}`
        : `rank ${rank} on ${spans.ranks.find((one) => one.rank === rank)?.node}`;
    const steps =
      this._column === null
        ? `steps ${count(spans.steps[0])} to ${count(spans.steps[spans.length])}`
        : `steps ${count(spans.steps[this._column])} to ${count(spans.steps[this._column + 1])}`;
    setText(this._title, `Where a step goes: ${timeSpan(step)}, ${whose}, ${steps}`);
    keepChildren(
      this._legend,
      spans.phases.map((name, at) => this._entry(spans.titles[name], at, means.typical[name], step)),
    );
    const words = spans.phases.map((name) => `${spans.titles[name]} ${timeSpan(means.typical[name])}`).join(', ');
    setAttribute(this._strip, 'aria-label', `Phases of a step over time: ${words}`);
    setAttribute(this._heat, 'aria-label', `Time outside of communication of ${spans.ranks.length} ranks over time`);
    setText(
      this._about,
      spans.ranks.length < 2
        ? ''
        : 'The stronger the colour, the longer a rank works outside of communication: the others wait for ' +
            'the strongest. Click a rank for its strip.',
    );
  }

  /** @param {string} title @param {number} at @param {number} seconds @param {number} step */
  _entry(title, at, seconds, step) {
    const item = this._legend.children[at] ?? el('li', {}, el('i'), el('span', { text: title }), el('b'), el('em'));
    const [swatch, , figure, share] = htmlIn(item, 'i, span, b, em');
    swatch.style.background = this._theme.palette[COLOURS[at]];
    setText(figure, timeSpan(seconds));
    setText(share, step ? `${Math.round((100 * seconds) / step)} %` : '');
    return item;
  }
}

/** @typedef {import('./phases_model.js').Spans} Spans */
/** @typedef {import('../elements/theme.js').Theme} Theme */

const LEFT = 58;
const STRIP_PX = 170;
const AXIS_PX = 18;
const HEAT_PX = 320;

/** Height of a rank's row. @param {number} ranks */
const rowHeight = (ranks) => Math.max(4, Math.min(22, Math.floor(HEAT_PX / ranks)));

/**
 * The span under a pointer; null outside of all.
 * @param {number} x
 * @param {number} width
 * @param {number} spans
 * @returns {number|null}
 */
function columnAt(x, width, spans) {
  const column = Math.floor(((x - LEFT) / (width - LEFT)) * spans);
  return column >= 0 && column < spans ? column : null;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Theme} theme
 * @param {Spans} spans
 * @param {{over: Record<string, (number|null)[]>}} means
 */
function drawStrip(canvas, theme, spans, { over }) {
  const { context, width } = prepare(canvas, theme, STRIP_PX + AXIS_PX);
  const steps = Array.from({ length: spans.length }, (_, at) =>
    spans.phases.reduce((sum, name) => sum + (over[name][at] ?? 0), 0),
  );
  const top = Math.max(...steps) || 1;
  const edge = edges(width, spans);
  steps.forEach((_, at) => {
    let y = STRIP_PX;
    spans.phases.forEach((name, place) => {
      const height = ((over[name][at] ?? 0) / top) * (STRIP_PX - 6);
      context.fillStyle = theme.palette[COLOURS[place]];
      context.fillRect(edge(at), y - height, edge(at + 1) - edge(at), height);
      y -= height;
    });
  });
  context.fillStyle = theme.muted;
  context.textAlign = 'right';
  context.fillText(timeSpan(top), LEFT - 6, 10);
  context.fillText('0', LEFT - 6, STRIP_PX);
  writeTimes(context, theme, spans, width, STRIP_PX + 13);
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Theme} theme
 * @param {Spans} spans
 * @param {number|null} chosen the rank whose strip is drawn
 */
function drawHeat(canvas, theme, spans, chosen) {
  const height = rowHeight(spans.ranks.length);
  const { context, width } = prepare(canvas, theme, height * spans.ranks.length + AXIS_PX);
  const own = spans.ranks.map((one) => Array.from({ length: spans.length }, (_, at) => ownWork(spans, one, at)));
  const most = Math.max(...own.flat().map((seconds) => seconds ?? 0)) || 1;
  const edge = edges(width, spans);
  const gap = height > 8 ? 1 : 0;
  own.forEach((row, at) => {
    row.forEach((seconds, column) => {
      if (seconds === null) return;
      context.fillStyle = faded(theme.palette[1], 0.08 + 0.92 * (seconds / most) ** 2);
      context.fillRect(edge(column), at * height, edge(column + 1) - edge(column), height - gap);
    });
    writeRank(context, theme, spans.ranks[at], at, height, spans.ranks.length, chosen);
  });
  writeTimes(context, theme, spans, width, height * spans.ranks.length + 13);
}

/**
 * Where the spans begin, in whole pixels: neighbours neither overlap nor leave a gap.
 * @param {number} width
 * @param {Spans} spans
 * @returns {(at: number) => number}
 */
const edges = (width, spans) => (at) => Math.round(LEFT + (at * (width - LEFT)) / spans.length);

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Theme} theme
 * @param {import('./phases_model.js').RankSpans} one
 * @param {number} row
 * @param {number} height
 * @param {number} ranks
 * @param {number|null} chosen
 */
function writeRank(context, theme, { rank }, row, height, ranks, chosen) {
  const every = Math.ceil(12 / height);
  if (row % every && rank !== chosen && row !== ranks - 1) return;
  context.fillStyle = rank === chosen ? theme.text : theme.muted;
  context.textAlign = 'right';
  context.fillText(`rank ${rank}`, LEFT - 6, Math.max(9, row * height + height / 2 + 4));
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Theme} theme
 * @param {Spans} spans
 * @param {number} width
 * @param {number} y
 */
function writeTimes(context, theme, spans, width, y) {
  /** @param {number} wall */
  const time = (wall) => new Date(wall * 1000).toLocaleTimeString([], { hour12: false });
  context.fillStyle = theme.muted;
  context.textAlign = 'left';
  context.fillText(time(spans.walls[0]), LEFT, y);
  context.textAlign = 'right';
  context.fillText(time(spans.walls[spans.length]), width, y);
}

/** @param {HTMLCanvasElement} canvas @param {Theme} theme @param {number} height */
function prepare(canvas, theme, height) {
  const width = canvas.parentElement?.clientWidth ?? 0;
  const ratio = devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.scale(ratio, ratio);
  context.clearRect(0, 0, width, height);
  context.font = `11px ${theme.font}`;
  return { context, width };
}
