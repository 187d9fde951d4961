/** Taking a chart away: as a picture with its title, or as the link to its points. */

import { faded } from '../elements/theme.js';
import { apiUrl } from '../server/request.js';

/**
 * @param {string} runId
 * @param {{name: string}[]} lines
 * @returns {string} the address of the series' points as CSV
 */
export function csvUrl(runId, lines) {
  const query = new URLSearchParams(lines.map((line) => ['name', line.name]));
  query.set('source', 'all');
  return apiUrl(`api/runs/${encodeURIComponent(runId)}/metrics.csv?${query}`);
}

/**
 * Save what is drawn, on the theme's background, with title and legend.
 * @param {HTMLCanvasElement} plot
 * @param {{title: string, subtitle: string, legend: {label: string, value: string, colour: string}[], theme:
 *   import('../elements/theme.js').Theme, fileName: string}} what
 */
export async function savePicture(plot, what) {
  const { theme } = what;
  const ratio = devicePixelRatio;
  const [margin, head] = [16 * ratio, 62 * ratio];
  const canvas = document.createElement('canvas');
  canvas.width = plot.width + 2 * margin;
  canvas.height = plot.height + head + margin;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.fillStyle = theme.background;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.textBaseline = 'alphabetic';
  write(context, what.title, margin, 26 * ratio, `600 ${15 * ratio}px ${theme.font}`, theme.text);
  context.textAlign = 'right';
  /**
   * @param {CanvasRenderingContext2D} context
   * @param {string} text
   * @param {number} x
   * @param {number} y
   * @param {string} font
   * @param {string} colour
   */
  write(context, what.subtitle, canvas.width - margin, 26 * ratio, `${11 * ratio}px ${theme.font}`, theme.muted);
  context.textAlign = 'left';
  let x = margin;
  for (const { label, value, colour } of what.legend) {
    context.fillStyle = colour;
    context.fillRect(x, 42 * ratio, 12 * ratio, 3 * ratio);
    x += 17 * ratio;
    x += write(context, `${label}  ${value}`, x, 48 * ratio, `${12 * ratio}px ${theme.font}`, faded(theme.text, 0.85));
    x += 18 * ratio;
  }
  context.drawImage(plot, margin, head);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
  if (blob) save(blob, what.fileName);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {string} font
 * @param {string} colour
 */
function write(context, text, x, y, font, colour) {
  context.font = font;
  context.fillStyle = colour;
  context.fillText(text, x, y);
  return context.measureText(text).width;
}

/** @param {Blob} blob @param {string} fileName */
function save(blob, fileName) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = fileName.replace(/[^\p{L}\p{N}._-]+/gu, '-');
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
