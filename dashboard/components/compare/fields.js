/** The fields by which runs are plotted and tabulated: settings that differ, and results of series. */

import { el } from '../elements/elements.js';
import { fromJson } from '../elements/numbers.js';
import { settingCell } from './cells.js';

const FIGURES = [
  ['last', 'last'],
  ['best', 'best'],
  ['lowest', 'min'],
  ['highest', 'max'],
];
/** Chance or the machine decides these: nobody looks at them first. */
const SECONDARY = /^(seed|state|reason|nodes_used|snapshot|interpreter\..*|package\..*|args\..*seed|logged\..*seed)$/;

/**
 * @typedef {{id: string, label: string, group: 'Settings'|'Results', isNumber: boolean, of: Map<string, any>,
 *   base?: any}} Field `of`: by run id; `base`: the baseline's result
 */

/**
 * All fields of a comparison's document in the order of its tables.
 * @param {import('../server/documents.js').Comparison} document of a comparison
 * @returns {Map<string, Field>}
 */
export function fieldsOf({ runs, differences, series }) {
  /** @type {string[]} */
  const ids = runs;
  const settings = differences.map(({ field, label, values }) =>
    /**
     * @param {string} id
     * @param {string} label
     * @param {Field['group']} group
     * @param {[string, any][]} pairs
     * @returns {Field}
     */
    fieldOf(
      field,
      label,
      'Settings',
      ids.map((run) => [run, plain(values[run])]),
    ),
  );
  const results = series.flatMap(({ name, goal, baseline, runs: of }) =>
    FIGURES.filter(([figure]) => figure !== 'best' || goal).map(([figure, word]) => ({
      ...fieldOf(
        `${name}:${word}`,
        `${name} (${word})`,
        'Results',
        ids.map((run) => [run, fromJson(of[run]?.[figure])]),
      ),
      base: fromJson(baseline?.[figure]),
    })),
  );
  return new Map([...settings, ...results].map((field) => [field.id, field]));
}

/** The setting that people most probably changed on purpose. @param {Map<string, Field>} fields */
export function firstSetting(fields) {
  const settings = settingsOf(fields);
  return (
    settings.find(({ id }) => /(^|[._-])(lr|learning_rate)$/.test(id)) ??
    settings.find(({ isNumber }) => isNumber) ??
    settings[0]
  );
}

/** Settings that somebody chose. @param {Map<string, Field>} fields */
export function settingsOf(fields) {
  return [...fields.values()].filter(({ id, group }) => group === 'Settings' && !SECONDARY.test(id));
}

/** Whether runs have different numbers of it, rather than one number or names. @param {Field} field */
export function varies({ isNumber, of }) {
  return isNumber && new Set([...of.values()].filter(Number.isFinite)).size > 1;
}

/**
 * The result that a comparison is probably about, of those that most runs have: of a validation, else the
 * first with a best value.
 * @param {Map<string, Field>} fields
 */
export function firstResult(fields) {
  /** @param {Field} field */
  const count = ({ of }) => [...of.values()].filter(Number.isFinite).length;
  const all = [...fields.values()].filter(({ group }) => group === 'Results');
  const most = Math.max(0, ...all.map(count));
  const results = all.filter((field) => count(field) === most);
  const best = results.filter(({ id }) => id.endsWith(':best'));
  return best.find(({ id }) => /^(val|valid|eval|test)/i.test(id)) ?? best[0] ?? results[0];
}

/** The text of a run's value. @param {Field} field @param {string} run */
export function textOf(field, run) {
  return settingCell(field.of.get(run)).text;
}

/**
 * A choice of one field.
 * @param {string} label
 * @param {(id: string) => void} onChoice
 * @param {string|null} none the text for no field
 */
export function fieldSelect(label, onChoice, none = null) {
  const select = el('select', { 'aria-label': label, onchange: () => onChoice(select.value) });
  let offered = '';
  return {
    element: select,
    /** @param {Map<string, Field>} fields @param {string} id */
    offer(fields, id) {
      const groups = ['Settings', 'Results'].map((group) => {
        const own = [...fields.values()].filter((field) => field.group === group);
        return own.length
          ? el(
              'optgroup',
              { label: group },
              ...own.map((field) => el('option', { value: field.id, text: field.label })),
            )
          : null;
      });
      const key = JSON.stringify([...fields.keys()]);
      if (key !== offered)
        select.replaceChildren(
          ...(none === null ? [] : [el('option', { value: '', text: none })]),
          ...groups.filter((group) => group !== null),
        );
      offered = key;
      select.value = id;
    },
  };
}

/**
 * @param {string} id
 * @param {string} label
 * @param {Field['group']} group
 * @param {[string, any][]} pairs
 * @returns {Field}
 */
function fieldOf(id, label, group, pairs) {
  const present = pairs.map(([, value]) => value).filter((value) => value !== null && value !== undefined);
  return {
    id,
    label,
    group,
    isNumber: present.length > 0 && present.every((value) => typeof value === 'number'),
    of: new Map(pairs),
  };
}

/**
 * A value as a number where it is one, so that an argument's text stands on a scale.
 * @param {unknown} value
 */
function plain(value) {
  const one = Array.isArray(value) && value.length === 1 ? value[0] : value;
  if (typeof one === 'string' && one.trim() !== '' && Number.isFinite(Number(one))) return Number(one);
  return one === null || one === undefined || typeof one === 'number' ? one : settingCell(one).text;
}
