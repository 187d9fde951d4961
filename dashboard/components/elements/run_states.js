/** A run's states as marks, which of them are live, and what needs attention at once. */

export const LIVE = new Set(['starting', 'running', 'stopping']);

/** What a run may need attention for, and in the tone of an error. */
export const GRAVE = new Set(['hung', 'NaN loss', 'failed']);

/** @type {Record<string, string>} */
export const MARKS = {
  queued: '○',
  starting: '◌',
  running: '●',
  stopping: '◐',
  succeeded: '✓',
  failed: '✕',
  stopped: '■',
};

/** The tones of states, by their names in palette.json: white is read on them in both themes. */
export const TONES = /** @type {const} */ ({
  queued: 'grey',
  starting: 'blue',
  running: 'accent',
  stopping: 'orange',
  succeeded: 'green',
  failed: 'red',
  stopped: 'grey',
});
