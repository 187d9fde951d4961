/** Turn stored points into drawn ones: joined over attempts, smoothed, and thinned to the number of pixels. */

/** @typedef {import('../live/series_store.js').Columns} Columns */
/**
 * @typedef {{x: number[], raw: (number|null)[], smooth: (number|null)[]|null, boundaries: [number,
 *   number][]}} Line
 * x positions, values as logged, values smoothed, and where which attempt begins
 */

/**
 * TensorBoard's exponential moving average, corrected for its start; what is not finite is left out.
 * @param {ArrayLike<number>} values
 * @param {number} count
 * @param {number} weight 0 (none) to 1
 * @returns {Float64Array}
 */
export function smoothed(values, count, weight) {
  const result = new Float64Array(count);
  let average = 0;
  let remaining = 1;
  for (let i = 0; i < count; i++) {
    const value = values[i];
    if (!Number.isFinite(value)) {
      result[i] = value;
      continue;
    }
    average = average * weight + (1 - weight) * value;
    remaining *= weight;
    result[i] = average / (1 - remaining);
  }
  return result;
}

/**
 * Which points to draw: per bucket the lowest, the highest and a gap. Buckets are as wide as a power of two,
 * so that they stay where they are while points arrive, and the picture does not shimmer.
 * @param {ArrayLike<number>} x ascending
 * @param {ArrayLike<number>} y
 * @param {number} from first index
 * @param {number} to index after the last
 * @param {number} buckets about how many there may be
 * @returns {number[]} indices, ascending
 */
export function thinned(x, y, from, to, buckets) {
  const picked = [];
  if (to - from <= buckets * 2) {
    for (let i = from; i < to; i++) picked.push(i);
    return picked;
  }
  const width = 2 ** Math.ceil(Math.log2((x[to - 1] - x[from]) / buckets || 1));
  for (let i = from; i < to; ) {
    const bucket = Math.floor(x[i] / width);
    let low = -1;
    let high = -1;
    let gap = -1;
    for (; i < to && Math.floor(x[i] / width) === bucket; i++) {
      if (!Number.isFinite(y[i])) gap = i;
      else {
        if (low < 0 || y[i] < y[low]) low = i;
        if (high < 0 || y[i] > y[high]) high = i;
      }
    }
    const indices = low === high ? [low, gap] : [low, high, gap];
    for (const index of indices.filter((k) => k >= 0).sort((a, b) => a - b)) picked.push(index);
  }
  return picked;
}

/**
 * Which points a later life of the script replaced: from its lowest step on, its own count.
 * @param {Columns} columns
 * @returns {Uint8Array} 1 for each replaced one
 */
export function replacedByLives({ step, count, lives }) {
  const replaced = new Uint8Array(count);
  let until = Infinity;
  let end = count;
  for (const start of [...lives, 0].sort((a, b) => b - a)) {
    const own = step.subarray(start, end);
    own.forEach((at, i) => {
      if (at >= until) replaced[start + i] = 1;
    });
    until = own.reduce((a, b) => Math.min(a, b), until);
    end = start;
  }
  return replaced;
}

/**
 * The stretches of a series that count: from a newer attempt's first step on, its points replace older ones.
 * @param {Map<number, Columns>} attempts
 * @returns {{attempt: number, columns: Columns, until: number, replaced: Uint8Array|null}[]} oldest first
 */
export function stretches(attempts) {
  const chosen = [];
  let until = Infinity;
  for (const attempt of [...attempts.keys()].sort((a, b) => b - a)) {
    const columns = /** @type {Columns} */ (attempts.get(attempt));
    if (!columns.count) continue;
    chosen.unshift({ attempt, columns, until, replaced: columns.lives.length ? replacedByLives(columns) : null });
    until = Math.min(
      until,
      columns.sorted ? columns.step[0] : columns.step.subarray(0, columns.count).reduce((a, b) => Math.min(a, b)),
    );
  }
  return chosen;
}

/**
 * First and last wall time of each attempt.
 * @param {Iterable<{attempts: Map<number, Columns>}>} series
 */
export function spansOf(series) {
  /** @type {Map<number, [number, number]>} */
  const spans = new Map();
  for (const { attempts } of series) {
    for (const [attempt, { count, wall }] of attempts) {
      if (!count) continue;
      const [first, last] = spans.get(attempt) ?? [Infinity, -Infinity];
      spans.set(attempt, [Math.min(first, wall[0]), Math.max(last, wall[count - 1])]);
    }
  }
  return spans;
}

/**
 * Seconds of training at a wall time: pauses between attempts do not count.
 * @param {Map<number, [number, number]>} spans first and last wall time by attempt
 * @returns {Map<number, number>} what to subtract from a wall time, by attempt
 */
export function timeOrigins(spans) {
  const origins = new Map();
  let elapsed = 0;
  for (const attempt of [...spans.keys()].sort((a, b) => a - b)) {
    const [first, last] = /** @type {[number, number]} */ (spans.get(attempt));
    origins.set(attempt, first - elapsed);
    elapsed += Math.max(0, last - first);
  }
  return origins;
}

/**
 * @typedef {Map<number, number>|((attempt: number, step: number) => number)|'order'|null} Origins of an axis: null
 *   for steps, origins of time by attempt, where a step of an attempt stands, or the order of logging
 */

/**
 * Where the points of an attempt stand on the axis.
 * @param {Origins} origins
 * @param {number} attempt
 * @returns {(columns: Columns, i: number) => number}
 */
export function placer(origins, attempt) {
  if (!origins) return (columns, i) => columns.step[i];
  if (origins === 'order') return (columns, i) => (i * columns.logged) / columns.count;
  if (typeof origins === 'function') return (columns, i) => origins(attempt, columns.step[i]);
  const origin = origins.get(attempt) ?? 0;
  return (columns, i) => columns.wall[i] - origin;
}

/**
 * @typedef {{x: ArrayLike<number>, y: ArrayLike<number>, count: number, boundaries: [number, number][]}} Flat
 */

/**
 * One series as flat columns over the chosen axis; points whose place is not known are left out.
 * @param {{columns: Columns, attempt: number, until: number, replaced?: Uint8Array|null}[]} parts
 * @param {Origins} origins
 * @param {boolean} replaced only what newer attempts replaced, instead of what counts
 * @returns {Flat}
 */
export function flattened(parts, origins, replaced = false) {
  /** @type {[number, number][]} */
  const boundaries = [];
  const single = parts.length === 1 && parts[0].columns.sorted && !parts[0].replaced && !replaced;
  if (single && !origins) {
    const { columns, attempt } = parts[0];
    if (attempt > 1) boundaries.push([columns.step[0], attempt]);
    return { x: columns.step, y: columns.value, count: columns.count, boundaries };
  }
  /** @type {number[]} */
  const x = [];
  /** @type {number[]} */
  const y = [];
  let sorted = true;
  let before = 0;
  for (const { columns, attempt, until, replaced: byLife } of parts) {
    const place = placer(origins, attempt);
    let isFirst = true;
    for (let i = 0; i < columns.count; i++) {
      if (replaced !== (columns.step[i] >= until || byLife?.[i] === 1)) continue;
      const at = place(columns, i) + before;
      if (Number.isNaN(at)) continue;
      if (isFirst && attempt > 1) boundaries.push([at, attempt]);
      const isNewLine = isFirst || (i > 0 && columns.step[i] <= columns.step[i - 1]);
      if (isNewLine && replaced && x.length) pushGap(x, y);
      isFirst = false;
      if (x.length && at < x[x.length - 1]) sorted = false;
      x.push(at);
      y.push(columns.value[i]);
    }
    if (origins === 'order') before += columns.logged;
  }
  return sorted ? { x, y, count: x.length, boundaries } : { ...inOrder(x, y), boundaries };
}

/**
 * What to draw of a flat series inside a window.
 * @param {{from: number, to: number}|null} window null for all
 * @param {{buckets: number, weight: number, onlyPositive: boolean}} how
 * @param {Flat} flat
 * @returns {Line}
 */
export function drawable(flat, window, how) {
  const { x, y, count } = flat;
  // One neighbour on each side, so that lines run to the edges.
  const from = window ? Math.max(0, firstAtLeast(x, count, window.from) - 1) : 0;
  const to = window ? Math.min(count, firstAtLeast(x, count, window.to) + 2) : count;
  const averages = how.weight > 0 ? smoothed(y, count, how.weight) : null;
  const picked = thinned(x, y, from, to, how.buckets);
  /** @param {number} value */
  const shown = (value) => (Number.isFinite(value) && !(how.onlyPositive && value <= 0) ? value : null);
  return {
    x: picked.map((i) => x[i]),
    raw: picked.map((i) => shown(y[i])),
    smooth:
      averages &&
      /** @param {(number|null)[]} values @param {boolean} isThinned */
      calm(
        picked.map((i) => shown(averages[i])),
        picked.length < to - from,
      ),
    boundaries: flat.boundaries,
  };
}

/**
 * Points were picked for what was logged; the average between two of them is the calmer line.
 * @param {(number|null)[]} values
 * @param {boolean} isThinned
 */
function calm(values, isThinned) {
  if (!isThinned) return values;
  return values.map((value, i) => {
    const before = values[i - 1];
    return value === null || before === null || before === undefined || i === values.length - 1
      ? value
      : (value + before) / 2;
  });
}

/**
 * First index whose x is not below the value.
 * @param {ArrayLike<number>} x ascending
 * @param {number} count
 * @param {number} value
 */
export function firstAtLeast(x, count, value) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param {number[]} x @param {number[]} y */
function pushGap(x, y) {
  x.push(x[x.length - 1]);
  y.push(NaN);
}

/** @param {number[]} x @param {number[]} y */
function inOrder(x, y) {
  const order = x.map((_, i) => i).sort((a, b) => x[a] - x[b] || a - b);
  return { x: order.map((i) => x[i]), y: order.map((i) => y[i]), count: x.length };
}
