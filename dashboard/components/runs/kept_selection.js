/** The selected runs, as this tab remembers them from page to page. */

const KEPT = 'rankzero.selected';

/** @param {string[]} ids in the order in which they were selected */
export function keepSelection(ids) {
  sessionStorage.setItem(KEPT, JSON.stringify(ids));
}

/** @returns {string[]} */
export function keptSelection() {
  try {
    const ids = JSON.parse(sessionStorage.getItem(KEPT) ?? '[]');
    return Array.isArray(ids) ? ids.filter((id) => /^[a-z0-9]+$/.test(id)) : [];
  } catch {
    return [];
  }
}
