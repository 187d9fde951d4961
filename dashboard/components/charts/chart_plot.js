/**
 * One uPlot: its axes, its lines and what is drawn over them; and the way to take it away, as a picture with its title.
 */

import { count, number, timeSpan } from '../elements/numbers.js';
import { faded } from '../elements/theme.js';
import { apiUrl } from '../server/request.js';

/** @typedef {import('../elements/theme.js').Theme} Theme */
/**
 * @typedef {{colour: string, strength: number, width: number, dash?: number[], dots: () => boolean, band?:
 *   'low'|'high'}} Stroke
 * @typedef {{at: number, text: string, short?: string, warns: boolean}} Marker
 */

const AXIS_WIDTH_PX = 54;
/** Labels of marker lines; where no label fits, a number is shown. */
const MARKER_ROWS = 3;
const ROW_PX = 13;
const BAND_STRENGTH = 0.18;
/** @type {number[]} */
const STEP_INCREMENTS = [];
for (let power = 1; power < 1e15; power *= 10) STEP_INCREMENTS.push(power, 2 * power, 5 * power);
const TIME_INCREMENTS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200,
  10800, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 8640000,
];
/** @type {Partial<Record<import('./chart_toolbar.js').XAxis, number[]>>} */
const INCREMENTS = { step: STEP_INCREMENTS, samples: STEP_INCREMENTS, order: STEP_INCREMENTS, time: TIME_INCREMENTS };

/** @typedef {import('uplot')} Plot */
/** @typedef {(value: number, digits?: number) => string} Format */
/** @typedef {Plot['bbox']} Box in the canvas's pixels */
/** @typedef {Marker & {x: number}} Placed with its place in the canvas's pixels */

const page = /** @type {{uPlot?: typeof import('uplot')}} */ (/** @type {unknown} */ (window));
/** @type {Promise<typeof import('uplot')>|null} */
let library = null;

/** uPlot itself, loaded once a page. */
export function loadPlotLibrary() {
  library ??= new Promise((resolve, reject) => {
    if (page.uPlot) {
      resolve(page.uPlot);
      return;
    }
    const script = document.createElement('script');
    script.src = apiUrl('assets/uPlot.iife.js');
    script.onload = () => resolve(/** @type {typeof import('uplot')} */ (page.uPlot));
    script.onerror = () => {
      library = null;
      reject(new Error('The chart library could not be loaded.'));
    };
    document.head.append(script);
  });
  return library;
}

/**
 * @param {HTMLElement} place
 * @param {{width: number, height: number, xAxis: import('./chart_toolbar.js').XAxis, logY: boolean, theme:
 *   Theme, window: () => {from: number, to: number}|null, strokes: Stroke[], markers: () => Marker[], format:
 *   (value: number, digits?: number) => string, onCursor: (x: number|null) => void, onZoom: (from: number,
 *   to: number) => void, onReset: () => void}} options
 * @param {typeof import('uplot')} uPlot
 * @returns {Plot}
 */
export function createPlot(uPlot, place, options) {
  const { theme, xAxis, logY } = options;
  const axis = {
    stroke: theme.muted,
    font: `11px ${theme.font}`,
    grid: { stroke: theme.grid, width: 1 },
    ticks: { show: false },
    gap: 6,
  };
  return new uPlot(
    {
      width: options.width,
      height: options.height,
      padding: [8, 12, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        points: { size: (u, index) => (options.strokes[index - 1]?.band ? 0 : 7), width: 0 },
        drag: { x: true, y: false, setScale: false, dist: 5 },
        bind: { dblclick: () => () => reset(options) },
        dataIdx: (u, series, nearest) => nearestWithValue(u.data[series], nearest),
      },
      scales: {
        x: { time: xAxis === 'wall', range: (u, min, max) => xRange(min, max) },
        y: {
          distr: logY ? 3 : 1,
          /** @returns {[number, number]} */
          range: (u, min, max) => (logY ? logRange(...positive(u.data, options.window())) : yRange(uPlot, min, max)),
        },
      },
      axes: [
        {
          ...axis,
          size: xAxis === 'wall' ? 36 : 24,
          space: 64,
          // The increments of the clock and of epochs are uPlot's own: they follow the calendar, and have
          // fractions.
          ...(INCREMENTS[xAxis] && { incrs: INCREMENTS[xAxis] }),
          values: (u, splits, index, space, increment) =>
            xAxis === 'wall'
              ? clockLabels(splits, increment)
              : splits.map((at) => (xAxis === 'time' ? timeSpan(at) : number(at, 4))),
        },
        {
          ...axis,
          size: AXIS_WIDTH_PX,
          space: 34,
          ...(logY && { splits: (u, index, min, max) => logSplits(min, max), filter: (u, splits) => splits }),
          values: (u, splits, index, space, increment) => tickLabels(splits, increment, options.format, logY),
        },
      ],
      focus: { alpha: 0.2 },
      series: [{}, ...options.strokes.map((stroke) => lineOf(stroke))],
      hooks: {
        draw: [(u) => drawMarkers(u, options.markers(), theme)],
        setCursor: [(u) => options.onCursor(cursorAt(u))],
        setSelect: [(u) => selected(u, options.onZoom)],
      },
    },
    [[], ...options.strokes.map(() => [])],
    place,
  );
}

/** @param {{onReset: () => void}} options @returns {null} uPlot's own reset does not follow */
function reset(options) {
  options.onReset();
  return null;
}

/** Where the pointer is on the axis; null outside of the plot. @param {Plot} u */
function cursorAt(u) {
  const { left = -1 } = u.cursor;
  return left >= 0 ? u.posToVal(left, 'x') : null;
}

/**
 * A part of the axis was chosen by dragging.
 * @param {Plot} u
 * @param {(from: number, to: number) => void} onZoom
 */
function selected(u, onZoom) {
  const { left, width } = u.select;
  if (width < 1) return;
  onZoom(u.posToVal(left, 'x'), u.posToVal(left + width, 'x'));
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}

/** @param {Stroke} stroke @returns {import('uplot').Series} */
function lineOf({ colour, strength, width, dash, dots, band }) {
  if (band)
    return {
      fill: band === 'low' ? faded(colour, BAND_STRENGTH) : undefined,
      width: 0,
      paths: band === 'low' ? traceBand : () => null,
      points: { show: false },
    };
  const shown = strength < 1 ? faded(colour, strength) : colour;
  return {
    stroke: shown,
    width,
    dash,
    cap: 'round',
    paths: tracePath,
    points: { show: () => dots(), size: 5, width: 0, fill: shown, stroke: shown },
  };
}

/**
 * The area between this series and the next one; places of other lines are passed over.
 * @param {Plot} u
 * @param {number} seriesIndex
 * @returns {import('uplot').Series.Paths}
 */
function traceBand(u, seriesIndex) {
  const [xs, lows, highs] = [u.data[0], u.data[seriesIndex], u.data[seriesIndex + 1]];
  const at = Array.from(xs.keys()).filter((i) => Number.isFinite(lows[i]) && Number.isFinite(highs[i]));
  const path = new Path2D();
  /** @param {number} i @param {any} values */
  const to = (i, values) => path.lineTo(u.valToPos(xs[i], 'x', true), u.valToPos(values[i], 'y', true));
  for (const i of at) to(i, highs);
  for (const i of at.reverse()) to(i, lows);
  return { stroke: null, fill: path, clip: null, band: null, gaps: undefined, flags: 0 };
}

/**
 * `undefined` is another line's position and is passed over, `null` is a gap.
 * @param {Plot} u
 * @param {number} seriesIndex
 * @returns {import('uplot').Series.Paths}
 */
function tracePath(u, seriesIndex) {
  const path = new Path2D();
  const xs = u.data[0];
  const ys = u.data[seriesIndex];
  let isDown = false;
  for (let i = 0; i < xs.length; i++) {
    const value = ys[i];
    if (value === undefined) continue;
    if (value === null) {
      isDown = false;
      continue;
    }
    const x = u.valToPos(xs[i], 'x', true);
    const y = u.valToPos(value, 'y', true);
    // A point between two gaps becomes a dot: a line of no length with round ends.
    if (!isDown) path.moveTo(x - 0.01, y);
    path.lineTo(x, y);
    isDown = true;
  }
  return { stroke: path, fill: null, clip: null, band: null, gaps: undefined, flags: 0 };
}

/** @param {ArrayLike<number|null|undefined>} values @param {number} nearest */
function nearestWithValue(values, nearest) {
  for (let away = 0; away < values.length; away++) {
    if (values[nearest - away] != null) return nearest - away;
    if (values[nearest + away] != null) return nearest + away;
  }
  return nearest;
}

/** @param {number|null} min @param {number|null} max @returns {[number, number]} */
function xRange(min, max) {
  if (min === null || max === null) return [0, 1];
  return max > min ? [min, max] : [min - 0.5, max + 0.5];
}

/**
 * @param {typeof import('uplot')} uPlot
 * @param {number|null} min
 * @param {number|null} max
 * @returns {[number, number]}
 */
function yRange(uPlot, min, max) {
  if (min === null || max === null) return [0, 1];
  if (min === max) {
    const around = Math.abs(min) * 0.1 || 1;
    return [min - around, max + around];
  }
  return /** @type {[number, number]} */ (uPlot.rangeNum(min, max, 0.08, false));
}

/** @param {number|null} min @param {number|null} max @returns {[number, number]} */
function logRange(min, max) {
  if (min === null || max === null) return [0.1, 1];
  const margin = Math.max(max / min, 1.2) ** 0.06;
  return [min / margin, max * margin];
}

/**
 * The least and the greatest positive value in view; uPlot would add 1 and 10 for each line that has none
 * there.
 * @param {any[]} data
 * @param {{from: number, to: number}|null} window
 * @returns {[number|null, number|null]}
 */
function positive([xs, ...lines], window) {
  const { from, to } = window ?? { from: -Infinity, to: Infinity };
  let [least, most] = [Infinity, 0];
  for (const values of lines) {
    for (let i = 0; i < values.length; i++) {
      if (!(values[i] > 0) || xs[i] < from || xs[i] > to) continue;
      least = Math.min(least, values[i]);
      most = Math.max(most, values[i]);
    }
  }
  return most > 0 ? [least, most] : [null, null];
}

/**
 * The time of day, and below it the date where it is another than before.
 * @param {number[]} splits
 * @param {number} increment
 */
function clockLabels(splits, increment) {
  let before = '';
  return splits.map((at) => {
    const moment = new Date(at * 1000);
    const date = moment.toLocaleDateString(undefined, { day: 'numeric', month: 'short' });
    const time = moment.toLocaleTimeString(undefined, {
      hour: '2-digit',
      minute: '2-digit',
      second: increment < 60 ? '2-digit' : undefined,
      hour12: false,
    });
    const isOther = date !== before;
    before = date;
    if (increment >= 86400) return date;
    return isOther ? `${time}\n${date}` : time;
  });
}

/** 1, 2 and 5 of every decade; within one decade evenly. @param {number} min @param {number} max */
function logSplits(min, max) {
  const decades = Math.log10(max / min);
  const splits = [];
  if (decades < 1) {
    const rough = 10 ** Math.floor(Math.log10((max - min) / 4));
    const step = [1, 2, 5, 10].map((factor) => factor * rough).find((size) => (max - min) / size <= 6) ?? 10 * rough;
    for (let at = Math.ceil(min / step) * step; at <= max; at += step) splits.push(at);
    return splits;
  }
  const factors = decades > 3 ? [1] : [1, 2, 5];
  const every = Math.max(1, Math.ceil(decades / 8));
  for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power += every) {
    for (const factor of factors) splits.push(factor * 10 ** power);
  }
  return splits.filter((at) => at >= min && at <= max);
}

/**
 * As many digits as tell neighbours apart.
 * @param {number[]} splits some are null, where uPlot leaves a label out
 * @param {number} increment
 * @param {Format} format
 * @param {boolean} logY
 */
function tickLabels(splits, increment, format, logY) {
  const largest = splits.reduce((most, at) => Math.max(most, Math.abs(at ?? 0)), 0);
  const digits = logY ? 3 : Math.min(8, Math.max(2, Math.ceil(Math.log10(largest / increment + 1)) + 1));
  return splits.map((at) => (at === null ? '' : format(Math.abs(at) < increment * 1e-6 && !logY ? 0 : at, digits)));
}

/** @param {Plot} u @param {Marker[]} markers @param {Theme} theme */
function drawMarkers(u, markers, theme) {
  const { ctx, bbox } = u;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.font = `${10 * ratio}px ${theme.font}`;
  ctx.textBaseline = 'top';
  const shown = markers
    .map((marker) => ({ ...marker, x: Math.round(u.valToPos(marker.at, 'x', true)) }))
    .filter(({ x }) => x >= bbox.left - 1 && x <= bbox.left + bbox.width + 1)
    .sort((a, b) => a.x - b.x);
  for (const marker of shown) drawMark(ctx, marker, bbox, theme);
  /** @type {number[]} where the words of each row end */
  const rows = [];
  for (const { x, text, short, warns } of shown) {
    const place = placed(rows, x, ctx.measureText(text).width, ratio, bbox);
    const below = { x: x + 4 * ratio, y: bbox.top + (1 + MARKER_ROWS * ROW_PX) * ratio, width: 0 };
    fillWords(ctx, place ? text : (short ?? ''), place ?? below, warns ? theme.warning : theme.muted, theme);
  }
  ctx.restore();
}

/** @param {CanvasRenderingContext2D} ctx @param {Placed} marker @param {Box} bbox @param {Theme} theme */
function drawMark(ctx, { x, warns }, bbox, theme) {
  const ratio = devicePixelRatio;
  ctx.strokeStyle = warns ? theme.warning : theme.muted;
  ctx.lineWidth = ratio;
  ctx.setLineDash(warns ? [2 * ratio, 3 * ratio] : []);
  ctx.globalAlpha = warns ? 1 : 0.55;
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.globalAlpha = 1;
}

/**
 * A row in which the words of a mark fit beside its line without covering those before.
 * @param {number[]} rows
 * @param {number} x
 * @param {number} width
 * @param {number} ratio
 * @param {Box} bbox
 */
function placed(rows, x, width, ratio, bbox) {
  const gap = 4 * ratio;
  const isRight = x + width + 2 * gap > bbox.left + bbox.width;
  const left = isRight ? x - gap - width : x + gap;
  for (let row = 0; row < MARKER_ROWS; row++) {
    if (left < (rows[row] ?? -Infinity) + gap) continue;
    rows[row] = left + width;
    return { x: left, y: bbox.top + (1 + row * ROW_PX) * ratio, width };
  }
  return null;
}

/**
 * Readable also where a curve runs behind it.
 * @param {CanvasRenderingContext2D} ctx
 * @param {string} text
 * @param {{x: number, y: number, width: number}} place
 * @param {string} colour
 * @param {Theme} theme
 */
function fillWords(ctx, text, { x, y, width }, colour, theme) {
  ctx.textAlign = 'left';
  ctx.fillStyle = faded(theme.background, 0.8);
  if (width) ctx.fillRect(x - 1, y - 1, width + 2, ROW_PX * devicePixelRatio);
  ctx.fillStyle = colour;
  ctx.fillText(text, x, y);
}

/**
 * The place of a point that was logged, in words.
 * @param {number} x
 * @param {import('./chart_toolbar.js').XAxis} xAxis
 */
export function placeOf(x, xAxis) {
  if (xAxis === 'wall') return new Date(x * 1000).toLocaleString();
  if (xAxis === 'samples') return `${count(Math.round(x))} samples`;
  if (xAxis === 'order') return `point ${count(Math.round(x) + 1)}`;
  if (xAxis === 'epoch') return `epoch ${number(x, 4)}`;
  return xAxis === 'time' ? timeSpan(x) : `step ${count(x)}`;
}

/**
 * Save what is drawn, on the theme's background, with title and legend.
 * @param {HTMLCanvasElement} plot
 * @param {{title: string, subtitle: string, legend: {label: string, value: string, colour: string}[], theme:
 *   import('../elements/theme.js').Theme, fileName: string}} what
 */
export async function savePicture(plot, what) {
  const { theme } = what;
  const ratio = devicePixelRatio;
  const [margin, head] = [16 * ratio, 62 * ratio];
  const canvas = document.createElement('canvas');
  canvas.width = plot.width + 2 * margin;
  canvas.height = plot.height + head + margin;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.fillStyle = theme.background;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.textBaseline = 'alphabetic';
  write(context, what.title, margin, 26 * ratio, `600 ${15 * ratio}px ${theme.font}`, theme.text);
  context.textAlign = 'right';
  /**
   * @param {CanvasRenderingContext2D} context
   * @param {string} text
   * @param {number} x
   * @param {number} y
   * @param {string} font
   * @param {string} colour
   */
  write(context, what.subtitle, canvas.width - margin, 26 * ratio, `${11 * ratio}px ${theme.font}`, theme.muted);
  context.textAlign = 'left';
  let x = margin;
  for (const { label, value, colour } of what.legend) {
    context.fillStyle = colour;
    context.fillRect(x, 42 * ratio, 12 * ratio, 3 * ratio);
    x += 17 * ratio;
    x += write(context, `${label}  ${value}`, x, 48 * ratio, `${12 * ratio}px ${theme.font}`, faded(theme.text, 0.85));
    x += 18 * ratio;
  }
  context.drawImage(plot, margin, head);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
  if (blob) save(blob, what.fileName);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {string} font
 * @param {string} colour
 */
function write(context, text, x, y, font, colour) {
  context.font = font;
  context.fillStyle = colour;
  context.fillText(text, x, y);
  return context.measureText(text).width;
}

/** @param {Blob} blob @param {string} fileName */
function save(blob, fileName) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = fileName.replace(/[^\p{L}\p{N}._-]+/gu, '-');
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
