/** A project in figures, and its activity: a column of runs for each week, by state, with its device-hours. */

import { el, mountOnce } from '../elements/elements.js';
import { count, number, plural } from '../elements/numbers.js';
import { follow, linkOf, pageUrl } from '../links/links.js';

/** The parts of a column from the bottom up, and the states of each. */
const PARTS = {
  succeeded: ['succeeded'],
  live: ['running', 'starting', 'stopping'],
  queued: ['queued'],
  stopped: ['stopped'],
  failed: ['failed'],
};

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new Project(first));

/**
 * @typedef {{label: string, value: string, more: string, address: string|null, name: string}} Figure
 * @typedef {{began_at: number, runs: Record<string, number>, device_hours: number}} Week
 */

class Project {
  _text = '';
  /** @type {(() => void)|undefined} */
  _leave;

  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    this._root = el('section', { class: 'project', 'aria-label': 'Project' });
    this._root.addEventListener('click', (event) => {
      const link = linkOf(event);
      if (link) this._leave = follow(event, link) ?? this._leave;
    });
    component.parentElement.append(this._root);
    this.refresh(component);
  }

  /** @param {import('../elements/elements.js').Component} component */
  refresh({ data }) {
    /** @type {{figures: Figure[], weeks: Week[]}} */
    const { figures, weeks } = data;
    const text = JSON.stringify(data);
    if (text === this._text) return; // a link keeps the focus while nothing changes
    this._text = text;
    this._root.replaceChildren(el('dl', {}, ...figures.map(figure)), activity(weeks));
  }

  destroy() {
    this._leave?.();
    this._root.remove();
  }
}

/** @param {Figure} figure */
function figure({ label, value, more, address, name }) {
  const link = address ? el('a', { href: pageUrl(address), text: name, title: name }) : null;
  return el(
    'div',
    {},
    el('dt', { text: label }),
    el('dd', { text: value }),
    el('dd', { class: 'more' }, link, el('span', { text: more })),
  );
}

/** @param {number[]} numbers */
const sum = (numbers) => numbers.reduce((total, each) => total + each, 0);
/** @param {Week} week @param {string[]} states */
const runsIn = (week, states) => sum(states.map((state) => week.runs[state] ?? 0));
/** @param {Week} week */
const all = (week) => sum(Object.values(week.runs));

/** @param {Week[]} weeks */
function activity(weeks) {
  const most = Math.max(1, ...weeks.map(all));
  const present = Object.entries(PARTS).filter(([, states]) => weeks.some((week) => runsIn(week, states)));
  return el(
    'figure',
    {},
    el(
      'figcaption',
      {},
      el('b', { text: 'Runs by week' }),
      ...present.map(([part]) => el('span', { class: part }, el('i'), el('span', { text: part }))),
    ),
    el('ol', {}, ...weeks.map((week) => column(week, most))),
  );
}

/** @param {Week} week @param {number} most runs of a week */
function column(week, most) {
  const present = Object.entries(PARTS)
    .map(([part, states]) => ({ part, runs: runsIn(week, states) }))
    .filter(({ runs }) => runs);
  const parts = present.map(({ part, runs }) => {
    const bar = el('i', { class: part });
    bar.style.height = `${(100 * runs) / most}%`;
    return bar;
  });
  const day = new Date(week.began_at * 1000).toLocaleDateString([], {
    day: 'numeric',
    month: 'short',
    timeZone: 'UTC',
  });
  const words = present.map(({ part, runs }) => `${count(runs)} ${part}`);
  const title = [
    `Week of ${day}: ${plural(all(week), 'run')}`,
    ...words,
    `${number(week.device_hours)} device-hours`,
  ].join('\n');
  return el(
    'li',
    { title },
    el('span', { class: 'runs', text: all(week) ? count(all(week)) : '' }),
    el('span', { class: 'bar' }, ...parts.reverse()),
    el('span', { class: 'day', text: day }),
    el('span', { class: 'hours', text: week.device_hours ? `${number(week.device_hours, 2)} h` : '' }),
  );
}
