/** The strip and the heat map on their canvases. */

import { timeSpan } from '../elements/numbers.js';
import { faded } from '../elements/theme.js';
import { COLOURS, ownWork } from './phases_model.js';

/** @typedef {import('./phases_model.js').Spans} Spans */
/** @typedef {import('../elements/theme.js').Theme} Theme */

export const LEFT = 58;
const STRIP_PX = 170;
const AXIS_PX = 18;
const HEAT_PX = 320;

/** Height of a rank's row. @param {number} ranks */
export const rowHeight = (ranks) => Math.max(4, Math.min(22, Math.floor(HEAT_PX / ranks)));

/**
 * The span under a pointer; null outside of all.
 * @param {number} x
 * @param {number} width
 * @param {number} spans
 * @returns {number|null}
 */
export function columnAt(x, width, spans) {
  const column = Math.floor(((x - LEFT) / (width - LEFT)) * spans);
  return column >= 0 && column < spans ? column : null;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Theme} theme
 * @param {Spans} spans
 * @param {{over: Record<string, (number|null)[]>}} means
 */
export function drawStrip(canvas, theme, spans, { over }) {
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
export function drawHeat(canvas, theme, spans, chosen) {
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
