/**
 * What is chosen on a page, kept in its address: what one sees is a link; and the selected runs, which the tab
 * remembers.
 */

/** @param {string} name @returns {string|null} */
export function chosen(name) {
  return new URLSearchParams(location.search).get(name);
}

/** Write choices into the address; null or '' removes one. @param {Record<string, string|null>} choices */
export function choose(choices) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(choices)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  // Commas stay readable.
  url.search = url.searchParams.toString().replaceAll('%2C', ',');
  history.replaceState(history.state, '', url);
}

/** A list of names, which may contain commas. @param {string} name @returns {string[]} */
export function chosenList(name) {
  return (chosen(name) ?? '').split(',').filter(Boolean).map(decodeURIComponent);
}

/** @param {string} name @param {string[]} values */
export function chooseList(name, values) {
  choose({ [name]: values.map((value) => value.replaceAll('%', '%25').replaceAll(',', '%2C')).join(',') });
}

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
