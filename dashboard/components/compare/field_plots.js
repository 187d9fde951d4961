/** Plots over the fields of compared runs: a scatter of two and parallel coordinates of several. */

import { choose, chooseList, chosen, chosenList } from '../elements/address.js';
import { closestTo, el, redraw, setText, toggle } from '../elements/elements.js';
import { number, plural } from '../elements/numbers.js';
import { runColour } from '../elements/theme.js';
import { follow, linkOf } from '../links/links.js';
import { axis, bounds, isWide } from '../plots/axes.js';
import { markItems, parallel, scatter } from '../plots/plots.js';
import { fieldSelect, fieldsOf, firstResult, firstSetting, settingsOf, textOf, varies } from './fields.js';

const FIRST_AXES = 4;
const LEAST_WIDTH = 260;
const MOST_COLOURS = 12;

/** @typedef {import('./fields.js').Field} Field */
/** @typedef {{of: (run: string) => string, legend: [string, string][]}} Colours */

export class FieldPlots {
  /** @type {Map<string, Field>} */
  _fields = new Map();
  /** @type {string[]} */
  _present = [];
  /** @type {string|null} */
  _highlighted = null;
  _drawnWidth = 0;
  /** @type {(() => void)|undefined} */
  _leave;

  /**
   * @param {HTMLElement} parent
   * @param {{runs: import('./comparison.js').ComparedRun[], theme: () => any, itemOf: (run: string) => {key:
   *   string, colour: number}, isHidden: (run: string) => boolean, onPoint: (key: string|null) => void}} page
   */
  constructor(parent, page) {
    this._page = page;
    /** @param {string} name @param {string} label @param {string|null} [none] */
    const select = (name, label, none) => fieldSelect(label, (id) => this._choose({ [name]: id }), none);
    this._selects = {
      across: select('across', 'Horizontal field'),
      up: select('up', 'Vertical field'),
      colour: select('colour', 'Colour by', 'Colour by run'),
    };
    this._logs = { across: this._logToggle('across', 'horizontal'), up: this._logToggle('up', 'vertical') };
    this._axis = fieldSelect('Add or remove an axis', (id) => this._toggleAxis(id), 'Add or remove an axis…');
    this._scatter = el('div', {});
    this._parallel = el('div', {});
    this._colours = el('p', { class: 'colours' });
    this._note = el('p', { class: 'same', role: 'status' });
    const bar = el(
      'div',
      { class: 'bar' },
      this._selects.up.element,
      this._logs.up,
      el('span', { text: 'over' }),
      this._selects.across.element,
      this._logs.across,
      this._selects.colour.element,
    );
    this._root = el(
      'section',
      { class: 'field-plots plots', 'aria-label': 'Fields', hidden: true },
      el('figure', {}, bar, this._scatter, this._colours, this._note),
      el(
        'figure',
        {},
        el('div', { class: 'bar' }, el('span', { text: 'Parallel coordinates' }), this._axis.element),
        this._parallel,
      ),
    );
    parent.append(this._root);
    for (const kind of ['pointerover', 'focusin'])
      this._root.addEventListener(kind, (event) => this._point(event, true));
    for (const kind of ['pointerout', 'focusout'])
      this._root.addEventListener(kind, (event) => this._point(event, false));
    this._root.addEventListener('click', (event) => {
      const link = linkOf(event);
      if (link) this._leave = follow(event, link) ?? this._leave;
    });
    this._sizes = new ResizeObserver(() => this._widthChanged());
    this._sizes.observe(this._root);
  }

  destroy() {
    this._leave?.();
    this._sizes.disconnect();
  }

  /** @param {import('../server/documents.js').Comparison} document of the comparison */
  show(document) {
    this._fields = fieldsOf(document);
    this._present = document.runs;
    this.draw();
  }

  /** Draw anew: other runs are hidden, they are grouped, or the theme is another. */
  draw() {
    const fields = this._fields;
    const hasFields = fields.size > 1 && this._present.length > 1;
    this._root.hidden = !hasFields;
    if (!hasFields) return;
    const [across, up] = [this._field('across'), this._field('up')];
    const colour = fields.get(chosen('colour') ?? '');
    this._selects.across.offer(fields, across.id);
    this._selects.up.offer(fields, up.id);
    this._selects.colour.offer(fields, colour?.id ?? '');
    this._logs.across.setAttribute('aria-pressed', String(this._isLog(across)));
    this._logs.up.setAttribute('aria-pressed', String(this._isLog(up)));
    const runs = this._present.filter((run) => !this._page.isHidden(run));
    const colours = this._coloursOf(colour, runs);
    this._drawScatter(across, up, runs, colours);
    this._drawParallel(runs, colours, up);
    this._showColours(colour, colours);
    this.highlight(this._highlighted);
  }

  /** Mark a run or a group; null for none. @param {string|null} key */
  highlight(key) {
    this._highlighted = key;
    const runs = this._present.filter((run) => this._page.itemOf(run).key === key);
    markItems(this._root, new Set(runs));
  }

  /**
   * The field of an axis: the one that was chosen, or a telling one.
   * @param {'across'|'up'} name
   * @returns {Field}
   */
  _field(name) {
    const fields = this._fields;
    const [first, second] = fields.values();
    const telling = name === 'across' ? (firstSetting(fields) ?? first) : (firstResult(fields) ?? second);
    return fields.get(chosen(name) ?? '') ?? telling;
  }

  /** @param {Field} up @returns {Field[]} */
  _axes(up) {
    const named = chosenList('axes')
      .map((id) => this._fields.get(id))
      .filter((field) => field !== undefined);
    if (named.length) return named;
    const settings = settingsOf(this._fields)
      .sort((one, other) => Number(varies(other)) - Number(varies(one)))
      .slice(0, FIRST_AXES);
    return [...settings, ...(settings.includes(up) ? [] : [up])];
  }

  /** @param {Record<string, string>} choices */
  _choose(choices) {
    choose(choices);
    this.draw();
  }

  /** @param {string} id */
  _toggleAxis(id) {
    if (!id) return;
    const ids = this._axes(this._field('up')).map((field) => field.id);
    chooseList('axes', ids.includes(id) ? ids.filter((other) => other !== id) : [...ids, id]);
    this.draw();
  }

  /** @param {'across'|'up'} name @param {string} word */
  _logToggle(name, word) {
    return toggle('Log', `Logarithmic ${word} axis`, false, (on) => {
      const { id } = this._field(name);
      for (const list of ['logs', 'linear']) {
        const others = chosenList(list).filter((other) => other !== id);
        chooseList(list, on === (list === 'logs') ? [...others, id] : others);
      }
      this.draw();
    });
  }

  /** @param {Field} field */
  _isLog(field) {
    const values = this._valuesOf(field).filter(Number.isFinite);
    if (!field.isNumber || values.some((value) => value <= 0)) return false;
    return chosenList('logs').includes(field.id) || (isWide(values) && !chosenList('linear').includes(field.id));
  }

  /** @param {Field} field */
  _axisOf(field) {
    return axis(field.label, field.isNumber ? (this._isLog(field) ? 'log' : 'linear') : 'list', this._valuesOf(field));
  }

  /** @param {Field} field */
  _valuesOf(field) {
    return this._present.map((run) => field.of.get(run));
  }

  /**
   * The runs without a value on one of the axes are named.
   * @param {Field} across
   * @param {Field} up
   * @param {string[]} runs
   * @param {Colours} colours
   */
  _drawScatter(across, up, runs, colours) {
    /** @param {string} run */
    const isWithout = (run) =>
      [across, up].some((field) => {
        const value = field.of.get(run);
        return value === null || value === undefined || (field.isNumber && !Number.isFinite(value));
      });
    const missing = runs.filter(isWithout).map((run) => this._nameOf(run));
    setText(this._note, missing.length ? `Without a value: ${missing.join(', ')}` : '');
    const items = runs.map((run) => this._item(run, [across, up], colours));
    redraw(
      this._scatter,
      scatter(this._axisOf(across), this._axisOf(up), items, this._width(), `${up.label} over ${across.label}`),
    );
  }

  /** @param {string[]} runs @param {Colours} colours @param {Field} up */
  _drawParallel(runs, colours, up) {
    const fields = this._axes(up);
    this._axis.offer(this._fields, '');
    const items = runs.map((run) => this._item(run, fields, colours));
    this._parallel.replaceChildren(
      parallel(
        fields.map((field) => this._axisOf(field)),
        items,
        this._width(),
        'Parallel coordinates',
      ),
    );
    // One way by the keyboard to each run is enough.
    for (const link of this._parallel.querySelectorAll('a')) link.setAttribute('tabindex', '-1');
  }

  /** @param {string} run @param {Field[]} fields @param {Colours} colours */
  _item(run, fields, colours) {
    const title = [this._nameOf(run), ...new Set(fields)]
      .map((part) => (typeof part === 'string' ? part : `${part.label}: ${textOf(part, run)}`))
      .join('\n');
    return {
      key: run,
      run,
      title,
      colour: colours.of(run),
      values: fields.map((field) => field.of.get(run)),
    };
  }

  /**
   * By run or group, along a scale, or one for each of a few values.
   * @param {Field|undefined} field
   * @param {string[]} runs
   * @returns {Colours}
   */
  _coloursOf(field, runs) {
    const theme = this._page.theme();
    /** @param {string} run */
    const ofRun = (run) => runColour(this._page.itemOf(run).colour, theme);
    if (!field) return { of: ofRun, legend: [] };
    const values = runs
      .map((run) => field.of.get(run))
      .filter((value) => value !== null && value !== undefined && !Number.isNaN(value));
    if (field.isNumber) {
      const ends = bounds(values.filter(Number.isFinite));
      const { share } = this._axisOf(field);
      /** @param {number} part */
      const mixed = (part) =>
        `color-mix(in oklab, ${theme.palette[1]} ${Math.round(100 * part)}%, ${theme.palette[0]})`;
      /** @param {string} run */
      const of = (run) => {
        const part = share(field.of.get(run));
        return part === null ? theme.muted : mixed(part);
      };
      return {
        of,
        legend: values.length
          ? [
              [number(ends[0], 3), mixed(0)],
              [number(ends[1], 3), mixed(1)],
            ]
          : [],
      };
    }
    const distinct = [...new Set(values)];
    const colours = distinct.map((_, position) => runColour(position, theme));
    return {
      of: (run) => colours[distinct.indexOf(field.of.get(run))] ?? theme.muted,
      legend: distinct.map((value, position) => [String(value), colours[position]]),
    };
  }

  /** @param {Field|undefined} field @param {Colours} colours */
  _showColours(field, { legend }) {
    const parts = legend.slice(0, MOST_COLOURS).map(([text, colour]) => {
      const swatch = el('i', {});
      swatch.style.background = colour;
      return el('span', {}, swatch, el('span', { text }));
    });
    const more =
      legend.length > MOST_COLOURS
        ? [el('span', { text: `and ${plural(legend.length - MOST_COLOURS, 'more value')}` })]
        : [];
    this._colours.hidden = legend.length === 0;
    this._colours.replaceChildren(...(field ? [el('b', { text: field.label })] : []), ...parts, ...more);
  }

  /** @param {string} run */
  _nameOf(run) {
    return this._page.runs.find(({ id }) => id === run)?.name || run;
  }

  _width() {
    return Math.max(LEAST_WIDTH, this._scatter.clientWidth);
  }

  _widthChanged() {
    const width = this._root.clientWidth;
    if (width && width !== this._drawnWidth) this.draw();
    this._drawnWidth = width;
  }

  /** @param {Event} event @param {boolean} isOver */
  _point(event, isOver) {
    const run = closestTo(event, '[data-item]')?.getAttribute('data-item');
    if (run) this._page.onPoint(isOver ? this._page.itemOf(run).key : null);
  }
}
