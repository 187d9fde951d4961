/** All series of a source as cards, two in a row, drawn as points arrive. */

import { connecting, el, keepChildren, mountOnce, setText } from '../elements/elements.js';
import { readTheme, watchTheme } from '../elements/theme.js';
import { connect } from '../live/live_connection.js';
import { ChartCard } from './chart_card.js';
import { isEvent, matches } from './chart_groups.js';
import { loadPlotLibrary } from './chart_plot.js';
import { ChartSections } from './chart_sections.js';
import { createToolbar } from './chart_toolbar.js';
import { RunSource } from './run_source.js';

/** After drawing, this many times its cost belongs to others; but nobody waits longer than can be seen. */
const PAUSE_PER_COST = 6;
const LONGEST_PAUSE_MS = 100;

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) =>
  mountOnce(component, (first) => new Charts(first.parentElement, new RunSource(connect(first.data.run_id))));

/** @typedef {import('./chart_groups.js').ChartSpec} ChartSpec */

export class Charts {
  _grid = el('div', { class: 'grid' });
  _empty = el('p', { class: 'empty', role: 'status' }, connecting());
  _visibility = new IntersectionObserver((entries) => this._seen(entries), { rootMargin: '120px' });
  _sizes = new ResizeObserver((entries) => this._resized(entries));
  /** @type {(() => void)[]} */
  _endings = [];
  /** @type {ReturnType<typeof setTimeout>|undefined} */
  _timer;
  _frame = 0;
  _attempts = 0;
  _marks = '';
  /** @type {string|undefined} */
  _libraryError;
  /** @type {ChartSpec[]} */
  _placed = [];

  /**
   * @param {HTMLElement|ShadowRoot} parent
   * @param {import('./run_source.js').Source} source
   */
  constructor(parent, source) {
    this._source = source;
    this._connection = source.connection;
    this._query = source.query ?? '';
    this._axis = source.settings.xAxis;
    this._toolbar = createToolbar(
      source.settings,
      {
        onFilter: (query) => this._filter(query),
        onStructure: () => this._restructured(),
        onOlder: () => this.redraw(),
        onSmoothing: () => this._settingsChanged(),
      },
      source.axes,
      this._query,
    );
    this._toolbar.element.append(...(source.choices ?? []));
    /** @type {Map<string, ChartCard>} */
    this._cards = new Map();
    /** @type {Map<string, ChartCard[]>} */
    this._cardsOf = new Map();
    /** @type {Set<ChartCard>} */
    this._dirty = new Set();
    this._notBefore = 0;
    this._sections = new ChartSections(this._connection.kept, () => this._arrange());
    this._root = el(
      'div',
      { class: 'charts' },
      this._toolbar.element,
      this._sections.element,
      ...(source.notes ?? []),
      this._empty,
      this._grid,
    );
    parent.append(this._root);
    /** @type {import('./chart_card.js').Shared} */
    this._shared = {
      source,
      uPlot: null,
      theme: readTheme(this._root),
      highlighted: null,
      highlight: (key) => this.highlight(key),
      pointAt: (x, from) => this._pointAt(x, from),
      zoomTo: (zoom, from) => this._zoomTo(zoom, from),
      changed: (card) => this._mark([card]),
    };
    this._watch();
    this._arrange();
    void this._loadLibrary();
  }

  /** Draw a line before all others, in every chart; null for none. @param {string|null} key */
  highlight(key) {
    if (key === this._shared.highlighted) return;
    this._shared.highlighted = key;
    for (const card of this._cards.values()) card.showHighlighted();
    this._source.highlighted?.(key);
  }

  /** The source has other charts now, or other lines in them. */
  rebuild() {
    this._arrange();
    for (const card of this._cards.values()) card.invalidate();
    this.redraw();
  }

  redraw() {
    this._mark(this._cards.values());
  }

  /** Streamlit called again: the theme may be another. */
  refresh() {
    this._setTheme(readTheme(this._root));
  }

  destroy() {
    for (const end of this._endings) end();
    cancelAnimationFrame(this._frame);
    clearTimeout(this._timer);
    for (const card of this._cards.values()) card.destroy();
    this._root.remove();
    this._connection.forget(this);
    this._connection.release();
  }

  /** Another axis was chosen: a part of one is no part of another. */
  _restructured() {
    if (this._axis !== this._source.settings.xAxis) for (const card of this._cards.values()) card.resetZoom();
    this._axis = this._source.settings.xAxis;
    this._settingsChanged();
  }

  _settingsChanged() {
    this._source.settingsChanged?.();
    this.redraw();
  }

  /** @param {string} query */
  _filter(query) {
    this._query = query;
    this._source.filtered?.(query);
    this._arrange();
  }

  /** @param {import('./chart_card.js').Zoom|null} zoom @param {ChartCard} from */
  _zoomTo(zoom, from) {
    this._source.keepZoom(from.spec.id, zoom);
    for (const card of this._source.sharesAxis ? this._cards.values() : [from]) card.show(zoom);
  }

  _watch() {
    const connection = this._connection;
    const shown = () => {
      if (!document.hidden) this._schedule();
    };
    document.addEventListener('visibilitychange', shown);
    this._endings.push(
      connection.on('names', () => this._arrange()),
      connection.on('series', (/** @type {Set<string>} */ names) => this._seriesChanged(names)),
      connection.on('run', () => this._runChanged()),
      connection.on('status', () => this._showStatus()),
      connection.on('deleted', () => this._showEmpty()),
      watchTheme(this._root, (theme) => this._setTheme(theme)),
      () => document.removeEventListener('visibilitychange', shown),
      () => this._visibility.disconnect(),
      () => this._sizes.disconnect(),
    );
    this._showStatus();
  }

  async _loadLibrary() {
    try {
      this._shared.uPlot = await loadPlotLibrary();
      this._schedule();
    } catch (error) {
      this._libraryError = /** @type {Error} */ (error).message;
      this._showEmpty();
    }
  }

  /** @param {Set<string>} names */
  _seriesChanged(names) {
    if (this._attempts !== this._countAttempts()) this._arrange();
    this._showOlder();
    for (const name of names) this._mark(isEvent(name) ? this._cards.values() : (this._cardsOf.get(name) ?? []));
  }

  /** Redraw the markers of attempts, which may have become known only now. */
  _runChanged() {
    const marks = JSON.stringify(this._connection.run?.attempt_changes ?? []);
    if (marks !== this._marks) this.redraw();
    this._marks = marks;
    this._showEmpty();
  }

  /** Offer what was replaced where there is any. */
  _showOlder() {
    this._toolbar.showOlder(this._attempts > 1 || this._connection.store.hasReplaced());
  }

  /** Put the cards that belong on the page there, in order; those that are there stay as they are. */
  _arrange() {
    const specs = this._source.specs();
    this._attempts = this._countAttempts();
    this._showOlder();
    this._cardsOf.clear();
    for (const name of this._connection.sources.keys()) this._cardsOf.set(name, []);
    const removed = new Set(this._cards.keys());
    for (const spec of specs) {
      removed.delete(spec.id);
      this._cardFor(spec);
    }
    for (const id of removed) this._remove(id);
    this._place(specs.filter((spec) => matches(spec, this._query)));
    this._source.arranged?.();
    this._showEmpty();
  }

  /** @param {ChartSpec} spec */
  _cardFor(spec) {
    let card = this._cards.get(spec.id);
    if (!card) {
      card = new ChartCard(spec, this._shared);
      this._cards.set(spec.id, card);
      this._visibility.observe(card.element);
      this._sizes.observe(card.element);
    } else if (JSON.stringify(card.spec) !== JSON.stringify(spec)) {
      card.setSpec(spec);
      this._mark([card]);
    }
    for (const { name } of spec.lines) this._cardsOf.get(name)?.push(card);
    return card;
  }

  /** Put the charts of all open sections into the one grid. @param {ChartSpec[]} specs */
  _place(specs) {
    this._sections.arrange(
      specs.map((spec) => spec.group),
      this._query !== '',
    );
    this._placed = specs;
    keepChildren(
      this._grid,
      this._opened().map((spec) => this._labelled(spec).element),
    );
    this._want();
  }

  /** The charts of open sections. */
  _opened() {
    return this._placed.filter((spec) => this._sections.isOpen(spec.group));
  }

  /** The card of a chart, with the name of its section. @param {ChartSpec} spec */
  _labelled(spec) {
    const card = /** @type {ChartCard} */ (this._cards.get(spec.id));
    card.setSection(this._sections.labelOf(spec.group));
    return card;
  }

  /** Points are loaded only for charts of open sections. */
  _want() {
    const events = [...this._connection.sources.keys()].filter(isEvent);
    const shown = this._opened().flatMap((spec) => spec.lines.map((line) => line.name));
    this._connection.want(this, [...events, ...shown]);
  }

  /** @param {string} id */
  _remove(id) {
    const card = /** @type {ChartCard} */ (this._cards.get(id));
    this._visibility.unobserve(card.element);
    this._sizes.unobserve(card.element);
    this._dirty.delete(card);
    card.destroy();
    card.element.remove();
    this._cards.delete(id);
  }

  /** @param {IntersectionObserverEntry[]} entries */
  _seen(entries) {
    for (const entry of entries) {
      const card = this._cardAt(entry.target);
      if (card) card.isVisible = entry.isIntersecting;
    }
    this._schedule();
  }

  /** @param {ResizeObserverEntry[]} entries */
  _resized(entries) {
    for (const entry of entries) {
      const card = this._cardAt(entry.target);
      if (!card) continue;
      card.setWidth(entry.contentRect.width);
      this._mark([card]);
    }
  }

  /** @param {Element} element */
  _cardAt(element) {
    for (const card of this._cards.values()) if (card.element === element) return card;
    return null;
  }

  /** @param {Iterable<ChartCard>} cards */
  _mark(cards) {
    for (const card of cards) this._dirty.add(card);
    this._schedule();
  }

  /** @param {import('../elements/theme.js').Theme} theme */
  _setTheme(theme) {
    this._shared.theme = theme;
    for (const card of this._cards.values()) card.invalidate();
    this.redraw();
  }

  /** The next frame draws, unless drawing has lately taken more than its share of the time. */
  _schedule() {
    if (this._frame || this._timer || document.hidden || !this._shared?.uPlot) return;
    const wait = this._notBefore - performance.now();
    const frame = () => {
      this._timer = undefined;
      this._frame = requestAnimationFrame(() => this._drawDirty());
    };
    if (wait > 4) this._timer = setTimeout(frame, wait);
    else frame();
  }

  _drawDirty() {
    this._frame = 0;
    const started = performance.now();
    for (const card of this._dirty) {
      if (!card.isVisible) continue;
      this._dirty.delete(card);
      card.draw();
    }
    this._toolbar.showSmoothing([...this._cards.values()].some((card) => card.canSmooth()));
    // A message arrives after the frame is painted: painting costs more than deciding what to paint.
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      const now = performance.now();
      this._notBefore = now + Math.min(LONGEST_PAUSE_MS, (now - started) * PAUSE_PER_COST);
      port1.close();
    };
    port2.postMessage(null);
  }

  /** @param {number|null} x @param {ChartCard} from */
  _pointAt(x, from) {
    for (const card of this._cards.values())
      if (card.isVisible || x === null) card.pointAt(card.xAxis === from.xAxis ? x : null);
  }

  _countAttempts() {
    return this._source.attempts?.() ?? 0;
  }

  _showStatus() {
    this._toolbar.showStatus(this._connection.status);
    this._showEmpty();
  }

  _showEmpty() {
    const hasCards = this._placed.length > 0;
    const sentence =
      this._libraryError ??
      (hasCards
        ? ''
        : this._query && this._cards.size
          ? `No chart has “${this._query}” in its name.`
          : this._source.emptySentence());
    this._empty.hidden = sentence === '';
    setText(this._empty, sentence);
    // Its place is kept: what comes below must not move when it appears.
    const visibility = this._cards.size === 0 ? 'hidden' : '';
    this._toolbar.element.style.visibility = visibility;
    this._sections.element.style.visibility = visibility;
  }
}
