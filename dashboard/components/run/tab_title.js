/** The browser's tab of a run: its state in the title and in the icon, also while another tab is in front. */

import { el } from '../elements/elements.js';
import { GRAVE, LIVE, MARKS } from '../elements/run_states.js';

/** @type {Record<string, string>} */
const COLOURS = {
  queued: '#7a8194',
  starting: '#2f6fd0',
  running: '#4549d6',
  stopping: '#b35900',
  succeeded: '#177233',
  failed: '#b3262b',
  stopped: '#6b7283',
};
/** @type {Record<string, string>} */
const IN_DISC = { succeeded: '✓', failed: '✕', stopped: '■', queued: '…' };
const GRAVE_COLOUR = '#b3262b';
const WARNING_COLOUR = '#b35900';

/**
 * Show a run in the tab's title and icon for as long as its page is open.
 * @param {import('../live/live_connection.js').LiveConnection} connection
 * @returns {() => void} puts the icon back
 */
export function showInTab(connection) {
  const before = iconLink()?.getAttribute('href') ?? null;
  const show = () => {
    const { run } = connection;
    if (!run) return;
    const title = titleOf(run);
    if (document.title !== title) document.title = title;
    setIcon(iconOf(run));
  };
  const endings = [connection.on('run', show)];
  const ticking = setInterval(show, 1000); // Streamlit writes both again when it runs the page
  show();
  return () => {
    for (const end of endings) end();
    clearInterval(ticking);
    if (before !== null) setIcon(before);
  };
}

/** `● 42 % name`, `! hung name`, `✕ failed name`. @param {any} run */
function titleOf(run) {
  return `${markOf(run)} ${run.name || run.id} – Rankzero`;
}

/** @param {any} run */
function markOf(run) {
  if (needsAttention(run)) return `! ${run.attention}`;
  if (run.state === 'running') {
    const isKnown = typeof run.progress === 'number';
    return isKnown ? `● ${Math.floor(run.progress * 100)} %` : '●';
  }
  return run.state === 'succeeded' ? '✓' : `${MARKS[run.state] ?? ''} ${run.state}`;
}

/** @param {any} run */
function needsAttention(run) {
  return Boolean(run.attention) && LIVE.has(run.state);
}

/** A disc in the state's colour with a white mark on it. @param {any} run */
function iconOf(run) {
  const isWrong = needsAttention(run);
  const colour = isWrong ? (GRAVE.has(run.attention) ? GRAVE_COLOUR : WARNING_COLOUR) : COLOURS[run.state];
  const mark = isWrong ? '!' : (IN_DISC[run.state] ?? '');
  const inner = run.state === 'running' && !isWrong ? '<circle cx="16" cy="16" r="6" fill="#fff"/>' : '';
  const text =
    mark &&
    '<text x="16" y="23" font-family="sans-serif" font-size="20" font-weight="700" text-anchor="middle" ' +
      `fill="#fff">${mark}</text>`;
  const circle = `<circle cx="16" cy="16" r="15" fill="${colour}"/>`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${circle}${inner}${text}</svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

function iconLink() {
  return document.querySelector('link[rel~="icon"]');
}

/** @param {string} href */
function setIcon(href) {
  const link = iconLink() ?? el('link', { rel: 'icon' });
  if (!link.isConnected) document.head.append(link);
  if (link.getAttribute('href') !== href) link.setAttribute('href', href);
}
