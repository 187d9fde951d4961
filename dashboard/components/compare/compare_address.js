/** What the address of a comparison says of its charts. */

import { chosen } from '../elements/address.js';

/** @type {import('../charts/chart_toolbar.js').XAxis[]} */
const AXES = ['step', 'samples', 'epoch', 'time', 'wall'];

/**
 * The settings of the charts, from the address; what it leaves out is as the browser remembers it.
 * @param {import('../charts/chart_toolbar.js').Settings} remembered
 * @returns {import('../charts/chart_toolbar.js').Settings}
 */
export function settingsFrom(remembered) {
  const [axis, smoothing] = [chosen('x'), Number(chosen('smoothing') ?? NaN)];
  return {
    ...remembered,
    xAxis: AXES.find((name) => name === axis) ?? remembered.xAxis,
    smoothing: Number.isFinite(smoothing) ? Math.min(0.99, Math.max(0, smoothing)) : remembered.smoothing,
    logY: chosen('log') === null ? remembered.logY : chosen('log') === '1',
  };
}

/** The part of the horizontal axis that all charts show; null for all of it. */
export function zoomFrom() {
  const [from, to] = (chosen('zoom') ?? '').split(',').map(Number);
  return Number.isFinite(from) && Number.isFinite(to) && to > from ? { from, to } : null;
}
