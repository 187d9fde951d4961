/** Asks the server for a picture every two seconds while the page is seen, and says so where no answer comes. */

import { setText } from '../elements/elements.js';
import { begin, Newest, RequestError } from './request.js';

const ASKED_EVERY_MS = 2000;

export class Polling {
  /**
   * @param {HTMLElement} root is marked stale while no answer comes
   * @param {HTMLElement} trouble says why
   * @param {() => string} path below the server's address; an answer to an earlier path is dropped, and
   *   another one is asked at once
   * @param {(picture: any, headers: Headers) => void} show with null where the picture is the one shown
   *   already
   * @param {() => boolean} isSeen whether to ask at all
   */
  constructor(root, trouble, path, show, isSeen = () => true) {
    this._root = root;
    this._trouble = trouble;
    this._path = path;
    this._show = show;
    this._isSeen = isSeen;
    this._newest = new Newest();
    /** @type {string|undefined} */
    this._text = undefined;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    this._timer = undefined;
    this._ended = false;
    this._wake = () => {
      if (!document.hidden) this.askSoon(0);
    };
    document.addEventListener('visibilitychange', this._wake);
  }

  /** @param {number} waitMs */
  askSoon(waitMs) {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this._ask(), waitMs);
  }

  destroy() {
    this._ended = true;
    this._newest.end();
    clearTimeout(this._timer);
    document.removeEventListener('visibilitychange', this._wake);
  }

  async _ask() {
    const path = this._path();
    if (!document.hidden && this._isSeen()) await this._request(path);
    if (!this._ended && !document.hidden) this.askSoon(path === this._path() ? ASKED_EVERY_MS : 0);
  }

  /** @param {string} path */
  async _request(path) {
    const options = { cache: /** @type {const} */ ('no-cache'), asked: takeAnswer(path) };
    try {
      const answer = await this._newest.read(path, options, withHeaders);
      if (answer && this._isWanted(path)) this._answered(answer);
    } catch (error) {
      if (this._isWanted(path)) this._say(troubleOf(error));
    }
  }

  /** @param {string} path */
  _isWanted(path) {
    return !this._ended && path === this._path();
  }

  /** @param {{text: string, headers: Headers}} answer */
  _answered({ text, headers }) {
    this._say('');
    const isNew = text !== this._text;
    const picture = isNew ? JSON.parse(text) : null;
    this._text = text;
    this._show(picture, headers);
  }

  /** @param {string} trouble */
  _say(trouble) {
    setText(this._trouble, trouble);
    this._root.classList.toggle('stale', trouble !== '');
  }
}

/** @param {Response} answer */
async function withHeaders(answer) {
  return { text: await answer.text(), headers: answer.headers };
}

/** Why there is no picture, and what to do. @param {unknown} error */
function troubleOf(error) {
  if (!(error instanceof RequestError) || error.status === 0) return 'Rankzero does not answer. Trying again…';
  if (error.isExplained && [403, 422, 503].includes(error.status)) return error.message;
  if (error.status === 401 || error.status === 403) return 'Signed out: reload the page';
  return 'The store does not answer. Trying again…';
}

// A question leaves with the click on a link to a page: its answer is on its way while Streamlit still builds the page.
const FRESH_MS = 3000;
/** What each page will ask first, by its address without the query. @type {Map<string, string>} */
const firstOf = new Map();
/** @type {{path: string, at: number, answer: Promise<Response>}|null} */
let asked = null;

/**
 * Ask this at the next click that leads to the page.
 * @param {string} page its address
 * @param {string} path below the server's address
 */
export function askAtClick(page, path) {
  firstOf.set(new URL(page).pathname, path);
}

/**
 * The answer for which a click has asked just now, given once; null where there is none.
 * @param {string} path
 * @returns {Promise<Response>|null}
 */
function takeAnswer(path) {
  if (asked?.path !== path) return null;
  const { at, answer } = asked;
  asked = null;
  return performance.now() - at < FRESH_MS ? answer : null;
}

/** @param {string} page its address without the query */
function ask(page) {
  const path = firstOf.get(page);
  if (path === undefined) return;
  firstOf.delete(page);
  asked = { path, at: performance.now(), answer: begin(path, { cache: 'no-cache' }) };
  asked.answer.catch(() => {}); // its consumer reports the error
}

document.addEventListener(
  'click',
  (event) => {
    const link = event.composedPath().find((part) => part instanceof HTMLAnchorElement);
    const isForTab = event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
    if (link && !isForTab) ask(link.pathname);
  },
  { capture: true },
);
addEventListener('popstate', () => ask(location.pathname));
