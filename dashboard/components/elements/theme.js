/** Streamlit's colours for canvases, which do not use CSS, and one palette for all charts. */

/** Distinct also to colour-blind eyes, at least 3:1 against its background; 0 is training, 1 validation. */
const PALETTE = {
  light: ['#3b5bdb', '#d9480f', '#0b7f6b', '#a61e7d', '#8a6100', '#1478a6', '#5f6b7a', '#5c7a10'],
  dark: ['#86a3ff', '#ff9f5a', '#45cdae', '#f283c4', '#dfbd4a', '#5bc3ee', '#a7b0c0', '#b3d76b'],
};

/**
 * @typedef {{dark: boolean, text: string, muted: string, warning: string, grid: string, border: string, background: string,
 *            font: string, palette: string[]}} Theme
 */

/**
 * @param {Element} element any element inside the component
 * @returns {Theme}
 */
export function readTheme(element) {
  const style = getComputedStyle(element);
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
 * Tell when the colours may be others: Streamlit swaps classes on the elements around, the browser its scheme.
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

/** A colour with the opacity `alpha`. */
export function faded(colour, alpha) {
  const [red, green, blue] = channels(colour);
  return `rgba(${red}, ${green}, ${blue}, ${alpha})`;
}

function lightness(colour) {
  const [red, green, blue] = channels(colour);
  return (0.299 * red + 0.587 * green + 0.114 * blue) / 255;
}

function channels(colour) {
  const hex = /^#([0-9a-f]{6}|[0-9a-f]{3})/i.exec(colour);
  if (hex) {
    const digits = hex[1].length === 3 ? [...hex[1]].map((digit) => digit + digit).join('') : hex[1];
    return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
  }
  const numbers = colour.match(/[\d.]+/g);
  return numbers && numbers.length >= 3 ? numbers.slice(0, 3).map(Number) : [128, 128, 128];
}
