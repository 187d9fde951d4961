/** The row above the charts: what is looked for, smoothing, axes; remembered by the browser. */

import { choice, el, icon, setText, toggle } from '../elements/elements.js';
import { STATUS_TEXT } from '../live/live_connection.js';

const REMEMBERED = 'rankzero.charts';
/** @type {[string, string, string][]} */
const AXES = [
  ['step', 'Step', 'Optimizer steps'],
  ['time', 'Time', 'Time spent training; pauses between attempts do not count'],
];
const DEFAULTS = { smoothing: 0.8, xAxis: 'step', logY: false };

/**
 * @typedef {'step'|'time'|'wall'|'samples'|'epoch'|'order'} XAxis
 *   'order' is that of logging, which a chart takes by itself where many points share a step
 * @typedef {{smoothing: number, xAxis: XAxis, logY: boolean, older: boolean}} Settings
 */

/** @returns {Settings} */
export function loadSettings() {
  let stored = {};
  try {
    stored = JSON.parse(localStorage.getItem(REMEMBERED) ?? '{}');
  } catch {
    // Private windows may have no storage.
  }
  const { smoothing, xAxis, logY } = { ...DEFAULTS, ...stored };
  return {
    smoothing: Number.isFinite(smoothing) ? Math.min(0.999, Math.max(0, smoothing)) : DEFAULTS.smoothing,
    xAxis: xAxis === 'time' ? 'time' : 'step',
    logY: logY === true,
    older: false,
  };
}

/**
 * @param {Settings} settings changed in place
 * @param {{onFilter: (query: string) => void, onStructure: () => void, onOlder: () => void, onSmoothing: ()
 *   => void}} listeners
 * @param {[string, string, string][]} axes value, text, explanation
 * @param {string} query what is looked for at first
 */
export function createToolbar(settings, listeners, axes = AXES, query = '') {
  const restructured = () => {
    remember(settings);
    listeners.onStructure();
  };
  const older = toggle(
    'Replaced points',
    'Show points replaced by newer attempts or script restarts, dashed',
    settings.older,
    (on) => {
      settings.older = on;
      listeners.onOlder();
    },
  );
  older.hidden = true;
  const smoothing = smoothingSlider(settings, () => {
    remember(settings);
    listeners.onSmoothing();
  });
  const status = el('span', { class: 'status', role: 'status' });
  const element = el(
    'div',
    { class: 'toolbar' },
    filterBox(query, listeners.onFilter),
    status,
    el('span', { class: 'space' }),
    smoothing,
    choice('Horizontal axis', axes, settings.xAxis, (value) => {
      settings.xAxis = /** @type {Settings['xAxis']} */ (value);
      restructured();
    }),
    toggle('Log scale', 'Logarithmic vertical axis', settings.logY, (on) => {
      settings.logY = on;
      restructured();
    }),
    older,
  );
  return {
    element,
    /** @param {boolean} shown */
    showOlder: (shown) => {
      older.hidden = !shown;
    },
    /** Its place is kept while no chart has enough points to be smoothed. */
    showSmoothing: (/** @type {boolean} */ isOffered) => {
      smoothing.style.visibility = isOffered ? '' : 'hidden';
    },
    /** @param {import('../live/live_connection.js').Status} value */
    showStatus: (value) => {
      setText(status, STATUS_TEXT[value] ?? '');
    },
  };
}

/** @param {string} query @param {(query: string) => void} onFilter */
function filterBox(query, onFilter) {
  const input = el('input', {
    type: 'search',
    placeholder: 'Filter charts',
    value: query,
    'aria-label': 'Filter charts by name',
  });
  input.addEventListener('input', () => onFilter(input.value.trim()));
  return el('label', { class: 'filter' }, icon('search'), input);
}

/** @param {Settings} settings @param {() => void} onChange */
function smoothingSlider(settings, onChange) {
  const value = el('output', { class: 'amount', text: settings.smoothing.toFixed(2) });
  const input = el('input', {
    type: 'range',
    min: 0,
    max: 0.99,
    step: 0.01,
    value: settings.smoothing,
    'aria-label': 'Smoothing',
  });
  input.addEventListener('input', () => {
    settings.smoothing = Number(input.value);
    setText(value, settings.smoothing.toFixed(2));
    onChange();
  });
  const title = 'Exponential moving average; the logged values stay visible behind it';
  return el('label', { class: 'smoothing', title }, el('span', { text: 'Smoothing' }), input, value);
}

/** @param {Settings} settings */
function remember({ smoothing, xAxis, logY }) {
  try {
    localStorage.setItem(REMEMBERED, JSON.stringify({ smoothing, xAxis, logY }));
  } catch {
    // Then the next page starts with the defaults.
  }
}
