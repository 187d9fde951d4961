/** The scrolling lines of a log: blocks of lines, drawn once a frame, following the end until somebody scrolls up. */

import { connecting, el, setText } from '../elements/elements.js';
import { size } from '../elements/numbers.js';
import { coloured, LogText, origin, plainText } from './log_lines.js';

const MOST_LINES = 5000;
const MOST_LINES_WHILE_READING = 20_000;
const LINES_A_BLOCK = 250;
const LINE_HEIGHT_PX = 18;
const NEAR_END_PX = 12;
const HIGHLIGHT = 'log-match';
const MOST_MARKS = 2000;

export class LogPane {
  _text = new LogText();
  /** Lines before this one are no longer drawn, from `_drawnTo` on not yet. */
  _drawnFrom = 0;
  _drawnTo = 0;
  /** How many lines more than usual are kept: those that were loaded before the others. */
  _extra = 0;
  _frame = 0;
  _lastTop = 0;

  /**
   * @param {{onFollow: (on: boolean) => void, onEarlier: () => void, onLater: () => void, onChosen: (line:
   *   number) => void}} listeners
   */
  constructor(listeners) {
    this._listeners = listeners;
    this._chosen = -1;
    this._marked = '';
    this._follows = true;
    this._isVisible = false;
    this._earlier = el('button', {
      type: 'button',
      class: 'earlier',
      hidden: true,
      text: 'Load earlier lines',
      onclick: () => {
        this._earlier.disabled = true;
        listeners.onEarlier();
      },
    });
    this._later = el('button', {
      type: 'button',
      class: 'earlier',
      hidden: true,
      onclick: () => {
        this._later.disabled = true;
        listeners.onLater();
      },
    });
    this._empty = el('p', { class: 'log-empty' }, connecting());
    this._lines = el('div', { class: 'lines' });
    this.element = el(
      'div',
      { class: 'pane', tabindex: 0, role: 'log', 'aria-label': 'Log', 'aria-live': 'off' },
      this._earlier,
      this._empty,
      this._lines,
      this._later,
    );
    this.element.addEventListener('scroll', () => this._scrolled());
    this._lines.addEventListener('click', (event) => this._clicked(/** @type {HTMLElement} */ (event.target)));
    this._visibility = new IntersectionObserver((entries) => {
      this._isVisible = entries[entries.length - 1].isIntersecting;
      this._drawSoon();
    });
    this._visibility.observe(this.element);
    this._shown = () => this._drawSoon();
    document.addEventListener('visibilitychange', this._shown);
    this.clear();
  }

  destroy() {
    this._visibility.disconnect();
    CSS.highlights?.delete(HIGHLIGHT);
    document.removeEventListener('visibilitychange', this._shown);
    cancelAnimationFrame(this._frame);
  }

  /** @param {number} [first] number of the line that comes first, from 0; none where that is not known */
  clear(first) {
    this._text = new LogText();
    this._text.first = first ?? 0;
    this.element.classList.toggle('numbered', first !== undefined);
    this._chosen = -1;
    this._drawnFrom = this._text.first;
    this._drawnTo = this._text.first;
    this._extra = 0;
    this._lines.replaceChildren();
    this._earlier.hidden = this._later.hidden = true;
    this._drawSoon();
  }

  /** @param {string} text */
  append(text) {
    const changed = this._text.append(text);
    this._drawnTo = Math.min(this._drawnTo, changed);
    this._text.keepLast(this._most());
    this._drawSoon();
  }

  /** Add whole lines of several logs. @param {import('./log_lines.js').SourcedLine[]} lines */
  appendLines(lines) {
    this._drawnTo = Math.min(this._drawnTo, this._text.appendLines(lines));
    this._text.keepLast(this._most());
    this._drawSoon();
  }

  /** @param {string} text */
  prepend(text) {
    this._prepend(() => this._text.prepend(text));
  }

  /** @param {import('./log_lines.js').SourcedLine[]} lines whole ones of several logs */
  prependLines(lines) {
    this._prepend(() => this._text.prependLines(lines));
  }

  /** Number of the first line here. */
  get firstLine() {
    return this._text.first;
  }

  /** Number of the line that the next text goes on. */
  get openLine() {
    return this._text.end - 1;
  }

  /** Where the first line here comes from, of several logs. */
  get firstSource() {
    return this._text.lines[0].source;
  }

  /** Where the last line here comes from, of several logs. */
  get lastSource() {
    return this._text.lines.at(-2)?.source;
  }

  /** Where a line comes from, of several logs. @param {number} line from 1 */
  sourceOf(line) {
    return this._text.line(line - 1)?.source;
  }

  /** @param {() => void} add */
  _prepend(add) {
    const before = this._text.lines.length;
    add();
    this._extra += this._text.lines.length - before;
    const fromEnd = this.element.scrollHeight - this.element.scrollTop;
    this._redraw();
    this.element.scrollTop = this.element.scrollHeight - fromEnd;
  }

  /** @param {boolean} exists @param {string} [trouble] */
  offerEarlier(exists, trouble = '') {
    this._earlier.hidden = !exists;
    this._earlier.disabled = false;
    setText(this._earlier, trouble ? `${trouble} Try again` : 'Load earlier lines');
  }

  /** @param {boolean} exists whether lines follow that are not here @param {string} [trouble] */
  offerLater(exists, trouble = '') {
    this._later.hidden = !exists;
    this._later.disabled = false;
    setText(this._later, trouble ? `${trouble} Try again` : 'Load later lines');
  }

  /**
   * Show a stretch of the log and mark a line of it.
   * @param {string} text
   * @param {number} first
   * @param {number} chosen numbers from 1
   */
  showAround(text, first, chosen) {
    this.clear(first - 1);
    this._text.append(text);
    this._show(chosen);
  }

  /**
   * Show lines of several logs and mark one.
   * @param {import('./log_lines.js').SourcedLine[]} lines
   * @param {number} chosen number from 1
   */
  showLines(lines, chosen) {
    this.clear();
    this._text.appendLines(lines);
    this._show(chosen);
  }

  /** @param {number} chosen */
  _show(chosen) {
    this._follows = false;
    this._redraw();
    this.choose(chosen);
    this._lines.querySelector('.chosen')?.scrollIntoView({ block: 'center' });
    this._lastTop = this.element.scrollTop;
  }

  /** Mark a line. @param {number} line from 1 */
  choose(line) {
    this._chosen = line;
    for (const other of this._lines.querySelectorAll('.chosen')) other.classList.remove('chosen');
    this._lines.querySelector(`[data-number="${line - 1}"]`)?.classList.add('chosen');
  }

  /** Mark a text wherever it stands in the lines that are here; '' for none. @param {string} text */
  mark(text) {
    this._marked = text.toLowerCase();
    this._markMatches();
  }

  /** Highlights leave the lines as they are: ranges of their text are painted otherwise. */
  _markMatches() {
    CSS.highlights?.delete(HIGHLIGHT);
    if (!this._marked || !CSS.highlights) return;
    const ranges = [];
    const texts = document.createTreeWalker(this._lines, NodeFilter.SHOW_TEXT);
    while (texts.nextNode() && ranges.length < MOST_MARKS) {
      const node = /** @type {Text} */ (texts.currentNode);
      const lowered = node.data.toLowerCase();
      // A letter whose small form is longer: places would differ.
      if (lowered.length !== node.data.length) continue;
      for (let at = lowered.indexOf(this._marked); at >= 0; at = lowered.indexOf(this._marked, at + 1)) {
        ranges.push(
          new StaticRange({
            startContainer: node,
            startOffset: at,
            endContainer: node,
            endOffset: at + this._marked.length,
          }),
        );
      }
    }
    if (ranges.length) CSS.highlights.set(HIGHLIGHT, new Highlight(...ranges));
  }

  /** What is selected, else all lines that are here, as text. */
  copied() {
    const root = /** @type {any} */ (this.element.getRootNode());
    const selected = String(root.getSelection?.() ?? document.getSelection() ?? '');
    return (
      selected ||
      this._text.lines.map((line) => (line.source ? `${origin(line.source)}: ` : '') + plainText(line)).join('\n')
    );
  }

  /** @param {boolean} on */
  wrap(on) {
    this.element.classList.toggle('wraps', on);
    if (this._follows) this._toEnd();
  }

  /** @param {boolean} on */
  follow(on) {
    this._follows = on;
    if (on) this._toEnd();
  }

  /** @param {string} sentence */
  setEmptySentence(sentence) {
    setText(this._empty, sentence);
  }

  _most() {
    return (this._follows ? MOST_LINES : MOST_LINES_WHILE_READING) + this._extra;
  }

  _drawSoon() {
    if (this._frame || !this._isVisible || document.hidden) return;
    this._frame = requestAnimationFrame(() => {
      this._frame = 0;
      this._draw();
    });
  }

  _redraw() {
    this._lines.replaceChildren();
    this._drawnFrom = this._drawnTo = this._text.first;
    this._draw();
  }

  _draw() {
    const text = this._text;
    this._empty.hidden = !text.isEmpty;
    if (this._drawnTo < text.first) return void this._redraw();
    this._dropBefore(text.first);
    this._dropFrom(this._drawnTo);
    // A file that ends with a line break has an open line without text, which needs no place yet.
    const end = text.line(text.end - 1)?.text === '' ? text.end - 1 : text.end;
    for (let number = this._drawnTo; number < end; number++) this._block().append(this._lineElement(number));
    this._drawnTo = Math.max(this._drawnTo, end);
    reserveHeight(this._lines.firstElementChild);
    reserveHeight(this._lines.lastElementChild);
    if (this._follows) this._toEnd();
    if (this._marked) this._markMatches();
  }

  /** The last block, or a new one when it is full. @returns {HTMLElement} */
  _block() {
    let block = /** @type {HTMLElement|null} */ (this._lines.lastElementChild);
    if (!block || block.childElementCount >= LINES_A_BLOCK) {
      reserveHeight(block);
      block = el('div', { class: 'block' });
      this._lines.append(block);
    }
    return block;
  }

  /** @param {number} number */
  _dropBefore(number) {
    for (; this._drawnFrom < Math.min(number, this._drawnTo); this._drawnFrom++) {
      const block = this._lines.firstElementChild;
      block?.firstElementChild?.remove();
      if (block && !block.childElementCount) block.remove();
    }
    this._drawnFrom = Math.max(this._drawnFrom, number);
  }

  /** @param {number} number */
  _dropFrom(number) {
    for (let block = this._lines.lastElementChild; block; block = this._lines.lastElementChild) {
      for (let last = block.lastElementChild; last; last = block.lastElementChild) {
        if (Number(last.getAttribute('data-number')) < number) break;
        last.remove();
      }
      if (block.childElementCount) return;
      block.remove();
    }
  }

  /** @param {number} number */
  _lineElement(number) {
    const line = this._text.line(number);
    const element = el('div', {
      class: number === this._chosen - 1 ? 'text chosen' : 'text',
      'data-number': number,
      'data-line': number + 1,
    });
    if (line.source) element.append(originElement(element, line.source));
    for (const { text, style } of coloured(line)) {
      element.append(style ? el('span', { class: style, text }) : text);
    }
    if (line.cut) element.append(el('em', { class: 'cut', text: `… cut, ${size(line.cut)} more` }));
    if (!element.hasChildNodes()) element.append('\u200b');
    return element;
  }

  /** @param {HTMLElement} target */
  _clicked(target) {
    const line = Number(/** @type {HTMLElement|null} */ (target.closest('.text'))?.dataset.line);
    if (!line || !(this.element.classList.contains('numbered') || this.sourceOf(line))) return;
    this.choose(line);
    this._listeners.onChosen(line);
  }

  _scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.element;
    if (!clientHeight) return;
    const isAtEnd = this._later.hidden && scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    const wentUp = scrollTop < this._lastTop - 1;
    this._lastTop = scrollTop;
    if (isAtEnd === this._follows || (!isAtEnd && !wentUp)) return;
    this._follows = isAtEnd;
    this._listeners.onFollow(isAtEnd);
  }

  _toEnd() {
    this.element.scrollTop = this.element.scrollHeight;
    this._lastTop = this.element.scrollTop;
  }
}

/**
 * Blocks out of sight are not laid out; they still take the height of their lines, so that the end
 * stays where it is.
 * @param {Element|null} block
 */
function reserveHeight(block) {
  if (block instanceof HTMLElement)
    block.style.containIntrinsicHeight = `${block.childElementCount * LINE_HEIGHT_PX}px`;
}

/**
 * Marks a line of several logs with its rank and stream, before its text, and with the time at which it
 * arrived.
 * @param {HTMLElement} element
 * @param {import('./log_lines.js').Source} source
 */
function originElement(element, source) {
  const { at, stream } = source;
  element.classList.add('sourced', stream);
  element.dataset.time = at === null ? '' : clock(new Date(at * 1000));
  const title =
    at === null ? 'The arrival time of this line is unknown' : `Arrived at ${new Date(at * 1000).toLocaleString()}`;
  return el('span', { class: 'origin', title, text: `${origin(source)}: ` });
}

/** @param {Date} date */
function clock(date) {
  const two = (/** @type {number} */ number) => String(number).padStart(2, '0');
  const tenths = Math.floor(date.getMilliseconds() / 100);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${tenths}`;
}
