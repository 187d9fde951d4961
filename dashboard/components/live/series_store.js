/** The points of one run as the browser keeps them: typed arrays that grow, by series and attempt. */

import { fromJson } from '../elements/numbers.js';

const MOST_POINTS = 60_000;

/** Steps, values and wall times of one series in one attempt. */
export class Columns {
  constructor() {
    this.count = 0;
    this.step = new Float64Array(64);
    this.value = new Float64Array(64);
    this.wall = new Float64Array(64);
    /** Whether steps never went back, as they should. */
    this.sorted = true;
    /** @type {number[]} where later lives of the script begin, whose points replace those before from their first on */
    this.lives = [];
    /** The highest step of the last life. */
    this.reached = -Infinity;
    /** All points that were logged, of which the first picture may be a selection. */
    this.logged = 0;
    /** Those of them that stand at no higher step than one before them in the same life. */
    this.repeats = 0;
    /**
     * @type {number|null} first step of the equal values, all NaN or one infinity, that reach to the
     *   end
     */
    this.notFiniteSince = null;
    /** @type {number|null} the last value that was a number */
    this.lastNumber = null;
    /** Points of the server's first picture: from many on, it may be a selection. */
    this.firstCount = 0;
  }

  /**
   * Columns of points that are all there, which are taken over, not copied.
   * @param {Float64Array} step
   * @param {Float64Array} value
   * @param {Float64Array} wall
   * @param {number|null} notFiniteSince
   */
  static of(step, value, wall, notFiniteSince) {
    const columns = new Columns();
    Object.assign(columns, {
      step,
      value,
      wall,
      notFiniteSince,
      count: step.length,
      firstCount: step.length,
    });
    columns.sorted = step.every((at, i) => i === 0 || at >= step[i - 1]);
    for (const at of step) columns._countStep(at);
    columns.lastNumber = value.findLast(Number.isFinite) ?? null;
    return columns;
  }

  get lastStep() {
    return this.count ? this.step[this.count - 1] : null;
  }
  get lastValue() {
    return this.count ? this.value[this.count - 1] : null;
  }
  get lastWall() {
    return this.count ? this.wall[this.count - 1] : null;
  }

  /** @param {number} step @param {number} value @param {number} wall */
  push(step, value, wall) {
    if (this.count === this.step.length) this._grow();
    if (this.count && step < this.step[this.count - 1]) this.sorted = false;
    this._countStep(step);
    const isAsBefore = this.notFiniteSince !== null && Object.is(value, this.lastValue);
    this.step[this.count] = step;
    this.value[this.count] = value;
    this.wall[this.count] = wall;
    this.count += 1;
    if (Number.isFinite(value)) {
      this.notFiniteSince = null;
      this.lastNumber = value;
    } else if (!isAsBefore) this.notFiniteSince = step;
  }

  /** The next points are of a later life of the script. */
  beginLife() {
    if (!this.count) return;
    this.lives.push(this.count);
    this.reached = -Infinity;
  }

  /** @param {number} step */
  _countStep(step) {
    this.logged += 1;
    if (step <= this.reached) this.repeats += 1;
    else this.reached = step;
  }

  /** Forget every second pair of the older half: a page left open for days must not grow without end. */
  halveOlder() {
    const half = this.count >> 1;
    const keep = new Int32Array(this.count);
    let length = 0;
    for (let i = 0; i < half; i += 4) {
      // Keep the lowest and the highest of four neighbours, so that no peak is lost.
      let low = i;
      let high = i;
      for (let k = i; k < Math.min(i + 4, half); k++) {
        if (this.value[k] < this.value[low]) low = k;
        if (this.value[k] > this.value[high]) high = k;
      }
      keep[length++] = Math.min(low, high);
      if (low !== high) keep[length++] = Math.max(low, high);
    }
    for (let i = half; i < this.count; i++) keep[length++] = i;
    this.lives = this.lives.map((start) => keep.subarray(0, length).findIndex((i) => i >= start));
    for (const column of [this.step, this.value, this.wall]) {
      for (let i = 0; i < length; i++) column[i] = column[keep[i]];
    }
    this.count = length;
  }

  _grow() {
    if (this.count >= MOST_POINTS) return this.halveOlder();
    for (const name of /** @type {const} */ (['step', 'value', 'wall'])) {
      const larger = new Float64Array(this[name].length * 2);
      larger.set(this[name]);
      this[name] = larger;
    }
    return undefined;
  }
}

/** @typedef {{name: string, source: string, attempts: Map<number, Columns>, version: number}} Series */
/** @typedef {[step: number, value: number|string, wall: number][]} Points */

export class SeriesStore {
  constructor() {
    /** @type {Map<string, Series>} */
    this.series = new Map();
    /** @type {Set<string>} series whose next points may repeat what is known */
    this._resumed = new Set();
  }

  /**
   * Take in one message of the live channel.
   * @param {Record<string, {source?: string, attempt?: number, points: [number, number|string, number][],
   *   reset?: boolean, begins_life?: boolean, logged?: number, repeats?: number,
   *   not_finite_since?: number|null}>} message
   *   `logged` and `repeats`: of the points, where these are a selection
   * @returns {Set<string>} the names that changed
   */
  apply(message) {
    for (const [name, change] of Object.entries(message)) {
      const series = this._named(name, change.source ?? 'events');
      const attempt = change.attempt ?? 1;
      if (change.reset || !series.attempts.has(attempt)) series.attempts.set(attempt, new Columns());
      const columns = /** @type {Columns} */ (series.attempts.get(attempt));
      const known = this._resumed.delete(`${attempt}:${name}`) && !change.reset ? columns : null;
      if (change.begins_life) columns.beginLife();
      const { logged, repeats } = columns;
      for (const [step, value, wall] of afterKnown(change.points, known))
        columns.push(step, Number(fromJson(value)), wall);
      if (change.logged !== undefined) columns.logged = logged + change.logged;
      if (change.repeats !== undefined) columns.repeats = repeats + change.repeats;
      if (change.reset) columns.firstCount = columns.count;
      // A first picture is a selection of the points; the server knows them all.
      if (columns.notFiniteSince !== null) columns.notFiniteSince = change.not_finite_since ?? columns.notFiniteSince;
      series.version += 1;
    }
    return new Set(Object.keys(message));
  }

  /**
   * What was seen last, for the server to go on from: wall times by attempt, source and tag; null for
   * nothing.
   * @param {string[]|null} [names] of these series only
   */
  seen(names = null) {
    if (!this.series.size) return null;
    /** @type {Record<string, number>} */
    const lastSteps = {};
    for (const { name, source, attempts } of this.series.values()) {
      if (names && !names.includes(name)) continue;
      for (const [attempt, columns] of attempts) {
        if (columns.lastWall !== null) lastSteps[`${attempt}:${source}:${tagOf(name, source)}`] = columns.lastWall;
        this._resumed.add(`${attempt}:${name}`);
      }
    }
    return lastSteps;
  }

  /** @returns {number[]} the numbers of all attempts that logged anything */
  attempts() {
    const numbers = new Set();
    for (const series of this.series.values()) for (const number of series.attempts.keys()) numbers.add(number);
    return [...numbers].sort((a, b) => a - b);
  }

  /** Whether a later life of the script of an attempt replaced points. */
  hasReplaced() {
    for (const { attempts } of this.series.values())
      for (const columns of attempts.values()) if (columns.lives.length) return true;
    return false;
  }

  /** @param {string} name @param {string} source @returns {Series} */
  _named(name, source) {
    let series = this.series.get(name);
    if (!series) this.series.set(name, (series = { name, source, attempts: new Map(), version: 0 }));
    return series;
  }
}

/**
 * How many points of a series repeat a step, or go back, and of how many; samples of the hardware have many a step.
 * @param {Series} series
 */
export function repeatsOf({ source, attempts }) {
  const [total, result] = [[...attempts.values()], { repeats: 0, logged: 0 }];
  if (source !== 'events' && source !== 'printed') return result;
  for (const { repeats, logged } of total) {
    result.repeats += repeats;
    result.logged += logged;
  }
  return result;
}

/** @param {string} name @param {string} source */
function tagOf(name, source) {
  return source !== 'events' && name.startsWith(`${source}/`) ? name.slice(source.length + 1) : name;
}

/** @param {Points} points @param {Columns|null} known */
function afterKnown(points, known) {
  if (!known?.count) return points;
  const [lastWall, lastStep] = [Number(known.lastWall), Number(known.lastStep)];
  return points.filter(([step, , wall]) => wall > lastWall || (wall === lastWall && step > lastStep));
}
