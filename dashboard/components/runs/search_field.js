/** The search field of the Runs page: it proposes fields, values and series for the word at the cursor. */

import { closestTo, el, htmlIn, icon, mountOnce, setAttribute } from '../elements/elements.js';
import { Newest } from '../server/request.js';

const TYPING_MS = 250;
const PROPOSAL_MS = 100;

/** @typedef {{text: string, kind: string}} Proposal */

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) =>
  mountOnce(
    {
      data: null,
      parentElement: component.parentElement,
      setTriggerValue: component.setTriggerValue,
      search: component.data,
    },
    (first) => new SearchField(first),
  );

class SearchField {
  /** @type {Proposal[]} */
  _proposals = [];
  /** Where what a proposal replaces begins. */
  _start = 0;
  _at = -1;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  _typing;
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  _asking;
  /** @type {number|undefined} */
  _revision;

  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    this._component = component;
    const { hint, longest, text } = component.search ?? component.data;
    this._newest = new Newest();
    this._list = el('ul', { id: 'proposals', role: 'listbox', 'aria-label': 'Proposals', hidden: true });
    this._input = el('input', {
      type: 'search',
      role: 'combobox',
      'aria-label': 'Search',
      'aria-autocomplete': 'list',
      'aria-controls': 'proposals',
      'aria-expanded': 'false',
      autocomplete: 'off',
      spellcheck: 'false',
      maxlength: longest,
      placeholder: hint,
      oninput: () => this._changed(),
      onclick: () => this._askSoon(),
      onblur: () => this._close(),
      onkeydown: (event) => this._pressed(event),
    });
    this._input.value = text;
    this._sent = text;
    this._root = el('div', { class: 'search' }, icon('search'), this._input, this._list);
    // The field keeps the focus: a list that took it would close itself.
    this._list.addEventListener('pointerdown', (event) => event.preventDefault());
    this._list.addEventListener('click', (event) => {
      const option = closestTo(event, 'li');
      if (option) this._take(this._options().indexOf(option));
    });
    this._close();
    component.parentElement.append(this._root);
    this.refresh(component);
  }

  /**
   * What is being typed is newer than what the server has: its text counts only after it changed it itself.
   * @param {import('../elements/elements.js').Component} component
   */
  refresh(component) {
    this._component = component;
    const { text, revision } = component.search ?? component.data;
    if (this._revision !== undefined && revision !== this._revision) this._input.value = this._sent = text;
    this._revision = revision;
  }

  destroy() {
    clearTimeout(this._typing);
    this._close();
    this._root.remove();
  }

  _changed() {
    clearTimeout(this._typing);
    this._typing = setTimeout(() => this._send(), TYPING_MS);
    this._askSoon();
  }

  _send() {
    clearTimeout(this._typing);
    if (this._input.value === this._sent) return;
    this._sent = this._input.value;
    this._component.setTriggerValue?.('typed', { text: this._sent });
  }

  _askSoon() {
    clearTimeout(this._asking);
    this._asking = setTimeout(() => void this._ask(), PROPOSAL_MS);
  }

  async _ask() {
    const { value, selectionStart } = this._input;
    const before = value.slice(0, selectionStart ?? value.length);
    // The server counts characters, JavaScript UTF-16 units.
    const asked = new URLSearchParams({ filter: before, cursor: String([...before].length) });
    const completion = await this._newest.request(`api/search/completions?${asked}`).catch(() => undefined);
    if (completion === null || value !== this._input.value || selectionStart !== this._input.selectionStart) return;
    if (completion) this._show([...before].slice(0, completion.start).join('').length, completion.proposals);
    else this._close();
  }

  /** @param {number} start @param {Proposal[]} proposals */
  _show(start, proposals) {
    this._start = start;
    this._proposals = proposals;
    this._list.replaceChildren(
      ...proposals.map(({ text, kind }, at) =>
        el('li', { id: `proposal-${at}`, role: 'option' }, el('b', { text }), el('span', { text: kind })),
      ),
    );
    this._open(proposals.length > 0);
    this._mark(-1);
  }

  _close() {
    clearTimeout(this._asking);
    this._newest.end();
    this._open(false);
    this._mark(-1);
  }

  /** @param {boolean} isOpen */
  _open(isOpen) {
    this._list.hidden = !isOpen;
    setAttribute(this._input, 'aria-expanded', String(isOpen));
  }

  _options() {
    return htmlIn(this._list, 'li');
  }

  /** @param {number} at */
  _mark(at) {
    this._at = at;
    for (const [place, option] of this._options().entries())
      setAttribute(option, 'aria-selected', String(place === at));
    setAttribute(this._input, 'aria-activedescendant', at < 0 ? null : `proposal-${at}`);
    if (at >= 0) this._options()[at].scrollIntoView({ block: 'nearest' });
  }

  /** @param {KeyboardEvent} event */
  _pressed(event) {
    const count = this._list.hidden ? 0 : this._options().length;
    if (event.key === 'ArrowDown' && this._list.hidden) this._askSoon();
    else if (count && event.key === 'ArrowDown') this._mark((this._at + 1) % count);
    else if (count && event.key === 'ArrowUp') this._mark((this._at <= 0 ? count : this._at) - 1);
    else if (count && event.key === 'Escape') this._close();
    else if (count && this._at >= 0 && (event.key === 'Enter' || event.key === 'Tab')) this._take(this._at);
    else if (event.key === 'Enter') {
      this._close();
      this._send();
      return;
    } else return;
    event.preventDefault();
  }

  /** @param {number} at */
  _take(at) {
    const proposal = this._proposals[at];
    if (!proposal) return;
    const isWhole = !/[:<>=]$/.test(proposal.text);
    this._input.setRangeText(
      proposal.text + (isWhole ? ' ' : ''),
      this._start,
      this._input.selectionStart ?? this._input.value.length,
      'end',
    );
    this._input.focus();
    this._changed();
  }
}
