/**
 * Streamlit's colours for canvases, which do not use CSS, and one palette for all charts: distinct also to colour-blind
 * eyes, at least 3:1 against its background; 0 is training, 1 validation.
 */

import PALETTE from './palette.json' with { type: 'json' };

/**
 * @typedef {{dark: boolean, text: string, muted: string, warning: string, grid: string, border: string,
 *   background: string, font: string, palette: string[]}} Theme
 */

/**
 * @param {Element} element any element inside the component
 * @returns {Theme}
 */
export function readTheme(element) {
  const style = getComputedStyle(element);
  /** @param {string} name @param {string} otherwise */
  const value = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
  const systemDark = matchMedia('(prefers-color-scheme: dark)').matches;
  const background = value('--st-background-color', systemDark ? '#12141c' : '#ffffff');
  const dark = lightness(background) < 0.5;
  const text = value('--st-text-color', dark ? '#e4e7f2' : '#1c2033');
  return {
    dark,
    text,
    background,
    muted: faded(text, 0.72),
    warning: dark ? '#ffb45c' : '#b35900',
    grid: faded(text, dark ? 0.1 : 0.08),
    border: value('--st-border-color', faded(text, 0.2)),
    font: value('--st-font', 'system-ui, sans-serif'),
    palette: PALETTE[dark ? 'dark' : 'light'],
  };
}

/**
 * Tell when the colours may be others: Streamlit swaps classes on the elements around, the browser its
 * scheme.
 * @param {Element} element
 * @param {(theme: Theme) => void} onChange
 * @returns {() => void} ends it
 */
export function watchTheme(element, onChange) {
  let last = JSON.stringify(readTheme(element));
  const look = () => {
    const theme = readTheme(element);
    const now = JSON.stringify(theme);
    if (now === last) return;
    last = now;
    onChange(theme);
  };
  const scheme = matchMedia('(prefers-color-scheme: dark)');
  const observer = new MutationObserver(() => requestAnimationFrame(look));
  const host = /** @type {ShadowRoot} */ (element.getRootNode()).host ?? element;
  const watched = { attributes: true, attributeFilter: ['class', 'style', 'data-theme'] };
  for (const outer of [document.documentElement, document.body, host.parentElement, host.closest('.stApp')]) {
    if (outer) observer.observe(outer, watched);
  }
  scheme.addEventListener('change', look);
  return () => {
    observer.disconnect();
    scheme.removeEventListener('change', look);
  };
}

/** A colour with the opacity `alpha`. @param {string} colour @param {number} alpha */
export function faded(colour, alpha) {
  const [red, green, blue] = channels(colour);
  return `rgba(${red}, ${green}, ${blue}, ${alpha})`;
}

/**
 * The numbers of the colours of runs that stand together: each has its own wherever it is, which its id says,
 * or the next one where a run before it has that; after the palette new ones. Reports choose the same
 * (`report.py`).
 * @param {string[]} ids @returns {Map<string, number>}
 */
export function colourNumbers(ids) {
  const most = PALETTE.light.length;
  const [numbers, taken] = [new Map(), new Set()];
  ids.forEach((id, place) => {
    const own = (parseInt(id, 36) || 0) % most;
    const free =
      Array.from({ length: most }, (_, further) => (own + further) % most).find((number) => !taken.has(number)) ??
      place;
    taken.add(free);
    numbers.set(id, free);
  });
  return numbers;
}

/**
 * The colour of a number of `colourNumbers`, or of a group's position. After the palette, hues as far apart
 * as can be.
 * @param {number} position from 0
 * @param {{dark: boolean, palette: string[]}} theme
 */
export function runColour(position, { dark, palette }) {
  if (position < palette.length) return palette[position];
  const hue = (position * PALETTE.hue_step) % 360;
  let percent = dark ? 60 : 45;
  let colour = fromHsl(hue, 0.62, percent / 100);
  // At least 3:1 against the background, whatever the hue: yellow needs to be darker than blue.
  while (dark ? luminance(colour) < 0.2 : luminance(colour) > 0.28) {
    percent += dark ? 2 : -2;
    colour = fromHsl(hue, 0.62, percent / 100);
  }
  return colour;
}

/** @param {number} hue in degrees @param {number} saturation @param {number} light */
function fromHsl(hue, saturation, light) {
  /** @param {number} n */
  const channel = (n) => {
    const k = (n + hue / 30) % 12;
    const value = light - saturation * Math.min(light, 1 - light) * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return Math.round(255 * value)
      .toString(16)
      .padStart(2, '0');
  };
  return `#${channel(0)}${channel(8)}${channel(4)}`;
}

/** Relative luminance, as WCAG defines it. @param {string} colour */
function luminance(colour) {
  const [red, green, blue] = channels(colour).map((value) => {
    const share = value / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** @param {string} colour */
function lightness(colour) {
  const [red, green, blue] = channels(colour);
  return (0.299 * red + 0.587 * green + 0.114 * blue) / 255;
}

/** @param {string} colour @returns {number[]} */
function channels(colour) {
  const hex = /^#([0-9a-f]{6}|[0-9a-f]{3})/i.exec(colour);
  if (hex) {
    const digits = hex[1].length === 3 ? [...hex[1]].map((digit) => digit + digit).join('') : hex[1];
    return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
  }
  const numbers = colour.match(/[\d.]+/g);
  return numbers && numbers.length >= 3 ? numbers.slice(0, 3).map(Number) : [128, 128, 128];
}
