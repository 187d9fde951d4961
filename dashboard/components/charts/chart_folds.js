/** The groups of charts: which stand open, and what a person chose about it. */

import { el, keepChildren, setText } from '../elements/elements.js';
import { count } from '../elements/numbers.js';
import { groupTitle, isStandIn } from './chart_groups.js';

/** With more charts than these only the first group is open from the start. */
const FEW_CHARTS = 8;

export class Folds {
  /**
   * @param {Map<string, any>} kept what outlives a visit to another tab
   * @param {() => void} onToggle
   */
  constructor(kept, onToggle) {
    if (!kept.has('folds')) kept.set('folds', new Map());
    /** @type {Map<string, boolean>} */
    this._chosen = kept.get('folds');
    /** @type {Map<string, boolean>} */
    this._decided = new Map();
    /** @type {Map<string, {fold: HTMLDetailsElement, grid: HTMLElement, title: HTMLElement}>} */
    this._folds = new Map();
    this._onToggle = onToggle;
  }

  /** All groups are placed anew, in order. @param {number} charts @param {boolean} isSearched */
  begin(charts, isSearched) {
    this._isFirst = true;
    this._isMany = charts > FEW_CHARTS;
    this._isSearched = isSearched;
  }

  /**
   * Put cards into a group.
   * @param {string} group
   * @param {Element[]} cards
   * @returns {HTMLDetailsElement}
   */
  place(group, cards) {
    const shouldBeOpen = this._shouldBeOpen(group);
    // One that gives way to another is not moved down and closed: it goes, and a closed one is there instead.
    const placed = this.isOpen(group) && !shouldBeOpen ? undefined : this._folds.get(group);
    const { fold, grid, title } = placed ?? this._build(group);
    keepChildren(grid, cards);
    setText(title, count(cards.length));
    fold.open = shouldBeOpen;
    this._isFirst = false;
    return fold;
  }

  /** @param {string} group */
  isOpen(group) {
    return this._folds.get(group)?.fold.open ?? false;
  }

  /**
   * Whether a group is open: the user's choice, else the first group, and with few charts all that the script
   * logs.
   * @param {string} group
   */
  _shouldBeOpen(group) {
    if (this._isSearched) return true;
    const chosen = this._chosen.get(group);
    if (chosen !== undefined) return chosen;
    if (this._isFirst) return true;
    if (isStandIn(group)) return false;
    const decided = this._decided.get(group) ?? !this._isMany;
    this._decided.set(group, decided);
    return decided;
  }

  /** @param {string} group */
  _build(group) {
    const grid = el('div', { class: 'grid' });
    const title = el('span', { class: 'amount' });
    const summary = el('summary', {}, el('span', { text: groupTitle(group) }), title);
    const fold = el('details', { 'data-group': group }, summary, grid);
    summary.addEventListener('click', () => this._chosen.set(group, !fold.open));
    fold.addEventListener('toggle', () => this._onToggle());
    this._folds.set(group, { fold, grid, title });
    return { fold, grid, title };
  }
}
