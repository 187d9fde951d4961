/** A preflight as a matrix of nodes and checks, its troubles with their fixes, and the bandwidth between nodes. */

import { el, mountOnce, setText } from '../elements/elements.js';

/** @type {Record<string, string>} */
const SIGNS = { ok: '✓', failed: '✕', warning: '!', waiting: '…', skipped: '–' };
const WORDS_UP_TO = 24;
const ALL_UP_TO = 40;
const MOST_TROUBLES = 12;

/**
 * Update the matrix with new results without rebuilding it.
 * @param {import('../elements/elements.js').Component} component
 */
export const mount = (component) =>
  mountOnce(
    { data: null, parentElement: component.parentElement, check: component.data.check },
    (first) => new Preflight(first),
  );

/** @typedef {{state: string, where: string, row: string, value: string, fix: string|null}} Trouble */
/** @typedef {{name: string, cells: [state: string, words: string][]}} Node */
/** @typedef {{text: string, share: number, problem?: string|null}} Link */
/** @typedef {Link & {name: string}} NamedLink */
/** @typedef {{summary: string, nodes: string[], matrix: (Link|null)[][]|null, slowest: NamedLink[]}} Links */
/**
 * @typedef {{title: string, verdict: string, troubles: Trouble[], rows: string[], nodes: Node[], links: Links|null}}
 *   Check of `dashboard.cluster.preflight_matrix`
 */

class Preflight {
  /** @type {Map<string, string>} what each part shows */
  _drawn = new Map();
  _allTroubles = false;
  _allNodes = false;
  /** @type {Check|null} */
  _check = null;

  /** @param {import('../elements/elements.js').Component} component */
  constructor(component) {
    this._title = el('p', { class: 'title', role: 'status' });
    this._troubles = el('ul', { class: 'troubles' });
    this._matrix = el('div', { class: 'scroll' });
    this._links = el('div', { class: 'links' });
    this._root = el(
      'section',
      { class: 'preflight', 'aria-label': 'Preflight' },
      this._title,
      this._troubles,
      this._matrix,
      this._links,
    );
    component.parentElement.append(this._root);
    this.refresh(component);
  }

  /** @param {import('../elements/elements.js').Component} component */
  refresh({ check }) {
    if (check) this._show(check);
  }

  /** @param {Check} check */
  _show(check) {
    this._check = check;
    setText(this._title, check.title);
    this._title.className = `title ${check.verdict}`;
    this._once('troubles', [check.troubles, this._allTroubles], () => this._showTroubles(check.troubles));
    this._once('matrix', [check.rows, check.nodes, this._allNodes], () => this._showMatrix(check));
    this._once('links', check.links, () => this._showLinks(check.links));
  }

  destroy() {
    this._root.remove();
  }

  /**
   * Drawn again only when it differs: what is selected or scrolled stays.
   * @param {string} name
   * @param {unknown} what
   * @param {() => void} draw
   */
  _once(name, what, draw) {
    const key = JSON.stringify(what);
    if (this._drawn.get(name) === key) return;
    this._drawn.set(name, key);
    draw();
  }

  /** @param {Trouble[]} troubles */
  _showTroubles(troubles) {
    const shown = this._allTroubles ? troubles : troubles.slice(0, MOST_TROUBLES);
    const items = shown.map(({ state, where, row, value, fix }) =>
      el(
        'li',
        { class: state },
        el('b', { class: 'sign', 'aria-hidden': 'true', text: SIGNS[state] }),
        el(
          'span',
          {},
          el('b', { text: `${where} · ${row}` }),
          ` ${value}.`,
          fix ? el('span', { class: 'fix' }, ...withCode(fix)) : null,
        ),
      ),
    );
    if (shown.length < troubles.length)
      items.push(
        el(
          'li',
          {},
          this._more(`and ${troubles.length - shown.length} more`, () => {
            this._allTroubles = true;
          }),
        ),
      );
    this._troubles.replaceChildren(...items);
  }

  /** @param {{rows: string[], nodes: Node[]}} check */
  _showMatrix({ rows, nodes }) {
    /** @param {Node} node */
    const isRed = (node) => node.cells.some(([state]) => state === 'failed' || state === 'warning');
    const hides = nodes.length > ALL_UP_TO && !this._allNodes;
    const shown = hides ? nodes.filter(isRed) : nodes;
    const hasWords = shown.length <= WORDS_UP_TO;
    const head = el(
      'tr',
      {},
      el('th', { scope: 'col', text: 'Node' }),
      ...rows.map((row) => el('th', { scope: 'col', text: row })),
    );
    const lines = shown.map(({ name, cells }) =>
      el(
        'tr',
        {},
        el('th', { scope: 'row', text: name }),
        ...cells.map(([state, words], at) =>
          el(
            'td',
            { class: state, title: `${name} · ${rows[at]}: ${words || state}` },
            el('b', { class: 'sign', 'aria-hidden': 'true', text: SIGNS[state] }),
            el('span', { class: hasWords ? 'words' : 'unseen', text: words || (hasWords ? '' : state) }),
          ),
        ),
      ),
    );
    const table = el('table', { class: 'matrix' }, el('thead', {}, head), el('tbody', {}, ...lines));
    const hidden = nodes.filter((node) => !shown.includes(node));
    const hiddenNodes = hidden.length
      ? el(
          'p',
          { class: 'rest' },
          el('span', { text: restOf(hidden) }),
          this._more('Show them', () => {
            this._allNodes = true;
          }),
        )
      : null;
    this._matrix.replaceChildren(...[shown.length ? table : null, hiddenNodes].filter((part) => part !== null));
  }

  /** @param {string} text @param {() => void} change */
  _more(text, change) {
    const show = () => {
      change();
      if (this._check) this._show(this._check);
    };
    return el('button', { type: 'button', class: 'more', text, onclick: show });
  }

  /** @param {Links|null} links */
  _showLinks(links) {
    if (!links) {
      this._links.replaceChildren();
      return;
    }
    const title = el('p', { class: 'title', text: 'Bandwidth' });
    const about = el('p', { class: 'rest', text: links.summary });
    this._links.replaceChildren(
      title,
      about,
      links.matrix ? this._heat(links.nodes, links.matrix) : slowest(links.slowest),
    );
  }

  /** @param {string[]} nodes @param {(Link|null)[][]} matrix */
  _heat(nodes, matrix) {
    const head = el('tr', {}, el('td', {}), ...nodes.map((name) => el('th', { scope: 'col', text: name })));
    const lines = matrix.map((row, at) =>
      el(
        'tr',
        {},
        el('th', { scope: 'row', text: nodes[at] }),
        ...row.map((link, peer) =>
          link
            ? el('td', {
                class: link.problem ? 'link failed' : 'link',
                style: `--share:${Math.round(link.share * 100)}%`,
                title: `${nodes[at]} – ${nodes[peer]}: ${link.problem ?? link.text}`,
                text: link.text,
              })
            : el('td', { class: 'link none', text: at === peer ? '' : '–' }),
        ),
      ),
    );
    return el(
      'div',
      { class: 'scroll' },
      el('table', { class: 'heat' }, el('thead', {}, head), el('tbody', {}, ...lines)),
    );
  }
}

/** @param {Node[]} nodes */
function restOf(nodes) {
  const waiting = nodes.filter((node) => node.cells.some(([state]) => state === 'waiting')).length;
  const counts = [
    [nodes.length - waiting, 'are all green'],
    [waiting, 'are still pending'],
  ];
  return `${counts
    .filter(([count]) => count)
    .map(([count, words]) => `${count} nodes ${words}`)
    .join(', ')}. `;
}

/** Commands stand between backticks. @param {string} text */
function withCode(text) {
  return text.split('`').map((part, at) => (at % 2 ? el('code', { text: part }) : document.createTextNode(part)));
}

/** @param {NamedLink[]} links */
function slowest(links) {
  const items = links.map(({ name, text, share }) =>
    el(
      'li',
      {},
      el('span', { class: 'pair', text: name }),
      el('span', { class: 'bar' }, el('i', { style: `width:${Math.round(share * 100)}%` })),
      el('b', { text }),
    ),
  );
  return el('ol', { class: 'slowest', 'aria-label': 'Slowest links' }, ...items);
}
