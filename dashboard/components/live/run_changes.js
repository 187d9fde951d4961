/** Tells the page's script when what it shows of a run has changed: it need not look every other second. */

import { mountOnce } from '../elements/mounting.js';
import { connect } from './live_connection.js';

const GATHERED_MS = 200;
/** Not all viewers' pages ask in the same moment. */
const SPREAD_MS = 500;
const STARTING_EVERY_MS = 2000;

/** @param {import('../elements/mounting.js').Component} component */
export const mount = (component) => mountOnce(
  { data: component.data.run_id, parentElement: component.parentElement, shown: component.data, tell: component.setTriggerValue },
  (first) => new RunChanges(first),
);

class RunChanges {
  /** @param {any} component */
  constructor(component) {
    const connection = (this._connection = connect(component.data));
    const soon = () => this._soon();
    this._endings = [
      connection.on('history', soon),
      connection.on('checkpoints', soon),
      connection.on('deleted', soon),
      connection.on('run', () => this._compare()),
      connection.on('status', (status) => { if (status !== 'live') soon(); }), // the store may be away
    ];
    this.refresh(component);
  }

  /** The script ran: this is what the page shows now. @param {any} component */
  refresh(component) {
    this._component = component;
    clearInterval(this._again);
    if (component.shown.is_starting) this._again = setInterval(() => { if (!document.hidden) this._tell(); }, STARTING_EVERY_MS);
    this._compare();
  }

  destroy() {
    for (const end of this._endings) end();
    clearInterval(this._again);
    clearTimeout(this._timer);
    this._connection.release();
  }

  /** Points change these without a line in the history. */
  _compare() {
    const { run } = this._connection;
    const { state, has_step: hasStep, is_broken: isBroken } = this._component.shown;
    if (!run) return;
    if (run.state !== state || Boolean(run.step) !== hasStep || (run.loss_not_finite_since != null) !== isBroken) this._soon();
  }

  _soon() {
    this._timer ??= setTimeout(() => this._tell(), GATHERED_MS + SPREAD_MS * Math.random());
  }

  _tell() {
    clearTimeout(this._timer);
    this._timer = undefined;
    this._component.tell?.('changed', true);
  }
}
