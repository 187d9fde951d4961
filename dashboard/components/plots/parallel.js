/** Parallel coordinates: an upright axis for each field, a line for each run through its values. */

import { drawing, HEIGHT, itemLine, MARGIN, svg } from './drawing.js';

/**
 * @param {import('./axes.js').Axis[]} axes
 * @param {import('./drawing.js').Item[]} items those drawn last are above the others
 * @param {number} width @param {string} name
 */
export function parallel(axes, items, width, name) {
  const root = drawing(width, name);
  /** @param {number} index */
  const at = (index) => MARGIN.left + ((width - 2 * MARGIN.left) * index) / Math.max(1, axes.length - 1);
  /** @param {number} share */
  const y = (share) => HEIGHT - MARGIN.bottom - (HEIGHT - MARGIN.bottom - MARGIN.top) * share;
  axes.forEach((axis, index) => {
    root.append(
      svg('line', { class: 'axis', x1: at(index), x2: at(index), y1: y(0), y2: y(1) }),
      title(axis, at(index), width / axes.length),
    );
  });
  for (const item of items) {
    const points = axes.flatMap((axis, index) => {
      const share = axis.share(item.values[index]);
      return share === null ? [] : [[at(index), y(share)]];
    });
    if (points.length > 1) root.append(itemLine(item, points));
  }
  axes.forEach((axis, index) => {
    /** @param {string} text @param {number} share */
    const mark = (text, share) =>
      svg('text', { class: 'mark', x: at(index) - 6, y: y(share) + 4, 'text-anchor': 'end' }, text);
    root.append(...axis.ends.map(([text, share]) => mark(text, share)));
  });
  return root;
}

/**
 * An axis' name, cut to the room that it has.
 * @param {import('./axes.js').Axis} axis
 * @param {number} x
 * @param {number} room
 */
function title({ name, kind }, x, room) {
  const most = Math.max(4, Math.floor(room / 7));
  const whole = kind === 'log' ? `${name} (log)` : name;
  const shown = whole.length > most ? `${whole.slice(0, most - 1)}…` : whole;
  return svg('text', { class: 'name', x, y: 12, 'text-anchor': 'middle' }, shown, svg('title', {}, whole));
}
