/** A flame graph: each function as wide as the time it took, above those that it calls. A click widens a frame. */

import { el, mountOnce, setText } from '../elements/elements.js';
import { timeSpan } from '../elements/numbers.js';
import { request, sentenceOf } from '../server/request.js';

const ROW_REM = 1.25;
const THINNEST = 0.002;

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new Flame(first));

/** @typedef {{depth: number, name: string, seconds: number, begin: number}} Frame */

class Flame {
  /** @type {Frame[]} */
  _nodes = [];

  /** @param {import('../elements/elements.js').Component} component */
  constructor({ data, parentElement }) {
    this._frames = el('div', { class: 'frames', role: 'group', 'aria-label': 'Flame graph' });
    this._named = el('p', { class: 'named', role: 'status', text: 'Loading …' });
    this._root = el('section', { class: 'flame' }, this._frames, this._named);
    parentElement.append(this._root);
    void this._load(data.path);
  }

  destroy() {
    this._root.remove();
  }

  /** @param {string} path */
  async _load(path) {
    try {
      this._nodes = nodesOf(await request(path));
    } catch (error) {
      setText(this._named, `The flame graph could not be loaded. ${sentenceOf(error)}`);
      return;
    }
    this._widen(null);
  }

  /**
   * Draw the frame over the whole width, its callers above it and what it calls below.
   * @param {Frame|null} chosen
   */
  _widen(chosen) {
    const [begin, seconds] = chosen ? [chosen.begin, chosen.seconds] : [0, whole(this._nodes)];
    if (!(seconds > 0)) return setText(this._named, 'No function was recorded.');
    const shown = this._nodes.filter(
      (node) =>
        node.begin < begin + seconds &&
        node.begin + node.seconds > begin &&
        Math.min(node.seconds, seconds) / seconds >= THINNEST,
    );
    this._frames.replaceChildren(...shown.map((node) => this._button(node, begin, seconds)));
    this._frames.style.height = `${ROW_REM * (1 + Math.max(...shown.map((node) => node.depth)))}rem`;
    this._name(chosen);
  }

  /** @param {Frame} node @param {number} begin @param {number} seconds */
  _button(node, begin, seconds) {
    const left = Math.max(0, (node.begin - begin) / seconds);
    const right = Math.min(1, (node.begin + node.seconds - begin) / seconds);
    const isCaller = node.seconds > seconds;
    const kind = /[(<]/.test(node.name) ? 'function' : 'operator';
    return el('button', {
      type: 'button',
      class: `${kind} ${isCaller ? 'caller' : ''}`,
      text: node.name,
      title: `${node.name}: ${timeSpan(node.seconds)}`,
      style: `left:${100 * left}%;width:${100 * (right - left)}%;top:${ROW_REM * node.depth}rem`,
      onclick: () => this._widen(node),
      onmouseenter: () => this._name(node),
      onfocus: () => this._name(node),
    });
  }

  /** @param {Frame|null} node */
  _name(node) {
    const all = whole(this._nodes);
    const share = node ? Math.round((100 * node.seconds) / all) : 100;
    setText(this._named, node ? `${node.name}: ${timeSpan(node.seconds)}, ${share} %` : `${timeSpan(all)} recorded`);
  }
}

/** The seconds of all that was recorded. @param {Frame[]} nodes */
const whole = (nodes) => nodes.filter(({ depth }) => depth === 0).reduce((sum, { seconds }) => sum + seconds, 0);

/**
 * @param {[number, string, number][]} frames in order, callers first
 * @returns {Frame[]} their places on the axis of time
 */
function nodesOf(frames) {
  const next = [0];
  return frames.map(([depth, name, seconds]) => {
    const node = { depth, name, seconds, begin: next[depth] ?? 0 };
    next[depth] = node.begin + seconds;
    next[depth + 1] = node.begin;
    next.length = depth + 2;
    return node;
  });
}
