/** Draws the page again when what it shows of a run has changed: its script need not look every other second. */

import { mountOnce } from '../elements/elements.js';
import { connect } from './live_connection.js';
import { Redraws } from './redraws.js';

const GATHERED_MS = 200;
/** Not all viewers' pages ask in the same moment. */
const SPREAD_MS = 500;
/** Between two looks at a run that steps. */
const STEPS_MS = 2000;
const NEWS = /** @type {const} */ (['history', 'checkpoints', 'deleted']);
/** What the page may show of a run, by the names that `run_changes` in browser.py gives. */
const SHOWN = /** @type {Record<string, (run: import('../server/documents.js').Run) => unknown>} */ ({
  state: (run) => run.state,
  step: (run) => run.step ?? null,
  has_step: (run) => Boolean(run.step),
  is_broken: (run) => run.loss_not_finite_since != null,
  is_sending: (run) => Boolean(run.delivery),
});

/** @param {import('../elements/elements.js').Component} component */
export const mount = (component) =>
  mountOnce(
    {
      data: component.data.run_id,
      parentElement: component.parentElement,
      shown: component.data,
      setTriggerValue: component.setTriggerValue,
    },
    (first) => new RunChanges(first),
  );

class RunChanges {
  /** @param {any} component */
  constructor(component) {
    const connection = (this._connection = connect(component.data));
    this._redraws = new Redraws(component);
    this._endings = [
      ...NEWS.map((kind) => connection.on(kind, () => this._soon())),
      connection.on('run', () => this._compare()),
      connection.on('status', (status) => {
        if (status !== 'live') this._soon();
      }), // the store may be away
    ];
    this.refresh(component);
  }

  /** The script ran: this is what the page shows now. @param {any} component */
  refresh(component) {
    this._component = component;
    this._redraws.component = component;
    this._compare();
  }

  destroy() {
    for (const end of this._endings) end();
    this._redraws.destroy();
    this._connection.release();
  }

  /** Points change these without a line in the history. */
  _compare() {
    const { run } = this._connection;
    if (!run) return;
    const shown = Object.entries(this._component.shown.values);
    const changed = shown.filter(([name, value]) => SHOWN[name](run) !== value).map(([name]) => name);
    if (changed.length) this._soon(changed.every((name) => name === 'step') ? STEPS_MS : GATHERED_MS);
  }

  _soon(waitMs = GATHERED_MS) {
    this._redraws.soon(waitMs + SPREAD_MS * Math.random());
  }
}
