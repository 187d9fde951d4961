/**
 * Asks the server for a picture every two seconds while the page is seen, and says so where no answer comes.
 */

import { apiUrl } from '../live/live_connection.js';
import { takeAnswer } from './ahead.js';
import { setText } from './elements.js';

const ASKED_EVERY_MS = 2000;

export class Polling {
  /**
   * @param {HTMLElement} root is marked stale while no answer comes @param {HTMLElement} trouble says why
   * @param {() => string} path below the server's address; an answer to an earlier path is dropped, and
   *   another one is asked at once
   * @param {(picture: any, answer: Response) => void} show with null where the picture is the one shown
   *   already
   * @param {() => boolean} isSeen whether to ask at all
   */
  constructor(root, trouble, path, show, isSeen = () => true) {
    Object.assign(this, { _root: root, _trouble: trouble, _path: path, _show: show, _isSeen: isSeen });
    this._wake = () => {
      if (!document.hidden) this.askSoon(0);
    };
    document.addEventListener('visibilitychange', this._wake);
  }

  askSoon(wait) {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => void this._ask(), wait);
  }

  destroy() {
    this._ended = true;
    clearTimeout(this._timer);
    document.removeEventListener('visibilitychange', this._wake);
  }

  async _ask() {
    const path = this._path();
    if (!document.hidden && this._isSeen()) await this._fetch(path);
    if (!this._ended && !document.hidden) this.askSoon(path === this._path() ? ASKED_EVERY_MS : 0);
  }

  async _fetch(path) {
    try {
      const answer = await (takeAnswer(path) ?? fetch(apiUrl(path), { cache: 'no-cache' }));
      const text = answer.ok ? await answer.text() : '';
      if (this._ended || path !== this._path()) return;
      this._say(answer.ok ? '' : await refusal(answer));
      if (!answer.ok) return;
      const isNew = text !== this._text;
      this._text = text;
      this._show(isNew ? JSON.parse(text) : null, answer);
    } catch {
      if (!this._ended) this._say('Rankzero does not answer. Trying again…');
    }
  }

  _say(trouble) {
    setText(this._trouble, trouble);
    this._root.classList.toggle('stale', trouble !== '');
  }
}

/** Why there is no picture, and what to do. @param {Response} answer */
async function refusal(answer) {
  if (answer.status === 401 || answer.status === 403) return 'Signed out: reload the page';
  const document =
    answer.status === 422 || answer.status === 503 ? await answer.json().catch(() => null) : null;
  return document?.detail?.message ?? 'The store does not answer. Trying again…';
}
