/**
 * The views of the table of runs: the panel with those saved by name (a search, filters, columns and an order), and the
 * view shown, whose order is in the address, and whose columns this tab remembers as well.
 */

import { el, setText } from '../elements/elements.js';
import { Newest, sentenceOf } from '../server/request.js';
import { Panel } from './panel.js';

/**
 * @typedef {{name: string, filter: string, states: string[], project: string|null, columns: string[]|null,
 *   sort: string}} View
 */

export class SavedViews extends Panel {
  _name = el('input', {});
  _trouble = el('p', { class: 'wrong', role: 'status' });

  /** @param {() => Omit<View, 'name'>} current what the page shows @param {(view: View) => void} onChosen */
  constructor(current, onChosen) {
    super('Views', () => this._content());
    this._current = current;
    this._onChosen = onChosen;
    this._newest = new Newest();
    /** @type {View[]|null} */
    this._views = null;
  }

  /** @param {boolean} isOpen */
  open(isOpen) {
    super.open(isOpen);
    if (isOpen) void this._ask('GET', 'api/views');
  }

  _content() {
    this._name = el('input', {
      type: 'text',
      'aria-label': 'Name of this view',
      placeholder: 'Name',
      maxlength: 200,
      required: true,
    });
    setText(this._trouble, '');
    const lines = (this._views ?? []).map((view) =>
      el(
        'li',
        {},
        el('button', {
          type: 'button',
          class: 'view',
          text: view.name,
          title: wordsOf(view),
          onclick: () => {
            this.open(false);
            this._onChosen(view);
          },
        }),
        this._remove(view.name),
      ),
    );
    return [
      lines.length ? el('ul', {}, ...lines) : el('p', { text: this._views ? 'No view is saved yet.' : 'Loading…' }),
      el(
        'form',
        {
          onsubmit: (event) => {
            event.preventDefault();
            void this._save();
          },
        },
        this._name,
        el('button', { text: 'Save this view' }),
      ),
      this._trouble,
    ];
  }

  /** Deleting asks for a second click. @param {string} name */
  _remove(name) {
    const button = el('button', {
      type: 'button',
      text: '✕',
      'aria-label': `Delete view ${name}`,
      title: `Delete view ${name}`,
      onclick: () => {
        if (button.dataset.armed) void this._ask('DELETE', `api/views?${new URLSearchParams({ name })}`);
        button.dataset.armed = '1';
        setText(button, 'Delete?');
      },
    });
    return button;
  }

  async _save() {
    const view = { name: this._name.value.trim(), ...this._current() };
    await this._ask('PUT', 'api/views', view);
  }

  /** @param {'GET'|'PUT'|'DELETE'} method @param {string} path @param {object} [json] */
  async _ask(method, path, json) {
    try {
      const views = await this._newest.request(path, { method, json });
      if (!views) return;
      const typed = method === 'GET' ? this._name.value : ''; // while the list was loading
      this._views = views;
      this.rebuild('Name of this view');
      if (typed) this._name.value = typed;
    } catch (error) {
      setText(this._trouble, sentenceOf(error));
    }
  }
}

/** @param {Omit<View, 'name'>} view */
function wordsOf({ filter, states, project, columns, sort }) {
  const parts = [
    filter,
    states.join(', '),
    project && `project ${project}`,
    columns && `columns ${columns.join(', ')}`,
    sort && `sorted by ${sort}`,
  ];
  return parts.filter(Boolean).join(' · ') || 'All runs';
}

const KEPT = 'rankzero.view';

/**
 * As the address says; columns that it does not name are those that this tab had last.
 * @returns {{sort: string, columns: string[]|null, attention: boolean}}
 */
export function chosenAtFirst() {
  const address = new URLSearchParams(location.search);
  const attention = address.get('attention') === '1';
  if (address.has('sort') || address.has('column')) {
    return { sort: address.get('sort') ?? '', columns: listOf(address.getAll('column')), attention };
  }
  try {
    const { columns } = JSON.parse(sessionStorage.getItem(KEPT) ?? '{}');
    return { sort: '', columns: listOf(columns), attention };
  } catch {
    return { sort: '', columns: null, attention };
  }
}

/** @param {string[]|null} columns */
export function remember(columns) {
  sessionStorage.setItem(KEPT, JSON.stringify({ columns }));
}

/** @param {{attention: boolean, sort: string, columns: string[]|null}} chosen */
export function showInAddress({ attention, sort, columns }) {
  const url = new URL(location.href);
  url.searchParams.delete('attention');
  url.searchParams.delete('sort');
  url.searchParams.delete('column');
  if (attention) url.searchParams.set('attention', '1');
  if (sort) url.searchParams.set('sort', sort);
  for (const key of columns ?? []) url.searchParams.append('column', key);
  if (String(url.searchParams) !== String(new URL(location.href).searchParams))
    history.replaceState(history.state, '', url);
}

/** @param {unknown} columns @returns {string[]|null} */
function listOf(columns) {
  return Array.isArray(columns) && columns.length && columns.every((key) => typeof key === 'string')
    ? [...new Set(columns)]
    : null;
}
