/**
 * Notifications of alerts in this browser: whether it shows them, the button that asks the person, and their showing.
 * One of the open tabs does, whichever is first; when it is closed, another one goes on. Nothing comes while no tab is
 * open: there is no push service.
 */

import { el, mountOnce } from '../elements/elements.js';
import { plural } from '../elements/numbers.js';
import { pageUrl } from '../links/links.js';
import { request } from '../server/request.js';

const HINT = 'They appear while a dashboard tab is open, and otherwise wait for a day.';
const WORDS = {
  granted: `This browser shows notifications. ${HINT}`,
  default: `This browser has not been asked to show notifications. ${HINT}`,
  denied:
    'This browser blocks notifications from this page. Allow them in its settings for this site ' +
    '(the icon by the address), then reload.',
  impossible:
    'Browsers show notifications only for pages at https:// or on their own machine (localhost), ' +
    'and this page is neither.',
  unknown: 'This browser has no notifications.',
};

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) => mountOnce(component, (first) => new Permission(first));

class Permission {
  /** @param {import('../elements/elements.js').Component} component */
  constructor({ parentElement }) {
    this._words = el('span', { role: 'status' });
    this._button = el('button', {
      type: 'button',
      text: 'Allow notifications',
      onclick: () => void this._ask(),
    });
    this._root = el('div', { class: 'permission' }, this._words, this._button);
    parentElement.append(this._root);
    this._show();
    void this._watch();
  }

  destroy() {
    if (this._status) this._status.onchange = null;
    this._root.remove();
  }

  /** The person may change it in the browser's settings. */
  async _watch() {
    this._status = await navigator.permissions?.query({ name: 'notifications' }).catch(() => null);
    if (this._status) this._status.onchange = () => this._show();
  }

  async _ask() {
    await Notification.requestPermission();
    this._show();
  }

  _show() {
    const state = stateNow();
    this._words.textContent = WORDS[state];
    this._root.dataset.state = state;
    this._button.hidden = state !== 'default';
    if (isAllowed()) start();
  }
}

/** @returns {keyof typeof WORDS} */
function stateNow() {
  if (!isSecureContext) return 'impossible';
  return 'Notification' in window ? Notification.permission : 'unknown';
}

const ASKED_EVERY_MS = 5000;
/** Events of one alert within that time are one notification. */
const GATHERED_MS = 60_000;
const MOST_SENTENCES = 3;
const NEWEST = 'rankzero newest notification';
const LOCK = 'rankzero notifications';

/** @typedef {{id: number, alert: string, rule: string, run: string|null, sentence: string}} Notice */

/** @type {Map<string, {at: number, notices: Notice[]}>} what was shown last, by alert */
const gathered = new Map();
/** @type {Set<number>} so that nothing is shown twice where the server did not hear of it */
const shown = new Set();
let isStarted = false;

/** Whether this browser shows notifications at all on this page. */
function isAllowed() {
  return isSecureContext && 'Notification' in window && Notification.permission === 'granted';
}

/** Begin to ask, unless another tab does, or the browser shows nothing. */
export function start() {
  if (isStarted || !isAllowed()) return;
  isStarted = true;
  void navigator.locks.request(LOCK, async () => {
    while (isAllowed()) {
      await ask().catch(() => null); // the server is away: the next answer has it all
      await new Promise((later) => setTimeout(later, ASKED_EVERY_MS));
    }
    isStarted = false;
  });
}

async function ask() {
  const newest = localStorage.getItem(NEWEST);
  /** @type {{newest: number, notifications: Notice[]}} */
  const told = await request(`api/notifications${newest === null ? '' : `?after=${newest}`}`);
  const fresh = told.notifications.filter(({ id }) => !shown.has(id));
  for (const alert of new Set(fresh.map((notice) => notice.alert))) {
    show(
      alert,
      fresh.filter((notice) => notice.alert === alert),
    );
  }
  for (const { id } of fresh) shown.add(id);
  localStorage.setItem(NEWEST, String(told.newest));
  const ids = told.notifications.map(({ id }) => id);
  if (ids.length) await request('api/notifications/shown', { json: { ids } });
}

/** @param {string} alert @param {Notice[]} notices */
function show(alert, notices) {
  const before = gathered.get(alert);
  const goesOn = before && Date.now() - before.at < GATHERED_MS;
  const all = goesOn ? [...before.notices, ...notices] : notices;
  const last = all[all.length - 1];
  const further = all.length > 1 ? ` (${plural(all.length, 'event')})` : '';
  const body = all
    .slice(-MOST_SENTENCES)
    .map(({ sentence }) => sentence)
    .join('\n');
  // With the tag of the one before it takes its place.
  const notification = new Notification(`Rankzero: ${last.rule}${further}`, {
    body,
    tag: `${alert}/${all[0].id}`,
  });
  notification.onclick = () => {
    open(pageUrl(last.run ? `run?id=${last.run}` : last.rule === 'quarantine' ? 'nodes' : 'alerts'), '_blank');
    notification.close();
  };
  gathered.set(alert, { at: goesOn ? before.at : Date.now(), notices: all });
}
