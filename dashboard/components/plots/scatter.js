/** A scatter: a point for each run at its values of two fields. */

import { drawing, HEIGHT, linked, MARGIN, svg } from './drawing.js';

/**
 * @param {import('./axes.js').Axis} across @param {import('./axes.js').Axis} up
 * @param {import('./drawing.js').Item[]} items with their value across, then up
 * @param {number} width @param {string} name
 */
export function scatter(across, up, items, width, name) {
  const root = drawing(width, name);
  /** @param {number} share */
  const x = (share) => MARGIN.left + 10 + (width - MARGIN.left - MARGIN.right - 20) * share;
  /** @param {number} share */
  const y = (share) => HEIGHT - MARGIN.bottom - 10 - (HEIGHT - MARGIN.bottom - MARGIN.top - 10) * share;
  for (const [text, share] of up.marks) {
    root.append(
      svg('line', { class: 'grid', x1: MARGIN.left, x2: width - MARGIN.right, y1: y(share), y2: y(share) }),
      svg('text', { x: MARGIN.left - 8, y: y(share) + 4, 'text-anchor': 'end' }, text),
    );
  }
  for (const [text, share] of across.marks) {
    root.append(
      svg('line', { class: 'grid', x1: x(share), x2: x(share), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
      svg('text', { x: x(share), y: HEIGHT - 10, 'text-anchor': 'middle' }, text),
    );
  }
  for (const item of items) {
    const [cx, cy] = [across.share(item.values[0]), up.share(item.values[1])];
    if (cx === null || cy === null) continue;
    const point = svg('circle', { class: 'point', cx: x(cx), cy: y(cy), r: 5 });
    if (item.colour) point.style.fill = item.colour;
    root.append(linked(item, svg('circle', { class: 'reach', cx: x(cx), cy: y(cy), r: 12 }), point));
  }
  return root;
}
