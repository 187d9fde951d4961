/** What the table of runs shows instead of rows: why there is none, and what to do about it. */

import { el, icon } from '../elements/elements.js';
import { pageUrl } from '../links/links.js';

/** @typedef {'calm'|'unmatched'|'unlaunched'|'looking'|'awaited'|'first'} Emptiness */

/**
 * What an empty list says; `isPart`: there may be runs that it leaves out.
 * @type {Record<Emptiness, {title?: string, sentence: string, launch?: string, isPart?: boolean}>}
 */
const ADVICE = {
  calm: { sentence: 'No run needs attention.', isPart: true },
  unmatched: { sentence: 'No run matches these filters.', isPart: true },
  unlaunched: {
    title: 'No runs of yours yet',
    sentence: 'You have not launched a run yet. Those that you launch appear here.',
    launch: 'Launch your first run',
    isPart: true,
  },
  looking: {
    title: 'No runs of yours',
    sentence:
      'You have not launched a run. As a viewer you follow, search and compare those of others; to launch, ' +
      'ask an admin for the role member.',
    isPart: true,
  },
  awaited: {
    title: 'No runs yet',
    sentence: 'The runs of your projects appear here once someone launches one.',
  },
  first: {
    title: 'No runs yet',
    sentence:
      'Launch a recipe or your own script. It trains on the connected nodes, and its loss appears here from the ' +
      'first step on.',
    launch: 'Launch the first run',
  },
};

/**
 * Why no run is shown.
 * @param {Record<string, any>} filters
 * @param {boolean} isOfAttention
 * @param {boolean} isFiltered
 * @returns {Emptiness}
 */
export function emptiness({ has_launched, may_launch }, isOfAttention, isFiltered) {
  if (isOfAttention) return 'calm';
  if (has_launched === false) return may_launch === false ? 'looking' : 'unlaunched';
  if (isFiltered) return 'unmatched';
  return may_launch === false ? 'awaited' : 'first';
}

/**
 * The sentences and buttons for it.
 * @param {Emptiness} kind
 * @param {() => void} onShowAll
 */
export function advice(kind, onShowAll) {
  const { title, sentence, launch, isPart } = ADVICE[kind];
  const link = () =>
    el('a', { class: 'primary', href: pageUrl('launch') }, icon('launch'), el('span', { text: launch }));
  return [
    ...(title ? [el('h2', { text: title })] : []),
    el('p', { text: sentence }),
    ...(launch ? [link()] : []),
    ...(isPart ? [el('button', { type: 'button', text: 'Show all runs', onclick: onShowAll })] : []),
  ];
}
