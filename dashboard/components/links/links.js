/**
 * Links between our pages: plain `<a href>`s that a click follows without loading everything anew, also such as look
 * like Streamlit's buttons, and the way to a page that was decided on the server.
 */

import { el, icon, mountOnce } from '../elements/elements.js';
import { leave } from '../live/redraws.js';
import { BASE } from '../server/request.js';

const ARRIVED_WITHIN_MS = 8000;
/** Streamlit sends a moment later what a component has told it. */
const SENT_WITHIN_MS = 80;

/** The link that an event is in. @param {Event} event @returns {HTMLAnchorElement|SVGAElement|null} */
export function linkOf({ target }) {
  return target instanceof Element ? target.closest('a') : null;
}

/** The address of a page of ours, as `run?id=…`. @param {string} address */
export function pageUrl(address) {
  return new URL(address, BASE).href;
}

/**
 * Go to a page of ours as Back and Forward do: Streamlit then changes the page on the browser's side, where
 * no rerun of the old page can come in between. A page that is still the old one after a
 * while is loaded.
 * @param {string} url
 * @returns {() => void} to be called when the old page is left
 */
export function go(url) {
  leave();
  setTimeout(() => {
    history.pushState(null, '', url);
    dispatchEvent(new PopStateEvent('popstate', { state: null }));
  }, SENT_WITHIN_MS);
  const timer = setTimeout(() => location.reload(), ARRIVED_WITHIN_MS);
  return () => clearTimeout(timer);
}

/**
 * Follow a link that was clicked, unless the click asks for another tab or window: that is the browser's.
 * @param {MouseEvent} event
 * @param {HTMLAnchorElement|SVGAElement} link
 * @returns {(() => void)|null} as of `go`
 */
export function follow(event, link) {
  if (event.defaultPrevented || event.button !== 0) return null;
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return null;
  event.preventDefault();
  const { href } = link;
  return go(typeof href === 'string' ? href : href.baseVal);
}

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new PageLink(first));

class PageLink {
  /**
   * @param {import('../elements/elements.js').Component} component `data`: address and, unless it is gone to
   *   at once, label, icon, kind, help
   */
  constructor({ data, parentElement }) {
    const url = pageUrl(data.address);
    this._root = el('span', { class: 'page-link' });
    parentElement.append(this._root);
    if (data.label === null) {
      if (data.forgets) sessionStorage.removeItem(data.forgets); // what was filled in, which is launched
      this._leave = go(url);
      return;
    }
    const link = el(
      'a',
      { class: data.kind, href: url, title: data.help },
      data.icon ? icon(data.icon) : null,
      el('span', { text: data.label }),
    );
    link.addEventListener('click', (event) => {
      this._leave = follow(event, link) ?? this._leave;
    });
    this._root.append(link);
  }

  destroy() {
    this._leave?.();
    this._root.remove();
  }
}
