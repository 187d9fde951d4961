/** The scrolling lines of a log: blocks of lines, drawn once a frame, following the end until somebody scrolls up. */

import { el, setText } from './elements.js';
import { coloured, LogText, plainText } from './log_lines.js';
import { size } from './numbers.js';

const MOST_LINES = 5000;
const MOST_LINES_WHILE_READING = 20_000;
const LINES_A_BLOCK = 250;
const LINE_HEIGHT_PX = 18;
const NEAR_END_PX = 12;

export class LogPane {
  /**
   * @param {{onFollow: (on: boolean) => void, onFound: (found: number|null, all: number) => void,
   *          onEarlier: () => void}} listeners
   */
  constructor(listeners) {
    this._listeners = listeners;
    this._query = '';
    this._follows = true;
    this._isVisible = false;
    this._earlier = el('button', { type: 'button', class: 'earlier', hidden: true, text: 'Load earlier lines', onclick: () => {
      this._earlier.disabled = true;
      listeners.onEarlier();
    } });
    this._empty = el('p', { class: 'log-empty', text: 'Connecting…' });
    this._lines = el('div', { class: 'lines' });
    this.element = el('div', { class: 'pane', tabindex: 0, role: 'log', 'aria-label': 'Log', 'aria-live': 'off' }, this._earlier, this._empty, this._lines);
    this.element.addEventListener('scroll', () => this._scrolled());
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
    document.removeEventListener('visibilitychange', this._shown);
    cancelAnimationFrame(this._frame);
  }

  clear() {
    this._text = new LogText();
    this._drawnFrom = 0;
    this._drawnTo = 0;
    this._extra = 0;
    this._lines.replaceChildren();
    this._earlier.hidden = true;
    this._drawSoon();
  }

  /** @param {string} text */
  append(text) {
    const changed = this._text.append(text);
    this._drawnTo = Math.min(this._drawnTo, changed);
    this._text.keepLast(this._most());
    this._drawSoon();
  }

  /** @param {string} text */
  prepend(text) {
    const before = this._text.lines.length;
    this._text.prepend(text);
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

  /** @param {string} query */
  search(query) {
    this._query = query.toLowerCase();
    this._redraw();
    if (this._follows) this._toEnd();
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
    this._listeners.onFound(this._query ? this._countFound() : null, end - text.first);
    if (this._follows) this._toEnd();
  }

  /** The last block, or a new one when it is full. */
  _block() {
    let block = this._lines.lastElementChild;
    if (!block || block.childElementCount >= LINES_A_BLOCK) {
      block = el('div', { class: 'block' });
      // Blocks out of sight are not laid out; their height is known all the same.
      block.style.containIntrinsicHeight = `${LINES_A_BLOCK * LINE_HEIGHT_PX}px`;
      this._lines.append(block);
    }
    return block;
  }

  _dropBefore(number) {
    for (; this._drawnFrom < Math.min(number, this._drawnTo); this._drawnFrom++) {
      const block = this._lines.firstElementChild;
      block?.firstElementChild?.remove();
      if (block && !block.childElementCount) block.remove();
    }
    this._drawnFrom = Math.max(this._drawnFrom, number);
  }

  _dropFrom(number) {
    for (let block = this._lines.lastElementChild; block; block = this._lines.lastElementChild) {
      while (block.lastElementChild && Number(block.lastElementChild.dataset.number) >= number) block.lastElementChild.remove();
      if (block.childElementCount) return;
      block.remove();
    }
  }

  _lineElement(number) {
    const line = this._text.line(number);
    const element = el('div', { class: 'text', 'data-number': number });
    for (const { text, style } of coloured(line)) {
      element.append(style ? el('span', { class: style, text }) : text);
    }
    if (line.cut) element.append(el('em', { class: 'cut', text: `… cut, ${size(line.cut)} more` }));
    if (!element.hasChildNodes()) element.append('\u200b');
    if (this._query && !this._matches(line)) element.hidden = true;
    return element;
  }

  _matches(line) {
    return plainText(line).toLowerCase().includes(this._query);
  }

  _countFound() {
    return this._text.lines.filter((line) => line.text && this._matches(line)).length;
  }

  _scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.element;
    if (!clientHeight) return;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    const wentUp = scrollTop < (this._lastTop ?? 0) - 1;
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
