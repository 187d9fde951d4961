/** Sentences for charts without points. */

/** A few words about the connection, where it is not as it should be. */
export const STATUS_TEXT = /** @type {Record<string, string>} */ ({
  reconnecting: 'Reconnecting…',
  refused: 'Signed out: reload the page',
  gone: 'Deleted',
});

/**
 * @param {import('./live_connection.js').LiveConnection} connection
 * @returns {string}
 */
export function emptySentence({ run, status }) {
  if (status === 'refused') return 'You are signed out. Reload the page to sign in again.';
  if (status === 'gone') return 'This run no longer exists; it may have been deleted.';
  if (!run) return status === 'reconnecting' ? 'Rankzero does not answer. Trying again…' : 'Connecting…';
  switch (run.state) {
    case 'queued':
      return run.waiting_for ? `Waiting to start: ${run.waiting_for}` : 'Waiting for a node.';
    case 'starting':
      if (run.waiting_for) return `The run is starting: it ${run.waiting_for}.`;
      return 'Waiting for the first point. The run is starting: importing torch takes a few seconds.';
    case 'running':
      return 'Waiting for the first point. Every tag the script logs with SummaryWriter appears here.';
    case 'stopping':
      return 'The run is being stopped; it has logged no point.';
    case 'failed':
      if (run.reason === 'preflight') return 'Nothing was started: the History tab shows what preflight found.';
      return 'The run failed before it logged a point. See the log of the failing rank.';
    case 'stopped':
      return 'The run was stopped before it logged a point.';
    default:
      return 'The run ended without logging a point. Charts show what a script logs with SummaryWriter.';
  }
}
