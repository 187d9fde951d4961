/** Numbers and times as people read them, by the rules of domain/text/formats.py; one table tests both. */

export const UNKNOWN = '–';
/** @type {[number, string][]} */
const UNITS = [
  [1e12, ' T'],
  [1e9, ' G'],
  [1e6, ' M'],
  [1e3, ' k'],
];
/** Each: up to which seconds, the unit's seconds, the unit. @type {[number, number, string][]} */
const SPANS = [
  [1e-3, 1e-6, 'µs'],
  [1, 1e-3, 'ms'],
  [60, 1, 's'],
  [3600, 60, 'min'],
  [86_400, 3600, 'h'],
  [Infinity, 86_400, 'd'],
];
/** Each: up to which age in seconds, the unit's seconds, the unit. @type {[number, number, string][]} */
const AGES = [
  [90, 1, 's'],
  [5400, 60, 'min'],
  [172_800, 3600, 'h'],
  [Infinity, 86_400, 'd'],
];

/**
 * 12.4 k, 1.2 M, 0.00042: a few significant digits, never a row of zeros.
 * @param {number|null|undefined} value
 * @param {number} [digits]
 */
export function number(value, digits = 3) {
  if (value === null || value === undefined) return UNKNOWN;
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'NaN' : value > 0 ? '∞' : '−∞';
  const size = Math.abs(value);
  for (const [factor, unit] of UNITS) {
    if (size >= factor * 10 || (size >= factor && factor > 1e3)) return significant(value / factor, digits) + unit;
  }
  return significant(value, digits);
}

/**
 * The text for a value that is not finite: NaN since step 812, last number 0.41; '' for a number.
 * @param {number|null|undefined} value
 * @param {number|null} since first step at which it was what it is now
 * @param {number|null} [lastNumber] before that, where there is room for it
 * @param {(value: number) => string} [format] of the last number
 */
export function notFinite(value, since, lastNumber = null, format = number) {
  if (value === null || value === undefined || Number.isFinite(value)) return '';
  const text = since === null || since === undefined ? number(value) : `${number(value)} since step ${count(since)}`;
  return lastNumber === null ? text : `${text}, last number ${format(lastNumber)}`;
}

/** Every digit, for hovering. @param {unknown} value */
export function exact(value) {
  return value === null || value === undefined ? UNKNOWN : String(value);
}

/** 12 345, with thin spaces between thousands. @param {number|null|undefined} value */
export function count(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
}

/** +4 %, −0.31 %: a change in per cent. @param {number} percent @param {number} [digits] */
export function change(percent, digits = 3) {
  if (!Number.isFinite(percent)) return number(percent);
  return `${percent > 0 ? '+' : percent < 0 ? '−' : '±'}${number(Math.abs(percent), digits)} %`;
}

/**
 * The change of a value from a base in per cent of the base's size; null where that says nothing.
 * @param {number|null|undefined} value
 * @param {number|null|undefined} base
 * @returns {number|null}
 */
export function changePercent(value, base) {
  return isNumber(value) && isNumber(base) && base !== 0 ? (100 * (value - base)) / Math.abs(base) : null;
}

/** Whether it is known, and a number. @param {unknown} value @returns {value is number} */
export const isNumber = (value) => Number.isFinite(value);

/** 1 rank, 8 ranks. @param {number} amount @param {string} noun */
export const plural = (amount, noun) => `${count(amount)} ${noun}${amount === 1 ? '' : 's'}`;

/** 0.0008, 3e-05: as one writes it on a command line. @param {number|null|undefined} value */
export function learningRate(value, digits = 6) {
  return isNumber(value) ? significant(value, digits) : number(value);
}

/** 00:12:31, and 2 d 03:10:00 from a day on. @param {number|null|undefined} seconds */
export function duration(seconds) {
  if (!isNumber(seconds)) return UNKNOWN;
  const whole = Math.max(0, Math.trunc(seconds));
  const days = Math.trunc(whole / 86400);
  /** @param {number} part */
  const two = (part) => String(part).padStart(2, '0');
  const clock = [Math.trunc((whole % 86400) / 3600), Math.trunc((whole % 3600) / 60), whole % 60].map(two).join(':');
  return days ? `${days} d ${clock}` : clock;
}

/** 2.1 µs, 850 ms, 12.4 s, 3 min, 2.5 h, 2 d. @param {number|null|undefined} seconds */
export function timeSpan(seconds, digits = 3) {
  if (!isNumber(seconds)) return number(seconds);
  if (seconds === 0) return '0 s';
  const [, length, unit] = rowOf(SPANS, Math.abs(seconds));
  return `${significant(seconds / length, digits)} ${unit}`;
}

/** just now, 40 s ago, 12 min ago, 3 h ago, 5 d ago. @param {number} seconds */
export function ago(seconds) {
  if (seconds < 5) return 'just now';
  const [, length, unit] = rowOf(AGES, seconds);
  return `${Math.trunc(seconds / length)} ${unit} ago`;
}

/** The row of a table for that many seconds. @param {[number, number, string][]} rows @param {number} seconds */
function rowOf(rows, seconds) {
  return rows.find(([limit]) => seconds < limit) ?? rows[rows.length - 1];
}

/** 1.2 GiB, 340 KiB, 12 B. @param {number|null|undefined} bytes */
export function size(bytes) {
  if (!isNumber(bytes)) return number(bytes);
  let value = bytes;
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (Math.abs(value) < 1024) return `${unit === 'B' ? Math.trunc(value) : significant(value, 3)} ${unit}`;
    value /= 1024;
  }
  return `${significant(value, 3)} TiB`;
}

/**
 * @param {string|number|null|undefined} value a number, or the words that stand for those JSON does not have
 */
export function fromJson(value) {
  if (typeof value === 'number' || value === null || value === undefined) return value;
  if (value === 'Infinity') return Infinity;
  return value === '-Infinity' ? -Infinity : NaN;
}

/** Round to so many digits, but no whole ones. @param {number} value @param {number} digits */
function significant(value, digits) {
  const wholeDigits = Math.abs(value) < 1e15 ? String(Math.trunc(Math.abs(value))).length : 0;
  const rounded = Number(value.toPrecision(Math.max(digits, wholeDigits)));
  const size = Math.abs(rounded);
  if (size === 0 || (size >= 1e-4 && size < 1e15)) return String(rounded);
  return rounded.toExponential().replace(/[+-](?=\d$)/, '$&0');
}

/**
 * The lowest and the highest value, with one more digit where they read the same, and as one where they still do.
 * @param {number} least
 * @param {number} most
 * @param {(value: number, digits?: number) => string} format
 */
export function range(least, most, format) {
  for (const digits of [undefined, 4]) {
    const [low, high] = [format(least, digits), format(most, digits)];
    if (low !== high) return `${low} – ${high}`;
  }
  return format(most, 4);
}
