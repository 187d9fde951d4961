/** The page of a comparison: one legend, the charts of all runs, and what differs between them. */

import { choose, chosen, keepSelection } from '../elements/address.js';
import { el, mountOnce, setAttribute, setText } from '../elements/elements.js';
import { plural } from '../elements/numbers.js';
import { readTheme, runColour, watchTheme } from '../elements/theme.js';
import { CompareTable } from './compare_table.js';
import { ComparedCharts } from './compared_charts.js';
import { Comparison, isLive } from './comparison.js';
import { FieldPlots } from './field_plots.js';
import { Pivot } from './pivot.js';

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new Compare(first));

/**
 * @typedef {{key: string, runs: string[], item: HTMLElement, swatch: HTMLElement, state: HTMLElement}} Item
 */

class Compare {
  /** @type {Item[]} */
  _items = [];

  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    /** @type {import('./comparison.js').ComparedRun[]} */
    this._runs = component.data.runs;
    this._comparison = new Comparison(this._runs);
    const known = new Set(this._runs.map((run) => run.id));
    this._comparison.hidden = new Set((chosen('hide') ?? '').split(',').filter((id) => known.has(id)));
    this._legend = el('div', { class: 'runs-legend', role: 'group', 'aria-label': 'Runs' });
    this._charts = el('div', {});
    // The legend stays in view over the charts, and leaves with them.
    this._bar = el('div', { class: 'runs-bar' }, this._legend);
    this._root = el('div', { class: 'compare' }, el('div', {}, this._bar, this._charts));
    component.parentElement.append(this._root);
    this._theme = readTheme(this._root);
    this._showLegend();
    this._live = new ComparedCharts(this._charts, this._comparison, (run) => this._showHighlighted(run));
    this._plots = new FieldPlots(this._root, {
      runs: this._runs,
      theme: () => this._theme,
      itemOf: (run) => this._comparison.itemOf(run),
      isHidden: (run) => this._comparison.hidden.has(run),
      onPoint: (key) => this._live.charts.highlight(key),
    });
    this._table = new CompareTable(this._root, this._runs, {
      theme: () => this._theme,
      colourOf: (run) => this._comparison.colours.get(run) ?? 0,
      onPoint: (run) => this._live.charts.highlight(run),
      onMissing: (run) => this._showState(run, 'deleted'),
      onGroups: (groups) => this._regroup(groups),
      onDocument: (document) => this._showFields(document),
    });
    this._pivot = new Pivot(this._root);
    this._bar.append(this._table.grouping);
    /** @param {MouseEvent} event */
    const choosing = (event) => this._choosing(event);
    document.addEventListener('click', choosing, { capture: true });
    this._endings = [
      () => document.removeEventListener('click', choosing, { capture: true }),
      this._comparison.on('state', ({ id, state }) => this._showState(id, state)),
      this._comparison.on('series', () => this._table.start()),
      watchTheme(this._root, () => this._paint()),
    ];
    this._paint();
  }

  refresh() {
    this._live.charts.refresh();
    this._paint();
  }

  destroy() {
    for (const end of this._endings) end();
    this._table.destroy();
    this._plots.destroy();
    this._live.charts.destroy();
    this._root.remove();
  }

  /** Choose runs* opens the Runs page with these selected. @param {MouseEvent} event */
  _choosing(event) {
    const link = event.composedPath().find((part) => part instanceof HTMLAnchorElement);
    if (link && new URL(link.href).searchParams.has('choose')) keepSelection(this._runs.map((run) => run.id));
  }

  /** @param {import('../server/documents.js').Comparison} document */
  _showFields(document) {
    this._live.setBaseline(document.baseline, document.baseline_name);
    this._plots.show(document);
    this._pivot.show(document);
  }

  /**
   * The mean of each group is drawn, or every run by itself.
   * @param {import('./grouping.js').Group[]|null} groups
   */
  _regroup(groups) {
    if (JSON.stringify(groups) === JSON.stringify(this._comparison.groups)) return;
    this._comparison.groups = groups;
    this._showLegend();
    this._paint();
    this._live.charts.highlight(null);
    this._live.charts.rebuild();
  }

  _showLegend() {
    const { groups, hidden } = this._comparison;
    this._items = groups
      ? groups.map((group) => this._item(group))
      : this._runs.map((run) => this._item({ key: run.id, label: run.name || run.id, runs: [run.id] }));
    this._legend.replaceChildren(...this._items.map(({ item }) => item));
    setAttribute(this._legend, 'aria-label', groups ? 'Groups' : 'Runs');
    for (const { runs, item } of this._items)
      setAttribute(item, 'aria-pressed', String(runs.some((id) => !hidden.has(id))));
  }

  /**
   * A run or a group in the legend: pointing at it highlights it in all charts, a click hides or shows it.
   * @param {{key: string, label: string, runs: string[]}} member
   * @returns {Item}
   */
  _item({ key, label, runs }) {
    const swatch = el('i', {});
    const state = el('small', {});
    const item = el(
      'button',
      {
        type: 'button',
        title: [label, ...runs.map((id) => `${this._nameOf(id)} (${id})`), 'Click to hide or show its curves'].join(
          '\n',
        ),
        onclick: () => this._toggle(runs),
        onpointerenter: () => this._live.charts.highlight(key),
        onpointerleave: () => this._live.charts.highlight(null),
        onfocus: () => this._live.charts.highlight(key),
        onblur: () => this._live.charts.highlight(null),
      },
      swatch,
      el('span', { text: label }),
      state,
    );
    setText(state, this._stateOf(runs));
    return { key, runs, item, swatch, state };
  }

  /** @param {string} id */
  _nameOf(id) {
    return this._runs.find((run) => run.id === id)?.name ?? '';
  }

  /** A run's state while it may still change, or how many runs a group has. @param {string[]} ids */
  _stateOf(ids) {
    if (this._comparison.groups) return plural(ids.length, 'run');
    const state = this._runs.find((run) => run.id === ids[0])?.state ?? '';
    return isLive(state) || state === 'deleted' ? state : '';
  }

  /** @param {string[]} ids */
  _toggle(ids) {
    const { hidden } = this._comparison;
    const isShown = ids.some((id) => !hidden.has(id));
    for (const id of ids)
      if (isShown) hidden.add(id);
      else hidden.delete(id);
    choose({ hide: [...hidden].join(',') });
    for (const { runs, item } of this._items)
      setAttribute(item, 'aria-pressed', String(runs.some((id) => !hidden.has(id))));
    this._live.charts.rebuild();
    this._plots.draw();
  }

  /** @param {string|null} shown */
  _showHighlighted(shown) {
    for (const { key, item } of this._items) item.classList.toggle('highlighted', key === shown);
    this._plots.highlight(shown);
  }

  /** @param {string} id @param {string} state */
  _showState(id, state) {
    const changed = this._runs.find((run) => run.id === id);
    if (!changed) return;
    changed.state = state;
    for (const item of this._items) if (item.runs.includes(id)) setText(item.state, this._stateOf(item.runs));
    this._table.stateChanged();
  }

  _paint() {
    this._theme = readTheme(this._root);
    for (const { runs, swatch } of this._items)
      swatch.style.background = runColour(this._comparison.itemOf(runs[0]).colour, this._theme);
    this._table.paint();
    this._plots.draw();
  }
}
