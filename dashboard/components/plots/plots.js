/**
 * Plots of runs over fields, as SVG: scatters, columns, parallel coordinates, and the parts that they share. What is
 * drawn of a run is a link to it.
 */

import { svg } from '../elements/elements.js';
import { pageUrl } from '../links/links.js';

export const HEIGHT = 260;
export const MARGIN = { top: 26, right: 16, bottom: 30, left: 56 };
const WIDEST_COLUMN = 28;

/**
 * @typedef {{key: string, title: string, kind?: string, run?: string|null, colour?: string, values: any[]}}
 *   Item
 * a run or a trial: `key` marks all that is drawn of it, `kind` is a class, `values` are those of the axes
 */

/**
 * A point for each run at its values of two fields.
 * @param {import('./axes.js').Axis} across @param {import('./axes.js').Axis} up
 * @param {Item[]} items with their value across, then up
 * @param {number} width @param {string} name
 */
export function scatter(across, up, items, width, name) {
  return overField(across, up, items, width, name, (cx, cy, item) => {
    const point = svg('circle', { class: 'point', cx, cy, r: 5 });
    if (item.colour) point.style.fill = item.colour;
    return [svg('circle', { class: 'reach', cx, cy, r: 12 }), point];
  });
}

/**
 * A column for each item, from the lower end of the axis to its value.
 * @param {import('./axes.js').Axis} across @param {import('./axes.js').Axis} up
 * @param {Item[]} items with their value across, then up
 * @param {number} width @param {string} name
 */
export function columns(across, up, items, width, name) {
  const room = (width - MARGIN.left - MARGIN.right - 20) / Math.max(1, items.length);
  const thickness = Math.min(WIDEST_COLUMN, Math.max(1, room - 1));
  const bottom = HEIGHT - MARGIN.bottom - 10;
  return overField(across, up, items, width, name, (x, y) => [
    svg('rect', { class: 'reach', x: x - room / 2, y: MARGIN.top, width: room, height: bottom - MARGIN.top }),
    svg('rect', { class: 'column', x: x - thickness / 2, y, width: thickness, height: Math.max(1, bottom - y) }),
  ]);
}

/**
 * The grid of two axes, and what is drawn of each item that has a place on both.
 * @param {import('./axes.js').Axis} across @param {import('./axes.js').Axis} up
 * @param {Item[]} items
 * @param {number} width @param {string} name
 * @param {(x: number, y: number, item: Item) => Element[]} draw
 */
function overField(across, up, items, width, name, draw) {
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
    if (cx !== null && cy !== null) root.append(linked(item, ...draw(x(cx), y(cy), item)));
  }
  return root;
}

/**
 * An upright axis for each field, a line for each run through its values.
 * @param {import('./axes.js').Axis[]} axes
 * @param {Item[]} items those drawn last are above the others
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

/** @param {number} width @param {string} name */
export function drawing(width, name) {
  return svg('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: 'group', 'aria-label': name });
}

/**
 * An item's line through some points, easy to point at, and a link to its run.
 * @param {Item} item
 * @param {number[][]} points
 */
export function itemLine(item, points) {
  const path = points.map(([x, y]) => `${x},${y}`).join(' ');
  const line = svg('polyline', { class: `line ${item.kind ?? ''}`, points: path });
  if (item.colour) line.style.stroke = item.colour;
  return linked(item, svg('polyline', { class: 'reach', points: path }), line);
}

/**
 * The parts as what is drawn of the item: a link where it has a run.
 * @param {Item} item
 * @param {...Element} parts
 */
function linked(item, ...parts) {
  const link = item.run ? { href: pageUrl(`run?id=${encodeURIComponent(item.run)}`), 'aria-label': item.title } : {};
  return svg(
    item.run ? 'a' : 'g',
    { ...link, class: 'item', 'data-item': item.key },
    ...parts,
    svg('title', {}, item.title),
  );
}

/** Mark all that is drawn of an item, or of none. @param {ParentNode} root @param {Set<string>} keys */
export function markItems(root, keys) {
  for (const part of root.querySelectorAll('[data-item]'))
    part.classList.toggle('hovered', keys.has(part.getAttribute('data-item') ?? ''));
}
