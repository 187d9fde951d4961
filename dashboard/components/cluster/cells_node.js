/**
 * One node of the cluster on the page: its name, a cell for each device, and its load where there is room.
 */

import { el, htmlIn, setAttribute, setText } from '../elements/elements.js';
import { PERCENT, RANK, RUN, SIGNS, STATE, spoken, standing } from './cells_model.js';

/** Colours that runs take turns with; the same as the charts have. */
export const COLOURS = 8;
/** More devices than this are drawn small. */
const MANY = 16;
const LOADS = ['CPU', 'memory', 'disk'];

/** @typedef {import('./cells_model.js').Picture} Picture */
/** @typedef {import('./cells_model.js').Node} Node */

export class NodeCells {
  _key = '';

  /** @param {import('./cells_model.js').Picture} picture @param {import('./cells_model.js').Node} node */
  constructor(picture, node) {
    this.node = node;
    this._name = el('span', { class: 'text' });
    this._mark = el('span', { class: 'mark', 'aria-hidden': 'true' });
    this.button = el('button', { type: 'button', class: 'name', tabindex: '-1' }, this._name, this._mark);
    this._about = el('span', { class: 'about' });
    this._strip = el('span', { class: 'strip', 'aria-hidden': 'true' });
    this._more = el('span', { class: 'more', hidden: true });
    this._loads = LOADS.map(() => el('i', {}));
    this._meters = el(
      'span',
      { class: 'meters' },
      ...this._loads.map((bar, at) =>
        el(
          'span',
          { class: 'meter' },
          el('span', { class: 'what', text: LOADS[at] }),
          el('span', { class: 'bar' }, bar),
        ),
      ),
    );
    this.root = el(
      'li',
      { class: 'node', 'data-node': node.id },
      el('span', { class: 'who' }, this.button, this._about),
      this._strip,
      this._more,
      this._meters,
    );
    this.show(picture, node);
  }

  /**
   * Put right what differs from what is shown: of a large cluster most nodes are as they were.
   * @param {Picture} picture
   * @param {Node} node
   */
  show(picture, node) {
    this.node = node;
    const key = JSON.stringify(node) + picture.runsKey;
    if (key === this._key) return;
    this._key = key;
    setText(this._name, node.name);
    setText(this._mark, SIGNS[standing(node)] ?? '');
    setAttribute(this._mark, 'class', `mark ${standing(node).replace(' ', '-')}`);
    setAttribute(this.button, 'aria-label', spoken(picture, node));
    setText(this._about, [node.kinds, node.address].filter(Boolean).join(' · '));
    while (this._strip.childElementCount > node.cells.length) this._strip.lastChild?.remove();
    while (this._strip.childElementCount < node.cells.length) this._strip.append(el('span', {}));
    this._strip.classList.toggle('many', node.cells.length > MANY);
    htmlIn(this._strip, 'span').forEach((element, at) => showCell(element, picture, node.cells[at]));
    this._more.hidden = !node.more;
    setText(this._more, node.more ? `+${node.more}` : '');
    this._meters.classList.toggle('unknown', !node.load);
    this._loads.forEach((bar, at) => showLoad(bar, LOADS[at], node.load?.[at] ?? 0));
  }

  /** Let the cells of one run stand out; null for none. @param {number|null} run */
  highlight(run) {
    this.node.cells.forEach((cell, at) =>
      this._strip.children[at].classList.toggle('other', run !== null && cell[RUN] !== run),
    );
  }
}

/** @param {HTMLElement} element @param {Picture} picture @param {any[]} cell */
function showCell(element, picture, cell) {
  const state = picture.states[cell[STATE]];
  const run = picture.runs[cell[RUN]];
  const key = `${state} ${run?.id} ${cell[RANK]} ${cell[PERCENT]}`;
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  element.className = `cell ${state.replace(' ', '-')}${run ? ' run' : ''}`;
  element.style.cssText = run ? `--run:var(--run-${run.colour % COLOURS});--busy:${cell[PERCENT] ?? 100}%` : '';
  element.textContent = state === 'in use' ? (cell[RANK] ?? '') : (SIGNS[state] ?? '');
}

/** @param {HTMLElement} bar @param {string} what @param {number} percent */
function showLoad(bar, what, percent) {
  bar.style.width = `${Math.min(100, percent)}%`;
  bar.classList.toggle('high', percent >= 90 && what !== 'CPU');
  const meter = bar.closest('.meter');
  if (meter) setAttribute(meter, 'title', `${what} ${percent} %`);
}
