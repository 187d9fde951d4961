/**
 * The columns of the table of runs: those it draws in its own way, and those that people add by the name of a field or
 * series.
 */

import { el, focusedIn } from '../elements/elements.js';
import { ago, change, count, duration, exact, fromJson, number, UNKNOWN } from '../elements/numbers.js';
import { Newest } from '../server/request.js';
import { Panel } from './panel.js';

/**
 * @typedef {{key: string, title: string, sort?: string, first?: number, isNumber?: boolean, rem?: number,
 *   isAdded?: boolean}} Column
 * `sort`: the field that the server sorts by; `first`: the direction of the first click; `rem`: the width
 * where columns are chosen.
 */

/** @typedef {{key: string, first: number}} Metric a column with the best value of a series */

const PICK = { key: 'pick', title: '', rem: 2 };
const NAME = { key: 'name', title: 'Name', first: 1, sort: 'name', rem: 16 };
/** @type {Column[]} */
const OWN = [
  { key: 'state', title: 'State', first: 1, sort: 'state', rem: 8.2 },
  NAME,
  { key: 'project', title: 'Project', first: 1, sort: 'project', rem: 7 },
  { key: 'by', title: 'By', first: 1, sort: 'by', rem: 5.5, isAdded: true },
  { key: 'progress', title: 'Progress', first: -1, sort: 'progress', rem: 8.5 },
  { key: 'step', title: 'Step', first: -1, isNumber: true, sort: 'step', rem: 5.2 },
  { key: 'loss', title: 'Loss', first: 1, isNumber: true, sort: 'loss', rem: 5.6 },
  { key: 'curve', title: 'Loss curve', rem: 8.2 },
  { key: 'throughput', title: 'Samples/s', first: -1, isNumber: true, sort: 'throughput', rem: 6.4 },
  { key: 'duration', title: 'Duration', first: -1, isNumber: true, sort: 'duration', rem: 6.2 },
  { key: 'started', title: 'Started', first: -1, isNumber: true, sort: 'created', rem: 7 },
  { key: 'note', title: 'Note', rem: 14 },
];
const MOST = 40;
export const DEFAULT_KEYS = OWN.map(({ key }) => key).filter((key) => key !== 'by');

/**
 * The usual columns where one person, or several, use the dashboard; those of metrics stand before the loss.
 * @param {boolean} hasPeople
 * @param {Metric[]} [metrics]
 */
export function usualKeys(hasPeople, metrics = []) {
  const keys = hasPeople ? OWN.map(({ key }) => key) : DEFAULT_KEYS;
  const at = keys.indexOf('loss');
  return [...keys.slice(0, at), ...metrics.map(({ key }) => key), ...keys.slice(at)];
}

/**
 * The columns of these keys after the box for selecting; the name, which is the link, is always among them.
 * @param {string[]|null} keys
 * @param {Metric[]} [metrics] whose heads sort the best first
 * @returns {Column[]}
 */
export function columnsOf(keys, metrics = []) {
  const chosen = (keys ?? DEFAULT_KEYS).map(
    (key) => OWN.find((own) => own.key === key) ?? { ...added(key), ...metrics.find((metric) => metric.key === key) },
  );
  return [PICK, ...(chosen.includes(NAME) ? [] : [NAME]), ...chosen];
}

/**
 * Until its first value is there, a column is taken for one of numbers.
 * @param {string} key
 * @returns {Column}
 */
function added(key) {
  return {
    key,
    title: key,
    sort: key,
    first: -1,
    isNumber: true,
    rem: Math.min(16, Math.max(/[/:]/.test(key) ? 9 : 6.5, 1.5 + 0.5 * key.length)),
    isAdded: true,
  };
}

/** Whether values of this kind stand on the right. @param {string} kind */
export function isNumeric(kind) {
  return !['name', 'text', 'yes or no'].includes(kind);
}

/**
 * @param {number|null} percent its change to the baseline
 * @param {any} value
 * @param {string} kind
 * @param {number} now by the server's clock, in seconds
 * @returns {[string, string|null]} the value as text, and exactly
 */
export function valueText(value, kind, now, percent = null) {
  if (value === null || value === undefined) return [UNKNOWN, null];
  if (kind === 'number' && Number.isInteger(value)) return [count(value), exact(value)];
  if (percent !== null)
    return [
      `${number(fromJson(value), 4)} ${change(percent, 2)}`,
      `${exact(value)}, ${change(percent)} to the project’s baseline`,
    ];
  if (kind === 'number' || kind === 'series') return [number(fromJson(value), 4), exact(value)];
  if (kind === 'duration') return [duration(value), null];
  if (kind === 'time') return [ago(now - value), new Date(value * 1000).toLocaleString()];
  if (kind === 'yes or no') return [value ? 'yes' : 'no', null];
  return [String(value), String(value)];
}

/** The panel in which columns are added, removed and ordered. */
export class ColumnChoice extends Panel {
  _field = el('input', {});

  /**
   * @param {() => string[]|null} keys the chosen ones, or null
   * @param {(keys: string[]|null) => void} onChosen
   */
  constructor(keys, onChosen) {
    super('Columns', () => this._content());
    this._keys = keys;
    this._onChosen = onChosen;
    this._newest = new Newest();
    this._proposals = el('datalist', { id: 'column-proposals' });
  }

  _content() {
    const keys = this._keys() ?? DEFAULT_KEYS;
    this._field = el('input', {
      type: 'text',
      'aria-label': 'Field or series',
      placeholder: 'lr, best:val/loss …',
      list: 'column-proposals',
      maxlength: 200,
      oninput: () => void this._propose(),
    });
    void this._propose();
    return [
      el('ol', {}, ...keys.map((key, at) => this._line(key, at, keys))),
      el(
        'form',
        {
          onsubmit: (event) => {
            event.preventDefault();
            this._add(keys);
          },
        },
        this._field,
        el('button', { text: 'Add' }),
        this._proposals,
      ),
      el('button', {
        type: 'button',
        text: 'Usual columns',
        onclick: () => this._choose(null, 'Field or series'),
      }),
    ];
  }

  /** @param {string} key @param {number} at @param {string[]} keys */
  _line(key, at, keys) {
    const title = OWN.find((own) => own.key === key)?.title ?? key;
    /** @param {number} by */
    const moved = (by) => {
      const order = keys.filter((other) => other !== key);
      order.splice(at + by, 0, key);
      return order;
    };
    /** @param {string} text @param {string} label @param {boolean} isOff @param {string[]} order */
    const button = (text, label, isOff, order) =>
      el('button', {
        type: 'button',
        text,
        'aria-label': label,
        title: label,
        disabled: isOff,
        onclick: () => this._choose(order, label),
      });
    return el(
      'li',
      {},
      el('span', { text: title, title }),
      button('↑', `Move ${title} left`, at === 0, moved(-1)),
      button('↓', `Move ${title} right`, at === keys.length - 1, moved(1)),
      button(
        '✕',
        `Remove ${title}`,
        key === 'name',
        keys.filter((other) => other !== key),
      ),
    );
  }

  /** @param {string[]} keys */
  _add(keys) {
    const key = this._field.value.trim();
    if (key && keys.length < MOST) this._choose([...keys.filter((other) => other !== key), key], 'Field or series');
  }

  /** @param {string[]|null} keys @param {string} focused */
  _choose(keys, focused) {
    this._onChosen(keys);
    this.rebuild(focused);
    if (!this._isFocused()) this._field.focus();
  }

  _isFocused() {
    return this.root.contains(focusedIn(this.root));
  }

  async _propose() {
    const { value } = this._field;
    const path = `api/search/columns?${new URLSearchParams({ text: value })}`;
    // Without the server's names it still proposes the usual ones.
    const names = await this._newest.request(path).catch(() => []);
    if (names) this._proposals.replaceChildren(...proposed(value, names).map((key) => el('option', { value: key })));
  }
}

/**
 * Our own columns whose title has the text, then the server's.
 * @param {string} text
 * @param {string[]} names
 */
export function proposed(text, names) {
  const own = OWN.filter(({ title }) => title.toLowerCase().includes(text.toLowerCase())).map(({ key }) => key);
  return [...new Set([...own, ...names])];
}
