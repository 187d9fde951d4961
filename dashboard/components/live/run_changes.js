/** Tells the page's script when what it shows of a run has changed: it need not look every other second. */

import { mountOnce } from '../elements/mounting.js';
import { connect } from './live_connection.js';

const GATHERED_MS = 200;
/** Not all viewers' pages ask in the same moment. */
const SPREAD_MS = 500;
const HIDDEN_MS = 2000;
/** Of two parts of the page that tell in the same moment, Streamlit would rerun one only. */
const APART_MS = 100;
let turn = Promise.resolve();
/** What a part of the page may show of a run, by the names that `run_changes` in browser.py gives. */
const SHOWN = {
  state: (run) => run.state,
  step: (run) => run.step ?? null,
  has_step: (run) => Boolean(run.step),
  is_broken: (run) => run.loss_not_finite_since != null,
};

/** @param {import('../elements/mounting.js').Component} component */
export const mount = (component) => mountOnce(
  { data: component.data.run_id, parentElement: component.parentElement, shown: component.data, tell: component.setTriggerValue },
  (first) => new RunChanges(first),
);

class RunChanges {
  /** @param {any} component */
  constructor(component) {
    const connection = (this._connection = connect(component.data));
    this._endings = [
      ...component.shown.heard.map((kind) => connection.on(kind, () => this._soon())),
      connection.on('run', () => this._compare()),
      connection.on('status', (status) => { if (status !== 'live') this._soon(); }), // the store may be away
    ];
    this.refresh(component);
  }

  /** The script ran: this is what the page shows now. @param {any} component */
  refresh(component) {
    this._component = component;
    clearInterval(this._again);
    const { every_s: everyS } = component.shown;
    if (everyS) this._again = setInterval(() => this._tell(), everyS * 1000);
    this._compare();
  }

  destroy() {
    this._hasEnded = true;
    for (const end of this._endings) end();
    clearInterval(this._again);
    clearTimeout(this._timer);
    this._connection.release();
  }

  /** Points change these without a line in the history. */
  _compare() {
    const { run } = this._connection;
    if (!run) return;
    if (Object.entries(this._component.shown.values).some(([name, value]) => SHOWN[name](run) !== value)) this._soon();
  }

  _soon() {
    const { pause_s: pauseS } = this._component.shown;
    this._timer ??= setTimeout(() => this._tell(), Math.max(1000 * pauseS, GATHERED_MS + SPREAD_MS * Math.random()));
  }

  /** A page that nobody sees waits until somebody does. */
  _tell() {
    clearTimeout(this._timer);
    this._timer = document.hidden ? setTimeout(() => this._tell(), HIDDEN_MS) : undefined;
    if (!document.hidden) turn = turn.then(() => this._tellNow()).catch(console.error);
  }

  /** @returns {Promise<void>} ends when the next one may tell */
  _tellNow() {
    if (this._hasEnded) return Promise.resolve();
    this._component.tell?.('changed', true);
    return new Promise((done) => { setTimeout(done, APART_MS); });
  }
}
