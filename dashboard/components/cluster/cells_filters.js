/** Above the cells: a search, the states with their counts (which are also the legend), the runs, and the grouping. */

import { el, icon, setAttribute, setText } from '../elements/elements.js';
import { count } from '../elements/numbers.js';
import { COLOURS, counts, groupings, MEANING, RUN, SIGNS, shownOf, stateLabel } from './cells_model.js';

const MOST_RUNS = 12;

/** @typedef {import('./cells_model.js').Picture} Picture */

export class CellsFilters {
  _runsKey = '';
  _groupsKey = '';

  /** @param {import('./cells_model.js').Filter} filter changed in place @param {() => void} onChange */
  constructor(filter, onChange) {
    this._filter = filter;
    this._changed = () => {
      this._press();
      onChange();
    };
    this._search = el('input', {
      type: 'search',
      placeholder: 'Name, label, state or run',
      'aria-label': 'Filter nodes',
      value: filter.text,
    });
    this._search.value = filter.text;
    this._search.addEventListener('input', () => {
      filter.text = this._search.value;
      this._changed();
    });
    this._group = el('select', { 'aria-label': 'Group nodes by' });
    this._group.addEventListener('change', () => {
      filter.group = this._group.value;
      this._changed();
    });
    this._shown = el('span', { class: 'shown', role: 'status' });
    this._clear = el('button', {
      type: 'button',
      class: 'clear',
      text: 'Show all',
      hidden: true,
      onclick: () => this._clearAll(),
    });
    this._states = el('div', { class: 'chips states', role: 'group', 'aria-label': 'States' });
    this._runs = el('div', { class: 'chips runs', role: 'group', 'aria-label': 'Runs' });
    this.root = el(
      'div',
      { class: 'filters' },
      el(
        'div',
        { class: 'line' },
        el('span', { class: 'search' }, icon('search'), this._search),
        this._states,
        el('span', { class: 'space' }),
        this._shown,
        this._clear,
        this._group,
      ),
      this._runs,
    );
  }

  /** @param {import('./cells_model.js').Picture} picture */
  show(picture) {
    this.root.hidden = picture.nodes.length === 0;
    this._showStates(picture);
    this._showRuns(picture);
    this._showGroupings(groupings(picture));
    this._press();
  }

  /** How many nodes are shown of how many. @param {number} shown @param {number} all */
  tell(shown, all) {
    setText(this._shown, shownOf(shown, all));
    this._clear.hidden = !(this._filter.text || this._filter.states.length || this._filter.run);
  }

  /** @param {Picture} picture */
  _showStates(picture) {
    const totals = counts(picture);
    if (!this._states.childElementCount) {
      this._states.append(
        ...picture.states.map((state) => {
          const swatch = el('i', {
            class: `cell ${state.replace(' ', '-')} sample`,
            'aria-hidden': 'true',
            text: SIGNS[state],
          });
          return el(
            'button',
            {
              type: 'button',
              'data-state': state,
              title: MEANING[state],
              onclick: () => this._toggleState(state),
            },
            swatch,
            el('span', { text: stateLabel(state) }),
            el('b', {}),
          );
        }),
      );
    }
    [...this._states.children].forEach((chip, at) => {
      setText(chip.lastChild, count(totals[at]));
      chip.classList.toggle('none', totals[at] === 0);
    });
  }

  /** @param {Picture} picture */
  _showRuns(picture) {
    const devices = picture.runs.map(() => 0);
    for (const node of picture.nodes)
      for (const cell of node.cells) if (typeof cell[RUN] === 'number') devices[cell[RUN]] += 1;
    const key = JSON.stringify([picture.runs, devices]);
    if (key === this._runsKey) return;
    this._runsKey = key;
    const shown = picture.runs.slice(0, MOST_RUNS);
    /** @type {HTMLElement[]} */
    const chips = shown.map((run, at) =>
      el(
        'button',
        {
          type: 'button',
          'data-run': run.id,
          title: `${run.name}: ${run.state} on ${count(devices[at])} devices`,
          onclick: () => this._toggleRun(run.id),
        },
        el('i', {
          class: 'cell in-use run sample',
          style: `--run:var(--run-${run.colour % COLOURS});--busy:100%`,
          'aria-hidden': 'true',
        }),
        el('span', { text: run.name }),
        el('b', { text: count(devices[at]) }),
      ),
    );
    if (picture.runs.length > MOST_RUNS)
      chips.push(
        el('span', {
          class: 'shown',
          text: `and ${picture.runs.length - MOST_RUNS} more runs: search for their names`,
        }),
      );
    this._runs.replaceChildren(...chips);
    this._runs.hidden = !chips.length;
    if (this._filter.run && !picture.runs.some((run) => run.id === this._filter.run)) this._filter.run = null;
  }

  /** @param {string[]} names */
  _showGroupings(names) {
    const key = names.join('\n');
    if (key === this._groupsKey) return;
    this._groupsKey = key;
    if (this._filter.group && !names.includes(this._filter.group)) this._filter.group = '';
    const options = ['', ...names].map((name) =>
      el('option', { value: name, text: name ? `By ${name}` : 'No groups' }),
    );
    this._group.replaceChildren(...options);
    this._group.value = this._filter.group;
  }

  /** Show the nodes in that state alone. @param {string} state */
  only(state) {
    this._filter.states = [state];
    this._changed();
  }

  /** @param {string} state */
  _toggleState(state) {
    const { states } = this._filter;
    this._filter.states = states.includes(state) ? states.filter((other) => other !== state) : [...states, state];
    this._changed();
  }

  /** @param {string} run */
  _toggleRun(run) {
    this._filter.run = this._filter.run === run ? null : run;
    this._changed();
  }

  _clearAll() {
    Object.assign(this._filter, { text: '', states: [], run: null });
    this._search.value = '';
    this._changed();
  }

  _press() {
    for (const chip of this._states.querySelectorAll('button'))
      setAttribute(chip, 'aria-pressed', String(this._filter.states.includes(chip.dataset.state ?? '')));
    for (const chip of this._runs.querySelectorAll('button'))
      setAttribute(chip, 'aria-pressed', String(this._filter.run === chip.dataset.run));
  }
}
