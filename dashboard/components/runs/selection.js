/** The runs that are selected in the table, in that order, and what can be done to all of them at once; this tab remembers them. */

import { apiUrl } from '../live/live_connection.js';
import { el, icon, setAttribute, setText } from '../elements/elements.js';
import { runColour } from '../elements/theme.js';
import { follow, pageUrl } from '../links/following.js';

const KEPT = 'rankzero.selected';
const EXPORTS = { html: 'Report', csv: 'Points as CSV', parquet: 'Points as Parquet', json: 'Points as JSON', archive: 'Archive (zip)' };

export class Selection {
  /** @param {() => void} onSelected follows when other runs are selected @param {() => void} onChanged when a run of them is another */
  constructor(onSelected, onChanged) {
    /** @type {Set<string>} */
    this.ids = new Set(kept());
    this._onSelected = onSelected;
    this._onChanged = onChanged;
    this._count = el('b', {});
    this._compare = el('a', { class: 'compare', text: 'Compare', onclick: (event) => { event.stopPropagation(); this._leave = follow(event, this._compare) ?? this._leave; } });
    this._compare.prepend(icon('chart'));
    this._outcome = el('span', { role: 'status' });
    this._tag = el('input', { type: 'text', placeholder: 'Tag', 'aria-label': 'Tag', maxlength: 64, size: 12 });
    const tags = el('form', { onsubmit: (event) => { event.preventDefault(); this._tagAll('add_tags'); } },
      this._tag, el('button', { text: 'Add tag' }), el('button', { type: 'button', text: 'Remove tag', onclick: () => this._tagAll('remove_tags') }));
    this._format = el('select', { 'aria-label': 'Export as' }, ...Object.entries(EXPORTS).map(([value, text]) => el('option', { value, text })));
    this.root = el('div', { class: 'bulk', role: 'group', 'aria-label': 'Selected runs', hidden: true }, this._count, this._compare, this._format,
      el('button', { type: 'button', text: 'Download', onclick: () => void this._download(this._format.value) }), tags,
      this._button('Archive', false, 'archived', () => this._edit({ archived: true })),
      this._button('List again', false, 'listed again', () => this._edit({ archived: false })),
      this._button('Stop', true, 'asked to stop', () => ({ path: '/stop', method: 'POST' })),
      this._button('Delete', true, 'deleted', () => ({ path: '', method: 'DELETE' })),
      el('button', { type: 'button', text: 'Clear', onclick: () => this._clear() }), this._outcome);
    this._show();
  }

  destroy() {
    this._leave?.();
  }

  /** The colour of a run in the comparison of the selected ones; null where it is not selected. */
  colour(id, theme) {
    const position = [...this.ids].indexOf(id);
    return position < 0 ? null : runColour(position, theme);
  }

  toggle(id, isSelected) {
    if (isSelected) this.ids.add(id);
    else this.ids.delete(id);
    setText(this._outcome, '');
    this._show();
    this._onSelected();
  }

  _clear() {
    this.ids.clear();
    this._show();
    this._onSelected();
  }

  _show() {
    this.root.hidden = !this.ids.size && !this._outcome.textContent;
    sessionStorage.setItem(KEPT, JSON.stringify([...this.ids]));
    setText(this._count, `${this.ids.size} selected`);
    setAttribute(this._compare, 'href', this.ids.size > 1 ? pageUrl(`compare?runs=${[...this.ids].join(',')}`) : null);
    setAttribute(this._compare, 'title', this.ids.size > 1 ? null : 'Select another run to compare');
    for (const disarm of this._disarming ?? []) disarm();
  }

  /** A button; one that ends or deletes something asks for a second click. */
  _button(text, isGrave, done, request) {
    const button = el('button', { type: 'button', text, onclick: () => {
      if (!isGrave || button.dataset.armed) return void this._doAll(done, request());
      button.dataset.armed = '1';
      setText(button, `${text} ${this.ids.size} for good?`);
    } });
    const disarm = () => { delete button.dataset.armed; setText(button, text); };
    (this._disarming ??= []).push(disarm);
    return button;
  }

  /** Have the browser save the runs as one file, unless the server refuses: a download could not say why. */
  async _download(format) {
    const url = apiUrl(`api/export?runs=${[...this.ids].join(',')}&format=${format}`);
    const isAllowed = (await fetch(url, { method: 'HEAD' }).catch(() => null))?.ok;
    const refusal = isAllowed ? null : await fetch(url).then((answer) => answer.json()).catch(() => null);
    setText(this._outcome, isAllowed ? '' : refusal?.detail?.message ?? 'Rankzero does not answer.');
    if (isAllowed) el('a', { href: url, download: '' }).click();
  }

  _edit(change) {
    return { path: '', method: 'PATCH', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(change) };
  }

  _tagAll(field) {
    const tag = this._tag.value.trim();
    if (tag) void this._doAll(field === 'add_tags' ? `tagged ${tag}` : `no longer tagged ${tag}`, this._edit({ [field]: [tag] }));
  }

  /** One request after another, so that the server is not overrun; runs that refuse stay selected. */
  async _doAll(done, { path, ...options }) {
    const ids = [...this.ids];
    let succeeded = 0;
    let refusal = '';
    for (const [at, id] of ids.entries()) {
      setText(this._outcome, `${at + 1} of ${ids.length}…`);
      const answer = await fetch(apiUrl(`api/runs/${id}${path}`), options).catch(() => null);
      if (answer?.ok) {
        succeeded += 1;
        this.ids.delete(id);
      } else {
        const document = await answer?.json().catch(() => null);
        refusal = document?.detail?.message ?? 'Rankzero does not answer.';
      }
    }
    setText(this._outcome, [`${succeeded} ${done}.`, refusal].filter(Boolean).join(' '));
    this._show();
    this._onSelected();
    this._onChanged();
  }
}

/** The selection as this tab had it last. */
function kept() {
  try {
    const ids = JSON.parse(sessionStorage.getItem(KEPT) ?? '[]');
    return Array.isArray(ids) ? ids.filter((id) => /^[a-z0-9]+$/.test(id)) : [];
  } catch {
    return [];
  }
}
