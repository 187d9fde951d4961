/** The Nodes page's picture of the cluster: a cell for each device, filters, and a click that opens node or run. */

import { closestTo, connecting, el, htmlIn, mountOnce, setAttribute, setText } from '../elements/elements.js';
import { plural } from '../elements/numbers.js';
import { readTheme, watchTheme } from '../elements/theme.js';
import { go, pageUrl } from '../links/links.js';
import { askAtClick, Polling } from '../server/polling.js';
import { CellsFilters } from './cells_filters.js';
import {
  COLOURS,
  everything,
  grouped,
  lines,
  matching,
  PERCENT,
  RANK,
  RUN,
  SIGNS,
  STATE,
  spoken,
  standing,
} from './cells_model.js';

const ASKED_AGAIN_MS = 1100;
const KEPT = 'rankzero.nodes';
const MOST_NOTICES = 3;

/**
 * Update the selection without rebuilding the cells.
 * @param {import('../elements/elements.js').Component} component
 */
export const mount = (component) =>
  mountOnce(
    {
      data: null,
      parentElement: component.parentElement,
      setTriggerValue: component.setTriggerValue,
      selected: component.data.selected,
    },
    (first) => new Cells(first),
  );

/** @typedef {import('../elements/elements.js').Component} Component */
/** @typedef {import('./cells_model.js').Picture} Picture */
/** @typedef {import('./cells_model.js').Node} Node */

class Cells {
  /** @type {Map<string, NodeCells>} */
  _nodes = new Map();
  /** @type {Picture|null} */
  _picture = null;
  /** @type {string|null} */
  _selected = null;
  /** @type {number|null} the run that stands out, by its place */
  _highlighted = null;
  _allNotices = false;
  _noticesKey = '';
  _arranged = '';
  /** @type {(() => void)|undefined} */
  _leave;
  _summary = el('h2', { class: 'summary' }, connecting());
  _trouble = el('span', { class: 'trouble', role: 'status' });
  _notices = el('ul', { class: 'notices', 'aria-label': 'Needs attention', hidden: true });
  _grid = el('div', { class: 'grid', role: 'group', 'aria-label': 'Nodes' });
  _empty = el('p', { class: 'empty', hidden: true });
  _tip = el('div', { class: 'tip', role: 'tooltip', hidden: true });

  /** @param {Component} component */
  constructor(component) {
    this._component = component;
    this._filter = kept();
    this._filters = new CellsFilters(this._filter, () => this._filtered());
    this._root = this._build();
    this._polling = new Polling(
      this._root,
      this._trouble,
      () => 'api/cluster',
      (picture) => this._show(picture),
      () => this._root.getClientRects().length > 0 || !this._picture,
    );
    this._listen();
    this.refresh(component);
    component.parentElement.append(this._root);
    this._colour(readTheme(this._root));
    this._unwatch = watchTheme(this._root, (theme) => this._colour(theme));
    this._polling.askSoon(0);
  }

  /** @param {Component} component */
  refresh(component) {
    this._component = component;
    this._selected = component.selected ?? null;
    this._markSelected();
    this._polling.askSoon(ASKED_AGAIN_MS);
  }

  destroy() {
    this._polling.destroy();
    askAtClick(pageUrl('nodes'), 'api/cluster');
    this._leave?.();
    this._unwatch();
    this._root.remove();
  }

  _build() {
    return el(
      'section',
      { class: 'cells', 'aria-label': 'Cluster' },
      el('div', { class: 'head' }, this._summary, this._trouble),
      this._notices,
      this._filters.root,
      this._grid,
      this._empty,
      this._tip,
    );
  }

  _listen() {
    this._grid.addEventListener('click', (event) => this._clicked(event));
    this._grid.addEventListener('auxclick', (event) => {
      if (event.button === 1) this._clicked(event);
    });
    this._grid.addEventListener('keydown', (event) => this._moved(event));
    this._grid.addEventListener('focusin', (event) => this._focused(closestTo(event, '.name')));
    this._grid.addEventListener('pointerover', (event) => this._pointed(event));
    this._grid.addEventListener('pointerleave', () => this._pointed(null));
  }

  // ---- what is there

  /** @param {Picture|null} picture */
  _show(picture) {
    if (!picture) return;
    this._picture = picture;
    picture.runsKey = JSON.stringify(picture.runs);
    setText(this._summary, picture.summary);
    this._root.dataset.density = picture.nodes.length <= 10 ? 'wide' : picture.nodes.length <= 40 ? 'medium' : 'small';
    const widest = Math.max(1, ...picture.nodes.map((node) => node.cells.length));
    this._root.style.setProperty('--across', String(Math.min(8, widest)));
    const longest = Math.max(4, ...picture.nodes.map((node) => node.name.length));
    this._root.style.setProperty('--name', `${Math.min(20, longest) + 2.5}ch`);
    this._showNotices(picture.notices);
    this._filters.show(picture);
    this._arrange();
  }

  /** @param {Picture['notices']} notices */
  _showNotices(notices) {
    const key = JSON.stringify(notices);
    if (key === this._noticesKey) return;
    this._noticesKey = key;
    this._notices.hidden = !notices.length;
    const isAll = this._allNotices || notices.length <= MOST_NOTICES + 1;
    const shown = isAll ? notices : notices.slice(0, MOST_NOTICES);
    const items = shown.map(({ node, state, name, text }) => {
      const onclick = () => (node ? this._select(node) : this._filters.only(state ?? ''));
      return el('li', {}, el('button', { type: 'button', text: name, onclick }), el('span', { text }));
    });
    if (shown.length < notices.length) {
      const showAll = () => {
        this._allNotices = true;
        this._noticesKey = '';
        this._showNotices(notices);
      };
      items.push(
        el(
          'li',
          {},
          el('button', {
            type: 'button',
            text: `and ${notices.length - shown.length} more`,
            onclick: showAll,
          }),
        ),
      );
    }
    this._notices.replaceChildren(...items);
  }

  // ---- where it stands

  _filtered() {
    sessionStorage.setItem(KEPT, JSON.stringify(this._filter));
    if (this._picture) this._arrange();
  }

  /**
   * Elements are moved only when the nodes shown, or their groups, are others: an unchanged page costs
   * little.
   */
  _arrange() {
    const picture = this._picture;
    if (!picture) return;
    const matches = matching(picture, this._filter);
    const groups = grouped(matches, this._filter.group);
    for (const node of matches) {
      const existing = this._nodes.get(node.id);
      if (existing) existing.show(picture, node);
      else this._nodes.set(node.id, new NodeCells(picture, node));
    }
    const key = JSON.stringify(groups.map(([title, nodes]) => [title, nodes.map((node) => node.id)]));
    if (key !== this._arranged) {
      this._arranged = key;
      this._grid.replaceChildren(...groups.flatMap(([title, nodes]) => this._group(title, nodes)));
      const ids = new Set(picture.nodes.map((node) => node.id));
      for (const id of this._nodes.keys()) if (!ids.has(id)) this._nodes.delete(id);
      const [first] = htmlIn(this._grid, '.name');
      this._focused(htmlIn(this._grid, '.name[tabindex="0"]')[0] ?? first ?? null);
      this._markSelected();
    }
    this._filters.tell(matches.length, picture.nodes.length);
    this._empty.hidden = matches.length > 0;
    setText(this._empty, picture.nodes.length ? 'No node matches these filters.' : '“Add a node” above says how.');
    this._highlight(this._filter.run);
  }

  /** @param {string} title @param {Node[]} nodes */
  _group(title, nodes) {
    const list = el('ul', { class: 'nodes' }, ...nodes.flatMap((node) => this._nodes.get(node.id)?.root ?? []));
    if (!title) return [list];
    const devices = nodes.flatMap((node) => node.cells);
    const free = devices.filter((cell) => cell[STATE] === 0).length;
    setAttribute(list, 'aria-label', title);
    const about = el('span', {
      class: 'about',
      text: `${plural(nodes.length, 'node')}, ${free} of ${devices.length} free`,
    });
    return [el('h3', {}, el('span', { text: title }), about), list];
  }

  _markSelected() {
    for (const [id, { root, button }] of this._nodes) {
      root.classList.toggle('selected', id === this._selected);
      setAttribute(button, 'aria-pressed', id === this._selected ? 'true' : null);
    }
  }

  /** @param {string|null} runId */
  _highlight(runId) {
    const runs = this._picture?.runs ?? [];
    const run = runId === null ? null : runs.findIndex(({ id }) => id === runId);
    if (run === this._highlighted && run === null) return;
    this._highlighted = run;
    for (const cells of this._nodes.values()) cells.highlight(run);
  }

  // ---- what people do

  /** @param {MouseEvent} event */
  _clicked(event) {
    const at = this._cellAt(event);
    const run = at && this._picture?.runs[at.cell[RUN]];
    if (run) {
      const url = pageUrl(`run?id=${run.id}`);
      if (event.ctrlKey || event.metaKey || event.button === 1) window.open(url, '_blank', 'noopener');
      else this._leave = go(url);
      return;
    }
    const node = closestTo(event, '.node')?.dataset.node;
    if (node && event.button === 0) this._select(node === this._selected ? null : node);
  }

  /** @param {string|null} node */
  _select(node) {
    this._selected = node;
    this._markSelected();
    this._component.setTriggerValue?.('picked', node ?? '');
  }

  /**
   * Arrow keys go from node to node as they stand on the page; Tab leaves the picture.
   * @param {KeyboardEvent} event
   */
  _moved(event) {
    if (event.key === 'Escape' && this._selected) this._select(null);
    const own = closestTo(event, '.name');
    if (!own || !['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown', 'Home', 'End'].includes(event.key)) return;
    event.preventDefault();
    const next = neighbour(htmlIn(this._grid, '.name'), own, event.key);
    next?.focus();
    next?.scrollIntoView({ block: 'nearest' });
  }

  /** @param {HTMLElement|null} button */
  _focused(button) {
    if (!button) return;
    for (const other of htmlIn(this._grid, '.name[tabindex="0"]')) other.tabIndex = -1;
    button.tabIndex = 0;
  }

  /** @param {PointerEvent|null} event */
  _pointed(event) {
    const at = event && this._cellAt(event);
    const picture = this._picture;
    this._tip.hidden = !at;
    const run = at && picture?.runs[at.cell[RUN]];
    this._highlight(run ? run.id : this._filter.run);
    if (!at || !picture) return;
    this._tip.replaceChildren(...lines(picture, at.node, at.place).map((text) => el('div', { text })));
    const [cell, whole] = [at.element.getBoundingClientRect(), this._root.getBoundingClientRect()];
    const left = Math.min(cell.left - whole.left, whole.width - this._tip.offsetWidth - 4);
    const isLow = cell.bottom + this._tip.offsetHeight + 10 > window.innerHeight;
    const top = isLow ? cell.top - whole.top - this._tip.offsetHeight - 6 : cell.bottom - whole.top + 6;
    this._tip.style.transform = `translate(${Math.max(0, left)}px, ${top}px)`;
  }

  /** @param {Event} event */
  _cellAt(event) {
    const element = closestTo(event, '.cell');
    const node = this._nodes.get(closestTo(event, '.node')?.dataset.node ?? '')?.node;
    if (!node || !element?.parentElement) return null;
    const place = [...element.parentElement.children].indexOf(element);
    return { element, node, place, cell: node.cells[place] };
  }

  /** @param {import('../elements/theme.js').Theme} theme */
  _colour(theme) {
    theme.palette.forEach((colour, at) => this._root.style.setProperty(`--run-${at}`, colour));
    this._root.classList.toggle('dark', theme.dark);
  }
}

/**
 * The neighbouring button in the direction of the key.
 * @param {HTMLElement[]} all
 * @param {HTMLElement} own
 * @param {string} key
 * @returns {HTMLElement|undefined}
 */
function neighbour(all, own, key) {
  const at = all.indexOf(own);
  if (key === 'Home') return all[0];
  if (key === 'End') return all[all.length - 1];
  if (key === 'ArrowLeft') return all[at - 1];
  if (key === 'ArrowRight') return all[at + 1];
  const here = own.getBoundingClientRect();
  const beyond = all
    .map((button) => ({ button, box: button.getBoundingClientRect() }))
    .filter(({ box }) => (key === 'ArrowDown' ? box.top > here.top + 4 : box.top < here.top - 4));
  /** @param {{box: DOMRect}} one */
  const distance = ({ box }) => Math.abs(box.top - here.top) * 10 + Math.abs(box.left - here.left);
  return beyond.sort((a, b) => distance(a) - distance(b))[0]?.button;
}

/** The filter as this tab had it last. */
function kept() {
  try {
    return { ...everything(), ...JSON.parse(sessionStorage.getItem(KEPT) ?? '{}') };
  } catch {
    return everything();
  }
}

/** More devices than this are drawn small. */
const MANY = 16;
const LOADS = ['CPU', 'memory', 'disk'];

class NodeCells {
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
