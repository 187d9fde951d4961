/**
 * Which series share a chart, what the chart is called, and in which order charts stand. Of the hardware, nodes and
 * devices share a chart for each measure, and events are marks in every chart.
 */

import { learningRate, number, size, timeSpan } from '../elements/numbers.js';
import { flattened, stretches } from './chart_lines.js';

/**
 * @typedef {{name: string, label: string, role: number, smooth: boolean, run?: string, key?: string}} LineSpec
 * `role` chooses the colour; `key` tells runs, or groups of them, apart
 * @typedef {{id: string, title: string, group: string, rank: number, isSpan: boolean, lines: LineSpec[],
 *   format: (value: number, digits?: number) => string, isGrouped?: boolean, isRelative?: boolean, baseline?: {name:
 *   string, run: string}|null, legend?: {text: string, title: string}}} ChartSpec
 * `isGrouped`: the mean of the lines of each key is drawn; `isRelative`: the difference to the baseline; `legend`:
 * what stands in its place where all charts share one
 * A series as part of a chart.
 * @typedef {{base: string, label: string, role: number, smooth: boolean, id: string, chart: ChartSpec}} Part
 * @typedef {{base: RegExp, title: string|null, format?: ChartSpec['format'], smooth?: boolean}} Known
 */

const BOOKKEEPING = new Set([
  'epoch',
  'total_steps',
  'total_epochs',
  'global_step',
  'max_steps',
  'num_samples',
  'world_size',
]);
/** Totals and facts that the Ranks tab shows. */
const ON_RANKS_TAB = /^(node\d+\/)?probe\/(rank\d+\/phases|data|ddp|model)\//;
/** @type {Record<string, number>} */
const SPLITS = { train: 0, training: 0, val: 1, valid: 1, validation: 1, eval: 1, test: 2 };
const SPLIT_NAMES = ['train', 'val', 'test'];

/** Order, title and number format of common names. @type {Known[]} */
const KNOWN = [
  { base: /^(total_?)?loss$/, title: 'Loss' },
  {
    base: /^((samples|tokens|images|examples|items|steps|it)(_per_s(ec(ond)?)?|\/s)|throughput)$/,
    title: null,
  },
  {
    base: /^(lr|learning_?rate|lr-.*)$/,
    title: 'Learning rate',
    format: (value, digits = 4) => learningRate(value, digits),
    smooth: false,
  },
  { base: /^(acc(uracy)?|top\d(_acc(uracy)?)?|perplexity|ppl|f1|bleu|rouge.*|auc|map|miou)$/, title: null },
  { base: /^(grad(ient)?_?norm|total_norm)$/, title: 'Gradient norm' },
  {
    base: /^(step_time|data_wait|data_time|batch_time|iter_time|step_wait|input_wait)(_s|_ms)?$/,
    title: 'Step time',
  },
  { base: /(^|_)(memory|mem|rss)(_.*)?_bytes$/, title: null, format: size, smooth: false },
];
/** @type {Record<string, string>} */
const TITLES = {
  samples_per_s: 'Samples/s',
  steps_per_s: 'Steps/s',
  tokens_per_s: 'Tokens/s',
  images_per_s: 'Images/s',
  throughput: 'Throughput',
  peak_memory_bytes: 'Peak memory',
  accuracy: 'Accuracy',
  acc: 'Accuracy',
  perplexity: 'Perplexity',
  ppl: 'Perplexity',
  f1: 'F1',
};
/** @type {Record<string, string>} */
const GROUP_TITLES = {
  train: 'Training',
  val: 'Validation',
  test: 'Test',
  printed: 'Parsed from logs',
  probe: 'Per-rank performance',
  hardware: 'Hardware',
};
/** Series that the script logs come before observed ones; other prefixes are between them, by name. */
/** @type {(string|null)[]} */
const GROUPS = ['train', 'val', 'test', null, 'printed', 'probe', 'hardware'];

/** Title of a group of charts. @param {string} group */
export const groupTitle = (group) => GROUP_TITLES[group] ?? `${group}/`;

/** Whether a group holds what the script measures of its own model. @param {string} group */
export const isOfScript = (group) => SPLIT_NAMES.includes(group);

/** Whether a group is shown only until the script logs series of its own. @param {string} group */
export const isStandIn = (group) => group === 'printed' || group === 'probe' || group === 'hardware';

/**
 * @param {{name: string, source: string}[]} series
 * @returns {ChartSpec[]} in the order they are shown
 */
export function chartsFor(series) {
  /** @type {Map<string, ChartSpec>} */
  const charts = new Map();
  for (const entry of [...series].sort((a, b) => byName(a.name, b.name))) {
    if (ON_RANKS_TAB.test(entry.name)) continue;
    if (entry.source === 'hardware' && isEvent(entry.name)) continue;
    const part = entry.source === 'hardware' ? hardwarePart(entry.name) : taken(entry);
    if (BOOKKEEPING.has(part.base)) continue;
    let chart = charts.get(part.id);
    if (!chart) charts.set(part.id, (chart = part.chart));
    if (groupOrder(part.chart.group) < groupOrder(chart.group)) chart.group = part.chart.group;
    chart.lines.push({ name: entry.name, label: part.label, role: part.role, smooth: part.smooth });
  }
  for (const chart of charts.values()) arrangeLines(chart);
  return [...charts.values()].sort(byOrder);
}

/**
 * The series of a chart that contain what is looked for; without a query all of them.
 * @param {ChartSpec} chart
 * @param {string} query
 */
export function matches(chart, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const text = `${chart.title} ${chart.lines.map((line) => line.name).join(' ')}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

/** @param {{name: string, source: string}} series @returns {Part} */
function taken({ name, source }) {
  const section = source === 'printed' || source === 'probe' ? source : '';
  let bare = section && name.startsWith(`${section}/`) ? name.slice(section.length + 1) : name;
  const node = /^node(\d+)\//.exec(bare);
  if (node) bare = bare.slice(node[0].length);
  const rank = /(?:^|[/_.])rank[_.]?(\d+)(?=$|[/_.])/i.exec(bare);
  const { base, split } = splitOf(rank ? bare.replace(rank[0], '').replace(/^[/_.]/, '') : bare);
  const position = KNOWN.findIndex((entry) => entry.base.test(base));
  const entry = KNOWN[position];
  const isTime = entry?.title === 'Step time';
  // With one process, waiting is drawn inside its step; with many, ranks are compared.
  const isSpan = rank !== null;
  const isShared = split !== null || isSpan || isTime;
  const unit = isTime && base.endsWith('_ms') ? 'ms' : '';
  const group = isTime && !isSpan ? `step_time${unit}` : base;
  const label = labelOf({ base, split, rank, node, isTime, name });
  return {
    base,
    label,
    role: rank ? Number(rank[1]) : isTime ? Number(/wait|data/.test(base)) : (split ?? 0),
    smooth: entry?.smooth !== false && section !== 'probe' && rank === null && split !== 1 && split !== 2,
    id: `${section}|${node?.[1] ?? ''}|${isShared ? group : bare}`,
    chart: {
      id: `${section}|${node?.[1] ?? ''}|${isShared ? group : bare}`,
      title: (isTime && isSpan ? timeTitle(base) : entry?.title) ?? TITLES[base] ?? (isShared ? base : bare),
      group: section || (split === null ? prefixOf(bare) : SPLIT_NAMES[split]),
      isSpan,
      rank: position < 0 ? KNOWN.length : position,
      lines: [],
      format: isTime
        ? unit
          ? (/** @type {number} */ ms, /** @type {number|undefined} */ digits) => timeSpan(ms / 1000, digits)
          : timeSpan
        : (entry?.format ?? number),
    },
  };
}

/** The part before the first slash; names without one belong to the training. @param {string} bare */
function prefixOf(bare) {
  const at = bare.indexOf('/');
  return at > 0 ? bare.slice(0, at) : 'train';
}

/**
 * train/loss, loss/train, train_loss and loss_train are all the training part of `loss`.
 * @param {string} bare
 * @returns {{base: string, split: number|null}}
 */
function splitOf(bare) {
  const lower = bare.toLowerCase();
  for (const separator of ['/', '_', '.', '-']) {
    const at = lower.indexOf(separator);
    if (at > 0 && lower.slice(0, at) in SPLITS) return { base: lower.slice(at + 1), split: SPLITS[lower.slice(0, at)] };
    const last = lower.lastIndexOf(separator);
    if (last > 0 && lower.slice(last + 1) in SPLITS)
      return { base: lower.slice(0, last), split: SPLITS[lower.slice(last + 1)] };
  }
  return { base: lower, split: lower === 'loss' ? 0 : null };
}

/**
 * @param {{base: string, split: number|null, rank: RegExpExecArray|null, node: RegExpExecArray|null, isTime:
 *   boolean, name: string}} part
 */
function labelOf({ base, split, rank, node, isTime, name }) {
  const where = node ? `node ${node[1]} ` : '';
  if (rank) return `${where}rank ${rank[1]}`;
  if (isTime) return `${where}${spoken(base)}`;
  return split === null ? name : `${where}${SPLIT_NAMES[split]}`;
}

/** data_wait_s is spoken: data wait. @param {string} base */
function spoken(base) {
  return base.replace(/_m?s$/, '').replaceAll('_', ' ');
}

/** @param {string} base */
function timeTitle(base) {
  const words = spoken(base);
  return words[0].toUpperCase() + words.slice(1);
}

/**
 * A chart in which two lines would carry the same label names each by its series.
 * @param {ChartSpec} chart
 */
function arrangeLines(chart) {
  chart.lines.sort((a, b) => a.role - b.role || byName(a.name, b.name));
  if (chart.group === 'hardware')
    chart.lines.forEach((line, position) => {
      line.role = position;
    });
  const labels = new Set(chart.lines.map((line) => line.label));
  if (chart.lines.length === 1 || labels.size < chart.lines.length) {
    chart.lines.forEach((line, position) => {
      if (chart.lines.length > 1 && labels.size < chart.lines.length) line.role = position;
      line.label = line.name;
    });
  }
}

/** @param {ChartSpec} a @param {ChartSpec} b */
export function byOrder(a, b) {
  return (
    groupOrder(a.group) - groupOrder(b.group) ||
    byName(a.group, b.group) ||
    a.rank - b.rank ||
    byName(a.title, b.title) ||
    byName(a.id, b.id)
  );
}

/** @param {string} group */
function groupOrder(group) {
  return GROUPS.indexOf(GROUPS.includes(group) ? group : null);
}

/** @param {string} a @param {string} b */
function byName(a, b) {
  return a.localeCompare(b, 'en', { numeric: true });
}

const NAME = /^(?:node(\d+)\/)?hardware\/(event\/)?(?:(gpu|rank)(\d+)\/|([^/]+:\d+)\/)?(.+)$/;
/** @type {Record<string, string>} */
const KINDS = { gpu: 'GPU', rank: 'Rank', port: 'InfiniBand', host: 'Node' };
/** @type {{suffix: RegExp, format: (value: number, digits?: number) => string}[]} */
const UNITS = [
  { suffix: /_bytes_per_s$/, format: (value) => `${size(value)}/s` },
  { suffix: /_bytes$/, format: size },
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
 * @returns {Part}
 */
function hardwarePart(name) {
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
    const { x, count } = flattened(stretches(attempts), origins);
    for (let i = Math.max(0, count - MOST_MARKS); i < count; i++) {
      markers.push({ at: x[i], text: node ? `${text} (node ${node})` : text, short: '!', warns: true });
    }
  }
  return markers;
}
