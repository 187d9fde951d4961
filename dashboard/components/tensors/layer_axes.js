/** The axes of the picture of two checkpoints' layers. Pure. */

import { axis, isWide } from '../plots/axes.js';
import { exactly } from './tensor_lists.js';

const LEAST_DISTANCE = 1e-6;

/** @typedef {import('./tensor_lists.js').Layer} Layer */

/** The first and the last layer are named. @param {Layer[]} layers @returns {import('../plots/axes.js').Axis} */
export function layerAxis(layers) {
  const last = layers.length - 1;
  /** @type {[string, number][]} */
  const marks =
    last > 0
      ? [
          [shortName(layers[0].layer), 0],
          [shortName(layers[last].layer), 1],
        ]
      : [[shortName(layers[0].layer), 0.5]];
  return { name: 'Layer', kind: 'list', marks, ends: marks, share: (place) => (last > 0 ? place / last : 0.5) };
}

/** Begins at zero, or below the least of changes that differ a hundredfold. @param {Layer[]} layers */
export function changeAxis(layers) {
  const changes = layers.map(({ relative }) => relative ?? 0).filter((relative) => relative > 0);
  const hasWide = changes.length > 0 && isWide(changes);
  const least = hasWide ? Math.min(...changes) / 2 : 0;
  const drawn = axis('Relative change', hasWide ? 'log' : 'linear', [least, ...changes]);
  return { ...drawn, share: (/** @type {number|null} */ value) => (value && value > 0 ? drawn.share(value) : null) };
}

/** Ends at 1, with as many digits as its marks need. @param {Layer[]} layers */
export function cosineAxis(layers) {
  const cosines = layers.map(({ cosine }) => cosine ?? 1);
  const least = Math.min(1 - LEAST_DISTANCE, ...cosines);
  const drawn = axis('Cosine', 'linear', [least, 1]);
  /** @type {[string, number][]} */
  const marks = [least, (least + 1) / 2, 1].map((value) => [exactly(value), drawn.share(value) ?? 0]);
  return { ...drawn, marks };
}

/** @param {string} layer */
const shortName = (layer) => layer.split('.').slice(-2).join('.').slice(-16);
