/** A table as text for other programs: CSV, Markdown, LaTeX. */

import { el, setText } from '../elements/elements.js';
import { number } from '../elements/numbers.js';

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
export const FORMATS = {
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
 * @param {{title: string, cells: import('./cells.js').Cell[]}[]} rows
 */
export function written(format, runs, rows) {
  const exactly = format === 'CSV';
  /** @param {import('./cells.js').Cell} cell */
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
