/** A log as lines: progress bars collapsed to their last state, colours read, control characters left out. */

/** Characters of one line that are kept. */
export const LONGEST_LINE = 64 * 1024;
const COLOURS = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
// Operating-system commands (titles, links), control sequences, and other two-character escapes.
const ESCAPES =
  /\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[([0-9;:]*)[ -/]*[@-~]|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]?/g;
const CONTROLS = /[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]/g;

/**
 * @typedef {{rank: number|'launcher', stream: 'out'|'err', offset: number, at: number|null, position:
 *   string}} Source where a line of several logs comes from
 * @typedef {Source & {text: string}} SourcedLine
 */
/**
 * @typedef {{text: string, cut: number, source?: Source}} Line `cut`: how many characters were left out at
 *   its end
 */

export class LogText {
  constructor() {
    /** @type {Line[]} the last one is still open */
    this.lines = [{ text: '', cut: 0 }];
    /** Lines that were dropped at the beginning: the number of the first one kept. */
    this.first = 0;
  }

  /** Number of the line after the last. */
  get end() {
    return this.first + this.lines.length;
  }

  get isEmpty() {
    return this.lines.length === 1 && this.lines[0].text === '';
  }

  /** @param {string} text @returns {number} number of the first line that changed */
  append(text) {
    const changed = this.end - 1;
    const pieces = text.split('\n');
    this._extend(pieces[0]);
    for (let i = 1; i < pieces.length; i++) {
      this.lines.push({ text: '', cut: 0 });
      this._extend(pieces[i]);
    }
    return changed;
  }

  /** Put what stands before into the front; its last line continues in our first. @param {string} text */
  prepend(text) {
    const earlier = new LogText();
    earlier.append(text);
    const joint = earlier.lines[earlier.lines.length - 1];
    const rest = this.lines[0];
    joint.cut += rest.cut;
    this.lines[0] = joint;
    joint.text += rest.text;
    shorten(joint);
    this.lines.unshift(...earlier.lines.slice(0, -1));
    this.first -= earlier.lines.length - 1;
  }

  /**
   * Add whole lines, each with where it comes from.
   * @param {SourcedLine[]} lines
   * @returns {number} number of the first one
   */
  appendLines(lines) {
    const first = this.end - 1;
    const open = this.lines.splice(-1);
    for (const line of lines) this.lines.push(sourced(line));
    this.lines.push(...open);
    return first;
  }

  /** Put whole lines into the front. @param {SourcedLine[]} lines */
  prependLines(lines) {
    this.lines = [...lines.map(sourced), ...this.lines];
    this.first -= lines.length;
  }

  /** Keep only the last lines. @param {number} most */
  keepLast(most) {
    const surplus = this.lines.length - most;
    if (surplus <= 0) return;
    this.lines.splice(0, surplus);
    this.first += surplus;
  }

  /** @param {number} number */
  line(number) {
    return this.lines[number - this.first];
  }

  /** @param {string} piece */
  _extend(piece) {
    const line = this.lines[this.lines.length - 1];
    line.text += piece;
    shorten(line);
  }
}

/** Which rank and stream wrote a line. @param {Source} source */
export function origin({ rank, stream }) {
  return `${rank === 'launcher' ? rank : `rank ${rank}`} ${stream === 'err' ? 'stderr' : 'stdout'}`;
}

/** What a terminal would show of the line, without its colours. @param {Line} line */
export function plainText(line) {
  return line.text.replace(/\r+$/, '').replace(ESCAPES, '').replace(CONTROLS, '');
}

/**
 * The line in pieces of one colour each.
 * @param {Line} line
 * @returns {{text: string, style: string}[]} `style` is a list of class names
 */
export function coloured(line) {
  const text = line.text.replace(/\r+$/, '');
  if (!text.includes('\x1b')) return [{ text: text.replace(CONTROLS, ''), style: '' }];
  /** @type {{text: string, style: string}[]} */
  const pieces = [];
  let style = new Style();
  let from = 0;
  /** @param {number} to */
  const take = (to) => {
    const part = text.slice(from, to).replace(CONTROLS, '');
    if (part) pieces.push({ text: part, style: style.classes() });
  };
  for (const match of text.matchAll(ESCAPES)) {
    take(match.index);
    from = match.index + match[0].length;
    if (match[1] !== undefined && match[0].endsWith('m')) style = style.after(match[1]);
  }
  take(text.length);
  return pieces;
}

class Style {
  constructor(colour = '', bold = false, dim = false) {
    this.colour = colour;
    this.bold = bold;
    this.dim = dim;
  }

  classes() {
    return [this.colour && `ansi-${this.colour}`, this.bold && 'ansi-bold', this.dim && 'ansi-dim']
      .filter(Boolean)
      .join(' ');
  }

  /** @param {string} codes the numbers of an SGR sequence */
  after(codes) {
    let { colour, bold, dim } = this;
    const numbers = codes.split(/[;:]/).map(Number);
    for (let i = 0; i < numbers.length; i++) {
      const code = numbers[i];
      if (code === 0) [colour, bold, dim] = ['', false, false];
      else if (code === 1) bold = true;
      else if (code === 2) dim = true;
      else if (code === 22) [bold, dim] = [false, false];
      else if (code === 39) colour = '';
      else if (code >= 30 && code <= 37) colour = COLOURS[code - 30];
      else if (code >= 90 && code <= 97) colour = COLOURS[code - 90];
      // 256 and true colours name their own next numbers, which must not be read as codes.
      else if (code === 38 || code === 48) i += numbers[i + 1] === 5 ? 2 : 4;
    }
    return new Style(colour, bold, dim);
  }
}

/** @param {Source & {text: string}} line @returns {Line} */
function sourced({ text, ...source }) {
  const line = { text, cut: 0, source };
  shorten(line);
  return line;
}

/** @param {Line} line */
function shorten(line) {
  // After a carriage return a progress bar is written anew; one at the very end is only the start of that.
  const restart = line.text.replace(/\r+$/, '').lastIndexOf('\r');
  if (restart >= 0) {
    line.text = line.text.slice(restart + 1);
    line.cut = 0;
  }
  if (line.text.length > LONGEST_LINE) {
    line.cut += line.text.length - LONGEST_LINE;
    line.text = line.text.slice(0, LONGEST_LINE);
  }
}
