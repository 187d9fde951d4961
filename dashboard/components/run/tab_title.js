/** The browser's tab of a run: its state in the title and in the icon, also while another tab is in front. */

import { el } from '../elements/elements.js';
import PALETTE from '../elements/palette.json' with { type: 'json' };
import { GRAVE, LIVE, MARKS, TONES } from '../elements/run_states.js';

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

/** `● 42 % name`, `! hung name`, `✕ failed name`. @param {import('../server/documents.js').Run} run */
function titleOf(run) {
  return `${markOf(run)} ${run.name || run.id} – Rankzero`;
}

/** @param {import('../server/documents.js').Run} run */
function markOf(run) {
  if (needsAttention(run)) return `! ${run.attention}`;
  if (run.state === 'running') {
    return typeof run.progress === 'number' ? `● ${Math.floor(run.progress * 100)} %` : '●';
  }
  return run.state === 'succeeded' ? '✓' : `${MARKS[run.state] ?? ''} ${run.state}`;
}

/** @param {import('../server/documents.js').Run} run */
function needsAttention(run) {
  return Boolean(run.attention) && LIVE.has(run.state);
}

/** A disc in the state's tone with its white mark on it. @param {import('../server/documents.js').Run} run */
function iconOf(run) {
  const isWrong = needsAttention(run);
  const wrong = GRAVE.has(run.attention ?? '') ? 'red' : 'orange';
  const tone = isWrong ? wrong : TONES[/** @type {keyof typeof TONES} */ (run.state)];
  const text =
    '<text x="16" y="23" font-family="sans-serif" font-size="20" font-weight="700" text-anchor="middle" ' +
    `fill="#fff">${isWrong ? '!' : MARKS[run.state]}</text>`;
  const circle = `<circle cx="16" cy="16" r="15" fill="${PALETTE.tones[tone]}"/>`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${circle}${text}</svg>`;
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
