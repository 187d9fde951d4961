/** The order and the columns of the table of runs, in the address and in what this tab remembers. */

const KEPT = 'rankzero.view';

/** As the address says, else as this tab had it last. @returns {{sort: string, columns: string[]|null, attention: boolean}} */
export function chosenAtFirst() {
  const address = new URLSearchParams(location.search);
  const attention = address.get('attention') === '1';
  if (address.has('sort') || address.has('column')) {
    return { sort: address.get('sort') ?? '', columns: listOf(address.getAll('column')), attention };
  }
  try {
    const { sort, columns } = JSON.parse(sessionStorage.getItem(KEPT) ?? '{}');
    return { sort: typeof sort === 'string' ? sort : '', columns: listOf(columns), attention };
  } catch {
    return { sort: '', columns: null, attention };
  }
}

/** @param {{sort: string, columns: string[]|null}} chosen */
export function remember(chosen) {
  sessionStorage.setItem(KEPT, JSON.stringify(chosen));
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
  if (String(url.searchParams) !== String(new URL(location.href).searchParams)) history.replaceState(history.state, '', url);
}

function listOf(columns) {
  return Array.isArray(columns) && columns.length && columns.every((key) => typeof key === 'string') ? [...new Set(columns)] : null;
}
