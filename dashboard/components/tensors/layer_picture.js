/** How far each layer of one checkpoint is from another's: columns of relative change, points of cosine. */

import { el } from '../elements/elements.js';
import { columns, scatter } from '../plots/plots.js';
import { changeAxis, cosineAxis, layerAxis } from './layer_axes.js';
import { exactly, ratio } from './tensor_lists.js';

/** @typedef {import('./tensor_lists.js').Layer} Layer */

/**
 * The two figures, each drawn at a width; none where nothing has changed.
 * @param {Layer[]} layers in the order of the checkpoint
 * @returns {((width: number) => Node[])[]}
 */
export function layerPicture(layers) {
  if (!layers.some(({ relative }) => relative === null || relative > 0)) return [];
  const across = layerAxis(layers);
  return [
    (width) => [
      el('figcaption', { text: 'Relative change of each layer' }),
      columns(across, changeAxis(layers), layers.map(itemOf('relative')), width, 'Relative change of each layer'),
    ],
    (width) => [
      el('figcaption', { text: 'Cosine of each layer with what it was' }),
      scatter(across, cosineAxis(layers), layers.map(itemOf('cosine')), width, 'Cosine of each layer'),
    ],
  ];
}

/** @param {'relative'|'cosine'} figure */
const itemOf = (figure) => (/** @type {Layer} */ layer, /** @type {number} */ place) => ({
  key: layer.layer,
  title: `${layer.layer}\nrelative change ${ratio(layer.relative)}\ncosine ${exactly(layer.cosine)}`,
  values: [place, layer[figure]],
});
