/** A run's start: one bar per node, divided into its phases, on one axis of seconds since the request. */

import { el, mountOnce, setText } from '../elements/elements.js';
import { timeSpan } from '../elements/numbers.js';

const NAMED_FROM = 0.09;

/**
 * Draw again with new phases under the same title.
 * @param {import('../elements/elements.js').Component} component
 */
export const mount = (component) =>
  mountOnce(
    { data: null, parentElement: component.parentElement, start: component.data },
    (first) => new Timeline(first),
  );

/**
 * @typedef {{name: string, at: number, seconds: number, colour: number, inner: boolean, in_progress:
 *   boolean}} Phase
 */
/** @typedef {{name: string, phases: Phase[]}} Node */
/**
 * @typedef {{columns: string[], rows: {name: string, colour: number, cells: string[], slow: number|null}[]}}
 *   Table
 */

class Timeline {
  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    this._title = el('p', { class: 'title', role: 'status' });
    this._bars = el('div', { class: 'bars' });
    this._table = el('div', { class: 'scroll' });
    this._root = el('section', { class: 'timeline', 'aria-label': 'Start' }, this._title, this._bars, this._table);
    component.parentElement.append(this._root);
    this.refresh(component);
  }

  /** @param {import('../elements/elements.js').Component} component */
  refresh({ start }) {
    if (!start) return;
    const nodes = /** @type {Node[]} */ (start.nodes);
    setText(this._title, start.title);
    const whole = Math.max(0.001, ...nodes.flatMap(({ phases }) => phases.map((phase) => phase.at + phase.seconds)));
    this._bars.replaceChildren(...nodes.map((node) => bar(node, whole)));
    this._table.replaceChildren(table(start));
  }

  destroy() {
    this._root.remove();
  }
}

/** @param {Node} node @param {number} whole seconds */
function bar({ name, phases }, whole) {
  const parts = phases.map((phase) => {
    const share = phase.seconds / whole;
    const part = el('span', {
      class: `part ${phase.inner ? 'inner' : ''} ${phase.in_progress ? 'in-progress' : ''}`,
      style: `left:${(100 * phase.at) / whole}%;width:${100 * share}%;--hue:var(--c${phase.colour})`,
      title: `${name} · ${phase.name}: ${timeSpan(phase.seconds)}${phase.in_progress ? ' so far' : ''}`,
    });
    if (share >= NAMED_FROM) part.append(el('span', { class: 'name', text: phase.name }));
    return part;
  });
  return el('div', { class: 'node' }, el('b', { text: name }), el('span', { class: 'track' }, ...parts));
}

/** @param {Table} start */
function table({ columns, rows }) {
  const head = el('tr', {}, ...columns.map((text) => el('th', { scope: 'col', text })));
  const lines = rows.map(({ name, colour, cells, slow }) =>
    el(
      'tr',
      {},
      el(
        'th',
        { scope: 'row' },
        el('i', { class: 'swatch', style: `--hue:var(--c${colour})` }),
        el('span', { text: name }),
      ),
      ...cells.map((text, at) => el('td', { class: at === slow ? 'slow' : '', text })),
    ),
  );
  return el('table', {}, el('thead', {}, head), el('tbody', {}, ...lines));
}
