/**
 * Samples of the hardware: nodes and devices share a chart for each measure, and events are marks in every
 * chart.
 */

import { number, size } from '../elements/numbers.js';
import { flattened, stretches } from './chart_lines.js';

const NAME = /^(?:node(\d+)\/)?hardware\/(event\/)?(?:(gpu|rank)(\d+)\/|([^/]+:\d+)\/)?(.+)$/;
/** @type {Record<string, string>} */
const KINDS = { gpu: 'GPU', rank: 'Rank', port: 'InfiniBand', host: 'Node' };
/** @type {{suffix: RegExp, format: (value: number, digits?: number) => string}[]} */
const UNITS = [
  { suffix: /_bytes_per_s$/, format: (value) => `${size(Math.round(value))}/s` },
  { suffix: /_bytes$/, format: (value) => size(Math.round(value)) },
  { suffix: /_percent$/, format: (value, digits) => `${number(value, digits)} %` },
  { suffix: /_w$/, format: (value, digits) => `${number(value, digits)} W` },
  { suffix: /_c$/, format: (value, digits) => `${number(value, digits)} °C` },
  { suffix: /_hz$/, format: (value, digits) => `${number(value, digits)}Hz` },
  { suffix: /_j$/, format: (value, digits) => `${number(value, digits)}J` },
];
const ORDER = Object.keys(KINDS);
const FIRST = [
  'utilisation_percent',
  'tensor_activity_percent',
  'sm_activity_percent',
  'cpu_percent',
  'memory_used_bytes',
  'power_w',
  'temperature_c',
];
const MOST_MARKS = 20;

/** Whether a series holds events: how often something happened, or its number. @param {string} name */
export const isEvent = (name) => Boolean(NAME.exec(name)?.[2]);

/**
 * The line of a series and the chart it belongs to, as `chartsFor` takes it.
 * @param {string} name
 * @returns {import('./chart_groups.js').Part}
 */
export function hardwarePart(name) {
  const [, node, , device, index, port, measure] = NAME.exec(name) ?? [
    null,
    undefined,
    undefined,
    undefined,
    undefined,
    undefined,
    name,
  ];
  const kind = device ?? (port ? 'port' : 'host');
  const unit = UNITS.find(({ suffix }) => suffix.test(measure));
  const spoken = measure
    .replace(unit?.suffix ?? /$^/, '')
    .replaceAll('_', ' ')
    .replace('cpu', 'CPU')
    .replace('sm ', 'SM ')
    .replace('ecc', 'ECC')
    .replace('pcie', 'PCIe')
    .replace('nvlink', 'NVLink');
  const place = device ? `${device} ${index}` : (port ?? (node ? '' : 'node 0'));
  const id = `hardware|${kind}|${measure}`;
  return {
    base: measure,
    label: `${node ? `node ${node} ` : ''}${place}`.trim(),
    role: Number(node ?? 0) * 8 + Number(index ?? 0),
    smooth: false,
    id,
    chart: {
      id,
      title: `${KINDS[kind]}: ${spoken}`,
      group: 'hardware',
      isSpan: false,
      lines: [],
      rank: 100 * ORDER.indexOf(kind) + (FIRST.includes(measure) ? FIRST.indexOf(measure) : FIRST.length),
      format: unit?.format ?? number,
    },
  };
}

/**
 * Marks of the latest events, at their place on the axis.
 * @param {Iterable<{name: string, attempts: Map<number, any>}>} series
 * @param {import('./chart_lines.js').Origins} origins as for lines
 */
export function eventMarkers(series, origins) {
  const markers = [];
  for (const { name, attempts } of series) {
    if (!isEvent(name)) continue;
    const [, node, , , , , text] = NAME.exec(name) ?? [];
    const { x, count } = flattened(stretches(attempts, 'hardware'), origins);
    for (let i = Math.max(0, count - MOST_MARKS); i < count; i++) {
      markers.push({ at: x[i], text: node ? `${text} (node ${node})` : text, short: '!', warns: true });
    }
  }
  return markers;
}
