/**
 * Links to our own pages that look like Streamlit's buttons, and the way to a page that was decided on the
 * server.
 */

import { el, icon } from '../elements/elements.js';
import { mountOnce } from '../elements/mounting.js';
import { follow, go, pageUrl } from './following.js';

/** @param {import('../elements/mounting.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new PageLink(first));

class PageLink {
  /**
   * @param {import('../elements/mounting.js').Component} component `data`: address and, unless it is gone to
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
