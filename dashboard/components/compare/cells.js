/**
 * Cells of the tables of a comparison (settings, results, means of groups, each with its change to the baseline), and
 * the tables as text for other programs: CSV, Markdown, LaTeX.
 */

import { el, setText } from '../elements/elements.js';
import { change, count, exact, fromJson, learningRate, number, plural, UNKNOWN } from '../elements/numbers.js';

/** First characters of a cell that a spreadsheet would evaluate (OWASP, CSV injection). */
const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;

/** @type {Record<string, string>} */
const LATEX = {
  '\\': '\\textbackslash{}',
  '~': '\\textasciitilde{}',
  '^': '\\textasciicircum{}',
  '&': '\\&',
  '%': '\\%',
  $: '\\$',
  '#': '\\#',
  _: '\\_',
  '{': '\\{',
  '}': '\\}',
  '±': '$\\pm$',
  '<': '\\textless{}',
  '>': '\\textgreater{}',
  '|': '\\textbar{}',
  '−': '$-$',
  '∞': '$\\infty$',
};

/** Each writes a head and rows of cells, all text. */
const FORMATS = {
  /** @param {string[][]} lines */
  CSV: (lines) => lines.map((cells) => cells.map(csvCell).join(',')).join('\r\n'),
  /** @param {string[][]} lines */
  Markdown: ([head, ...rows]) =>
    [head, head.map((_, at) => (at ? '---:' : ':---')), ...rows]
      .map((cells, at) => `| ${cells.map((cell) => (at === 1 ? cell : markdownCell(cell))).join(' | ')} |`)
      .join('\n'),
  /** @param {string[][]} lines */
  LaTeX: ([head, ...rows]) =>
    [
      `\\begin{tabular}{l${'r'.repeat(head.length - 1)}}`,
      '\\hline',
      latexLine(head),
      '\\hline',
      ...rows.map(latexLine),
      '\\hline',
      '\\end{tabular}',
    ].join('\n'),
};

/**
 * @param {keyof typeof FORMATS} format
 * @param {string[]} runs
 * @param {{title: string, cells: Cell[]}[]} rows
 */
export function written(format, runs, rows) {
  const exactly = format === 'CSV';
  /** @param {Cell} cell */
  const text = (cell) =>
    exactly && cell.raw !== undefined
      ? String(cell.raw)
      : `${cell.text}${cell.spread ? ` ± ${number(cell.spread, 2)}` : ''}${cell.change ? ` (${cell.change})` : ''}`;
  const lines = rows.flatMap(({ title, cells }) => [
    [title, ...cells.map(text)],
    // Other programs want mean and spread apart.
    ...(exactly && cells.some(({ spread }) => spread !== undefined)
      ? [[`${title} spread`, ...cells.map(({ spread }) => String(spread ?? ''))]]
      : []),
  ]);
  return `${FORMATS[format]([['', ...runs], ...lines])}\n`;
}

/**
 * Buttons that copy a table, and the note that it was.
 * @param {() => {titles: string[], lines: import('./grouping.js').Row[]}|undefined} tableOf
 */
export function copyButtons(tableOf) {
  const copied = el('span', { class: 'copied', role: 'status' });
  /** @param {keyof typeof FORMATS} format */
  const copy = async (format) => {
    const table = tableOf();
    if (!table) return;
    try {
      await navigator.clipboard.writeText(written(format, table.titles, table.lines));
      setText(copied, `Copied as ${format}`);
    } catch {
      setText(copied, 'The browser did not allow copying');
    }
    setTimeout(() => setText(copied, ''), 3000);
  };
  const formats = /** @type {(keyof typeof FORMATS)[]} */ (Object.keys(FORMATS));
  const buttons = formats.map((format) =>
    el('button', {
      type: 'button',
      text: format,
      title: `Copy the table as ${format}`,
      onclick: () => void copy(format),
    }),
  );
  return { copied, bar: [el('span', { class: 'word', text: 'Copy as' }), ...buttons] };
}

/** @param {string} text */
function csvCell(text) {
  const safe = FORMULA.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** @param {string} text */
function markdownCell(text) {
  return text.replace(/[\\`*_{}[\]<>|$~]/g, '\\$&').replace(/\s*\n\s*/g, ' ');
}

/** @param {string[]} cells */
function latexLine(cells) {
  const escaped = cells.map((text) => text.replace(/[\\~^&%$#_{}±<>|−∞]/g, (character) => LATEX[character]));
  return `${escaped.join(' & ')} \\\\`;
}

/**
 * @typedef {{text: string, title?: string, raw?: any, spread?: number|'', change?: string}} Cell
 * `raw`: the value with all digits; `spread`: the standard deviation of a mean, '' of a single value;
 * `change`: that to the baseline
 */

/** A setting as text, with its exact value. @param {unknown} value @returns {Cell} */
export function settingCell(value) {
  if (value === null || value === undefined) return { text: UNKNOWN };
  if (typeof value === 'boolean') return { text: value ? 'on' : 'off' };
  if (typeof value === 'number') return { text: learningRate(value), title: exact(value) };
  const text = Array.isArray(value) ? value.join(' ') : String(value);
  return { text: text || UNKNOWN, title: text };
}

/**
 * The last or best value of a run.
 * @param {import('../server/documents.js').Result|undefined} result
 * @param {'last'|'best'} figure
 * @returns {Cell}
 */
export function resultCell(result, figure) {
  const value = fromJson(result?.[figure]);
  if (!result || value === null || value === undefined) return { text: UNKNOWN };
  return {
    text: number(value, 4),
    title: `${exact(value)}, last step ${count(result.steps)}`,
    raw: value,
    change: changed(fromJson(result[`${figure}_change_percent`])),
  };
}

/**
 * The mean of some runs.
 * @param {number} mean
 * @param {number|null} spread
 * @param {number} runs
 * @param {number|null|undefined} percent
 * @returns {Cell}
 */
export function meanCell(mean, spread, runs, percent) {
  const title = `mean of ${plural(runs, 'run')}: ${mean}${spread === null ? '' : `, standard deviation ${spread}`}`;
  return { text: number(mean, 4), title, raw: mean, spread: spread ?? '', change: changed(percent) };
}

/** @param {Cell} cell */
export function drawnCell({ text, title, raw, spread, change: percent }) {
  const more = [spread ? `± ${number(spread, 2)}` : '', percent].filter(Boolean);
  return el(
    'td',
    { title, class: raw === undefined ? '' : 'number' },
    el('span', { text }),
    ...more.map((words) => el('small', { text: words })),
  );
}

/** A change in per cent as text; '' where there is none. @param {number|null|undefined} percent */
export function changed(percent) {
  return percent === null || percent === undefined ? '' : change(percent);
}
