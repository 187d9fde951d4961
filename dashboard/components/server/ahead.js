/**
 * Questions that leave with the click on a link to a page: the answer is on its way while Streamlit still
 * builds the page.
 */

import { begin } from './request.js';

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
export function takeAnswer(path) {
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
  asked.answer.catch(() => {}); // told by whoever takes it
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
