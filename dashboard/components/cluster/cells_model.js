/** The view model of the cluster: matching nodes, groups, and texts of cells. Pure. */

import { count, size } from '../elements/numbers.js';

/**
 * Positions in a cell: [state, run, rank, utilisation in percent, bytes used]; unknown values at the end are
 * missing.
 */
export const STATE = 0;
export const RUN = 1;
export const RANK = 2;
export const PERCENT = 3;
const USED = 4;

/** Colours that runs take turns with; the same as the charts have. */
export const COLOURS = 8;

/**
 * @typedef {{id: string, name: string, state: string, draining: boolean, upgrade: boolean,
 *   quarantine: boolean, address: string, labels: Record<string, string>, kinds: string, noun: string,
 *   memory: number|null, load: number[]|null, more: number, cells: any[][]}} Node
 * @typedef {{summary: string, states: string[], nodes: Node[], runsKey: string, runs: {id: string, name:
 *   string, state: string, colour: number}[], notices: {node?: string, state?: string, name: string, text:
 *   string}[]}} Picture
 * @typedef {{text: string, states: string[], run: string|null, group: string}} Filter
 */

/** @returns {Filter} everything, ungrouped */
export const everything = () => ({ text: '', states: [], run: null, group: '' });

/**
 * The nodes that contain every word of the filter: in the name, address, labels (`rack=b2`), state, devices
 * or runs of a node.
 */
export function matching(/** @type {Picture} */ picture, /** @type {Filter} */ filter) {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const states = new Set(filter.states.map((state) => picture.states.indexOf(state)));
  const run = filter.run === null ? -1 : picture.runs.findIndex(({ id }) => id === filter.run);
  return picture.nodes.filter((node) => {
    if (states.size && !node.cells.some((cell) => states.has(cell[STATE]))) return false;
    if (filter.run !== null && !node.cells.some((cell) => cell[RUN] === run)) return false;
    if (!words.length) return true;
    const haystack = wordsOf(picture, node);
    return words.every((word) => haystack.includes(word));
  });
}

/** @param {Picture} picture @param {Node} node */
function wordsOf(picture, node) {
  const labels = Object.entries(node.labels).map(([key, value]) => `${key}=${value}`);
  const runs = runsOn(picture, node).flatMap((run) => [run.name, run.id]);
  const states = [stateLabel(node.state), node.state, ...marksOf(node)];
  return [node.name, node.address, node.kinds, ...labels, ...states, ...runs].join('\n').toLowerCase();
}

/**
 * The runs that have devices of a node, in the order of its devices.
 * @param {Picture} picture
 * @param {Node} node
 */
function runsOn(picture, node) {
  const places = new Set(node.cells.map((cell) => cell[RUN]).filter((run) => run !== null && run !== undefined));
  return [...places].map((place) => picture.runs[place]);
}

/** The properties by which nodes can be grouped: state, and every label of any node. */
export function groupings(/** @type {Picture} */ picture) {
  const labels = new Set(picture.nodes.flatMap((node) => Object.keys(node.labels)));
  return ['state', ...[...labels].sort()];
}

/**
 * @param {Node[]} nodes
 * @param {string} group '' for none, 'state', or a label's name
 * @returns {[string, Node[]][]} titles and their nodes
 */
export function grouped(nodes, group) {
  if (!group) return [['', nodes]];
  /** @type {Map<string, Node[]>} */
  const groups = new Map();
  for (const node of nodes) {
    const title = group === 'state' ? stateLabel(standing(node)) : node.labels[group];
    const heading = title === undefined ? `no ${group}` : group === 'state' ? title : `${group} ${title}`;
    groups.set(heading, [...(groups.get(heading) ?? []), node]);
  }
  const byNumber = new Intl.Collator(undefined, { numeric: true });
  /** @param {string} title */
  const isNone = (title) => title === `no ${group}`;
  return [...groups].sort(([a], [b]) => Number(isNone(a)) - Number(isNone(b)) || byNumber.compare(a, b));
}

/** The state that marks a node on the page; an online node may be draining or waiting for an upgrade. */
export function standing(/** @type {Node} */ node) {
  return node.state === 'alive' ? (marksOf(node)[0] ?? node.state) : node.state;
}

/** What keeps new runs from an online node, the most important first. @returns {string[]} */
function marksOf(/** @type {Node} */ node) {
  const marks = [];
  if (node.quarantine) marks.push('quarantine');
  if (node.upgrade) marks.push('to upgrade');
  if (node.draining) marks.push('draining');
  return marks;
}

/** How many devices are in each state. */
export function counts(/** @type {Picture} */ picture, nodes = picture.nodes) {
  const totals = picture.states.map(() => 0);
  for (const node of nodes) for (const cell of node.cells) totals[cell[STATE]] += 1;
  return totals;
}

/**
 * A node's description for screen readers: "gpu-7: online, 3 free, 5 in use; runs small GPT".
 * @param {Picture} picture
 * @param {Node} node
 */
export function spoken(picture, node) {
  const totals = counts(picture, [node]);
  const parts = picture.states
    .map((state, at) => (totals[at] ? `${totals[at]} ${stateLabel(state)}` : ''))
    .filter(Boolean);
  const runs = runsOn(picture, node).map((run) => run.name);
  const state = [node.state, ...marksOf(node)].map(stateLabel).join(', ');
  return `${node.name}: ${state}, ${parts.join(', ') || 'no devices'}${runs.length ? `; runs ${runs.join(', ')}` : ''}`;
}

/**
 * The lines of a cell's tooltip; the first is its title.
 * @param {Picture} picture
 * @param {Node} node
 * @param {number} place
 */
export function lines(picture, node, place) {
  const cell = node.cells[place];
  const run = picture.runs[cell[RUN]];
  const texts = [`${node.name} · ${node.noun} ${place}`];
  if (run) texts.push(cell[RANK] === null ? run.name : `${run.name} · rank ${cell[RANK]}`);
  const state = picture.states[cell[STATE]];
  if (state !== 'in use') texts.push(MEANING[state]);
  else texts.push(run ? run.state : 'in use by a private run');
  const load = [];
  if (typeof cell[PERCENT] === 'number') load.push(`${cell[PERCENT]} % busy`);
  if (typeof cell[USED] === 'number') load.push(`${size(cell[USED])}${node.memory ? ` of ${size(node.memory)}` : ''}`);
  if (load.length) texts.push(load.join(' · '));
  if (run) texts.push('Click to open the run');
  return texts;
}

/** The sign of each state, shown beside its colour. @type {Record<string, string>} */
export const SIGNS = { lost: '✕', 'no contact': '?', draining: '↓', 'to upgrade': '↑', quarantine: '!' };

/** @type {Record<string, string>} */
const STATE_LABELS = { alive: 'online', foreign: 'used by others', quarantine: 'in quarantine' };

/** A state as shown on the page; the JSON keeps its own names. */
export const stateLabel = (/** @type {string} */ state) => STATE_LABELS[state] ?? state;

/** @type {Record<string, string>} */
export const MEANING = {
  free: 'free',
  'in use': 'in use',
  foreign: 'used by processes outside of Rankzero',
  draining: 'free, but nothing new starts on its node',
  'to upgrade': 'free, but nothing new starts there until its worker and this dashboard have the same version',
  quarantine: 'left out: it failed, and nothing new starts there until a test passes or it is released',
  'no contact': 'no contact with its node; runs there may continue',
  lost: 'its node is lost',
};

/** "12 of 212 nodes", where a filter is set. @param {number} shown @param {number} all */
export function shownOf(shown, all) {
  return shown === all ? '' : `${count(shown)} of ${count(all)} nodes`;
}
