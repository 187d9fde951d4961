/** Which sections of charts are shown: a button each, above the one grid in which the charts of all of them stand. */

import { el, keepChildren, setAttribute, setText } from '../elements/elements.js';
import { count } from '../elements/numbers.js';
import { groupTitle, isOfScript, isStandIn } from './chart_groups.js';

/** With more charts than these, further sections are closed from the start. */
const FEW_CHARTS = 8;

export class ChartSections {
  element = el('div', { class: 'sections', role: 'group', 'aria-label': 'Sections' });
  /** @type {Map<string, {button: HTMLElement, amount: HTMLElement}>} */
  _buttons = new Map();
  /** @type {Map<string, boolean>} */
  _decided = new Map();
  /** @type {Set<string>} */
  _open = new Set();

  /**
   * @param {Map<string, any>} kept what outlives a visit to another tab
   * @param {() => void} onChoice
   */
  constructor(kept, onChoice) {
    if (!kept.has('sections')) kept.set('sections', new Map());
    /** @type {Map<string, boolean>} the user's choices */
    this._chosen = kept.get('sections');
    this._onChoice = onChoice;
  }

  /**
   * Offer these sections, and decide which are open.
   * @param {string[]} groups the section of each chart, in order
   * @param {boolean} isSearched
   */
  arrange(groups, isSearched) {
    const sections = [...new Set(groups)];
    const isFew = groups.length <= FEW_CHARTS;
    this._open = new Set(sections.filter((group, place) => isSearched || this._decide(group, place === 0, isFew)));
    keepChildren(
      this.element,
      sections.map((group) => this._shown(group, groups.filter((other) => other === group).length)),
    );
  }

  /** @param {string} group */
  isOpen(group) {
    return this._open.has(group);
  }

  /** What a card is labelled with, so that charts of the same title differ. @param {string} group */
  labelOf(group) {
    return this._open.size > 1 ? groupTitle(group) : '';
  }

  /**
   * Whether a section is open: the user's choice, else the first one, training and validation, and with few charts
   * all that the script logs.
   * @param {string} group
   * @param {boolean} isFirst
   * @param {boolean} isFew
   */
  _decide(group, isFirst, isFew) {
    const chosen = this._chosen.get(group);
    if (chosen !== undefined) return chosen;
    if (isFirst || isOfScript(group)) return true;
    if (isStandIn(group)) return false;
    const decided = this._decided.get(group) ?? isFew;
    this._decided.set(group, decided);
    return decided;
  }

  /** @param {string} group @param {number} charts */
  _shown(group, charts) {
    const { button, amount } = this._buttons.get(group) ?? this._build(group);
    setText(amount, count(charts));
    setAttribute(button, 'aria-pressed', String(this._open.has(group)));
    return button;
  }

  /** @param {string} group */
  _build(group) {
    const amount = el('span', { class: 'amount' });
    const press = () => {
      this._chosen.set(group, !this._open.has(group));
      this._onChoice();
    };
    const button = el('button', { type: 'button', onclick: press }, el('span', { text: groupTitle(group) }), amount);
    const built = { button, amount };
    this._buttons.set(group, built);
    return built;
  }
}
