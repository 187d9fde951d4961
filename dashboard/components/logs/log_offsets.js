/**
 * Byte offsets of a log's lines on the page: noted where a piece of text began, counted from there by line
 * breaks.
 */

const AT_ONCE_BYTES = 256 * 1024;
const LINE_BREAK = 10;

export class LogOffsets {
  _line = 0;
  _offset = 0;
  /**
   * @type {{line: number, offset: number}[]} pieces of text: in which line of the page, and at which byte,
   *   each began
   */
  _pieces = [{ line: 0, offset: 0 }];

  /** The page's first line begins at a byte of the log. @param {number} line @param {number} offset */
  begin(line, offset) {
    this._line = line;
    this._offset = offset;
    /**
     * @type {{line: number, offset: number}[]} pieces of text: in which line of the page, and at which byte,
     *   each began
     */
    this._pieces = [{ line, offset }];
  }

  /** Another piece follows. @param {number} line the line that it goes on @param {number} offset */
  follow(line, offset) {
    this._pieces.push({ line, offset });
  }

  /** Whether lines before this one were on the page once. @param {number} first the first that still is */
  hasDropped(first) {
    while (this._pieces.length > 1 && this._pieces[1].line < first) this._pieces.shift();
    return first > this._line;
  }

  /**
   * @param {number} first the page's first line
   * @param {(offset: number, limit: number) => Promise<Uint8Array>} read
   * @returns {Promise<number>} the byte at which it begins
   */
  async startOf(first, read) {
    if (!this.hasDropped(first)) return this._offset;
    const { line, offset } = this._pieces[0];
    let [left, at] = [first - line, offset];
    for (;;) {
      const bytes = await read(at, AT_ONCE_BYTES);
      if (!bytes.length) throw new Error('The log is shorter than it was.');
      for (let i = 0; i < bytes.length; i++) {
        if (bytes[i] === LINE_BREAK && --left === 0) return at + i + 1;
      }
      at += bytes.length;
    }
  }
}
