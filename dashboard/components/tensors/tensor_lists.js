/** The lists in what a node reports of a checkpoint's tensors, or of two checkpoints' differences. Pure. */

import { count, number, plural, size } from '../elements/numbers.js';

/**
 * @typedef {{name: string, shape: number[], dtype: string}} Facts
 * @typedef {Facts & {values: number, bytes: number, tied: string|null, norm: number|null, mean: number|null, std:
 *   number|null, min: number|null, max: number|null, zeros: number|null, nan: number|null, inf: number|null}} Tensor
 * `nan` and `inf` count; of what torch cannot convert to numbers only the facts are known
 * @typedef {{values: number, relative: number|null, cosine: number|null, largest: number|null, unchanged: number,
 *   not_finite: number}} Change
 * @typedef {Change & {layer: string, tensors: number}} Layer
 * @typedef {{format: string, totals: {tensors: number, values: number, bytes: number, norm: number|null, nan: number,
 *   inf: number}, dtypes: {dtype: string, tensors: number, values: number, bytes: number}[], tensors: Tensor[],
 *   left_out: number, notes: string[]}} Shown
 * @typedef {{formats: string[], totals: Change & {tensors: number}, layers: Layer[], tensors: (Facts & Change)[],
 *   only_a: Facts[], only_b: Facts[], different: {name: string, a: Facts, b: Facts}[], left_out:
 *   Record<string, number>, notes: string[]}} Compared
 * @typedef {import('../studies/table.js').Cell} Cell
 * @typedef {{title: string, table: import('../studies/table.js').Table, leftOut: number}} List
 */

/** @param {Shown} shown */
export function shownSentence({ totals, dtypes, tensors, format }) {
  const kinds = dtypes.map((one) => `${one.dtype} (${size(one.bytes)})`).join(', ');
  const values = `${plural(totals.tensors, 'tensor')}, ${number(totals.values)} values`;
  const sentence = `${values}: ${kinds || 'nothing'}; ${format}.`;
  const broken = tensors.filter(isBroken);
  return broken.length ? `${sentence} Not finite: values of ${plural(broken.length, 'tensor')}.` : sentence;
}

/** @param {Compared} compared */
export function comparedSentence({ totals }) {
  if (!totals.tensors) return 'No tensor has the same name and shape in both.';
  if (totals.unchanged === 1) return `${plural(totals.tensors, 'tensor')} in both, all equal.`;
  const same = `${number(100 * totals.unchanged)} % of the values are unchanged`;
  const cosine = totals.cosine === null ? '' : `, cosine ${exactly(totals.cosine)}`;
  return `${plural(totals.tensors, 'tensor')} in both: relative change ${ratio(totals.relative)}${cosine}; ${same}.`;
}

/** @param {Shown} shown @returns {List[]} */
export function shownLists({ tensors, left_out }) {
  const columns = ['Tensor', 'Shape', 'Dtype', '>Norm', '>Mean', '>Std', '>Min', '>Max', '>Not finite', '>Values'];
  return [list('Tensors', columns, tensors.map(tensorRow), left_out)];
}

/** @param {Compared} compared @returns {List[]} the empty ones left out */
export function comparedLists(compared) {
  const figures = ['>Relative change', '>Cosine', '>Largest change', '>Unchanged', '>Not finite', '>Values'];
  const facts = ['Tensor', 'Shape', 'Dtype'];
  const lists = [
    list('Layers', ['Layer', ...figures], compared.layers.map(layerRow), compared.left_out.layers),
    list('Tensors', ['Tensor', ...figures], compared.tensors.map(changeRow), compared.left_out.tensors),
    list('Only in A', facts, compared.only_a.map(factsRow), compared.left_out.only_a),
    list('Only in B', facts, compared.only_b.map(factsRow), compared.left_out.only_b),
    list(
      'Of another shape or dtype',
      ['Tensor', 'A', 'B'],
      compared.different.map(({ name, a, b }) => ({ cells: [text(name), text(kind(a)), text(kind(b))] })),
      compared.left_out.different,
    ),
  ];
  return lists.filter(({ table }) => table.rows.length > 0);
}

/** The rows whose names have all words of the search. @param {import('../studies/table.js').Row[]} rows */
export function matching(rows, /** @type {string} */ search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length
    ? rows.filter(({ cells }) => words.every((word) => cells[0].text.toLowerCase().includes(word)))
    : rows;
}

/** @param {number|null} value a relative change */
export const ratio = (value) => (value === null ? 'from zero' : number(value));

/** A cosine near 1 with as many digits as tell it from 1. @param {number|null} value */
export function exactly(value) {
  if (value === null) return '–';
  const distance = 1 - Math.abs(value);
  const digits = distance > 0 ? Math.min(12, Math.max(3, Math.ceil(-Math.log10(distance)) + 1)) : 1;
  return number(value, digits);
}

/** @param {{nan: number|null, inf: number|null}} tensor */
const isBroken = ({ nan, inf }) => Boolean(nan || inf);

/**
 * @param {string} title
 * @param {string[]} heads a `>` begins those of figures
 * @param {import('../studies/table.js').Row[]} rows
 * @param {number} leftOut
 * @returns {List}
 */
function list(title, heads, rows, leftOut) {
  const columns = heads.map((head) =>
    head.startsWith('>') ? { text: head.slice(1), kind: 'number' } : { text: head },
  );
  return { title, table: { columns, rows, isSortable: true }, leftOut };
}

/** @param {Tensor} tensor */
function tensorRow(tensor) {
  const { name, shape, dtype, values, nan, inf, tied } = tensor;
  const figures = [tensor.norm, tensor.mean, tensor.std, tensor.min, tensor.max].map((value) => figure(value));
  const broken = [nan ? `${count(nan)} NaN` : '', inf ? `${count(inf)} infinite` : ''].filter(Boolean).join(', ');
  return {
    kind: isBroken(tensor) ? 'broken' : '',
    cells: [
      { ...text(name), title: tied === null ? undefined : `the same as ${tied}` },
      text(shapeOf(shape)),
      text(dtype),
      ...figures,
      { text: broken, value: (nan ?? 0) + (inf ?? 0) || null },
      { text: number(values), title: count(values), value: values },
    ],
  };
}

/** @param {Layer} row */
const layerRow = (row) => ({ item: row.layer, kind: brokenIf(row), cells: [text(row.layer), ...changed(row)] });

/** @param {Facts & Change} row */
const changeRow = (row) => ({ kind: brokenIf(row), cells: [text(row.name), ...changed(row)] });

/** @param {Facts} row */
const factsRow = ({ name, shape, dtype }) => ({ cells: [text(name), text(shapeOf(shape)), text(dtype)] });

/** @param {Change} change */
const brokenIf = ({ not_finite }) => (not_finite ? 'broken' : '');

/** @param {Change} change @returns {Cell[]} */
function changed({ relative, cosine, largest, unchanged, not_finite, values }) {
  return [
    { text: ratio(relative), title: String(relative ?? ''), value: relative ?? Infinity },
    { text: exactly(cosine), title: String(cosine ?? ''), value: cosine },
    figure(largest),
    { text: `${number(100 * unchanged)} %`, value: unchanged },
    { text: not_finite ? count(not_finite) : '', value: not_finite || null },
    { text: number(values), title: count(values), value: values },
  ];
}

/** @param {number|null} value @returns {Cell} */
const figure = (value) => ({ text: value === null ? '' : number(value), title: String(value ?? ''), value });

/** @param {string} value @returns {Cell} */
const text = (value) => ({ text: value, value });

/** @param {number[]} shape */
const shapeOf = (shape) => (shape.length ? shape.join(' × ') : 'scalar');

/** @param {Facts} facts */
const kind = ({ shape, dtype }) => `${shapeOf(shape)} ${dtype}`;
