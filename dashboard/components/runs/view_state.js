/** The order of the table of runs, in the address, and its columns, which this tab remembers as well. */

const KEPT = 'rankzero.view';

/**
 * As the address says; columns that it does not name are those that this tab had last.
 * @returns {{sort: string, columns: string[]|null, attention: boolean}}
 */
export function chosenAtFirst() {
  const address = new URLSearchParams(location.search);
  const attention = address.get('attention') === '1';
  if (address.has('sort') || address.has('column')) {
    return { sort: address.get('sort') ?? '', columns: listOf(address.getAll('column')), attention };
  }
  try {
    const { columns } = JSON.parse(sessionStorage.getItem(KEPT) ?? '{}');
    return { sort: '', columns: listOf(columns), attention };
  } catch {
    return { sort: '', columns: null, attention };
  }
}

/** @param {string[]|null} columns */
export function remember(columns) {
  sessionStorage.setItem(KEPT, JSON.stringify({ columns }));
}

/** @param {{attention: boolean, sort: string, columns: string[]|null}} chosen */
export function showInAddress({ attention, sort, columns }) {
  const url = new URL(location.href);
  url.searchParams.delete('attention');
  url.searchParams.delete('sort');
  url.searchParams.delete('column');
  if (attention) url.searchParams.set('attention', '1');
  if (sort) url.searchParams.set('sort', sort);
  for (const key of columns ?? []) url.searchParams.append('column', key);
  if (String(url.searchParams) !== String(new URL(location.href).searchParams))
    history.replaceState(history.state, '', url);
}

/** @param {unknown} columns @returns {string[]|null} */
function listOf(columns) {
  return Array.isArray(columns) && columns.length && columns.every((key) => typeof key === 'string')
    ? [...new Set(columns)]
    : null;
}
