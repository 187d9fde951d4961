/** What is chosen on the page of a comparison, kept in its address: a comparison is a link. */

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

/** The settings of the charts, from the address; what it leaves out is as the browser remembers it. */
export function settingsFrom(remembered) {
  const [axis, smoothing] = [chosen('x'), Number(chosen('smoothing') ?? NaN)];
  return {
    ...remembered,
    xAxis: ['step', 'samples', 'epoch', 'time', 'wall'].includes(axis ?? '') ? axis : remembered.xAxis,
    smoothing: Number.isFinite(smoothing) ? Math.min(0.99, Math.max(0, smoothing)) : remembered.smoothing,
    logY: chosen('log') === null ? remembered.logY : chosen('log') === '1',
  };
}

/** The part of the horizontal axis that all charts show; null for all of it. */
export function zoomFrom() {
  const [from, to] = (chosen('zoom') ?? '').split(',').map(Number);
  return Number.isFinite(from) && Number.isFinite(to) && to > from ? { from, to } : null;
}
