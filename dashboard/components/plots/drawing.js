/** Drawn parts that plots share: SVG elements, and a run's mark, which is a link to it. */

import { pageUrl } from '../links/following.js';

export const HEIGHT = 260;
export const MARGIN = { top: 26, right: 16, bottom: 30, left: 56 };

/**
 * @typedef {{key: string, title: string, kind?: string, run?: string|null, colour?: string, values: any[]}}
 *   Item
 * a run or a trial: `key` marks all that is drawn of it, `kind` is a class, `values` are those of the axes
 */

/**
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} attributes
 * @param {...(Node|string)} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
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
export function linked(item, ...parts) {
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
