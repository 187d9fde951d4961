/** Asking the server: every request of a page goes through here, ends in time, and says in words why it failed. */

/** Pages and programs live below this address, wherever a proxy has put it. */
export const BASE = new URL('../..', import.meta.url);
/** The longest that a person waits for an answer, which the server gives in well under a second. */
const ANSWERED_WITHIN_MS = 30_000;
const NO_ANSWER = 'Rankzero does not answer.';
const JSON_HEADERS = { 'Content-Type': 'application/json' };

/**
 * @typedef {{method?: string, json?: unknown, cache?: RequestCache, keepalive?: boolean, signal?:
 *   AbortSignal, withinMs?: number, asked?: Promise<Response>|null}} Options
 * `json`: what is sent; `signal`: ends the request; `asked`: a request that is under way already.
 */

/** Why there is no answer, in words for the person. */
export class RequestError extends Error {
  /**
   * @param {string} message
   * @param {number} [status] 0 where nobody answered
   * @param {boolean} [isExplained] whether the server itself said why
   */
  constructor(message, status = 0, isExplained = false) {
    super(message);
    this.status = status;
    this.isExplained = isExplained;
  }
}

/** The address of an API route. @param {string} path */
export function apiUrl(path) {
  return new URL(path, BASE).href;
}

/**
 * The document that the server answers with.
 * @param {string} path below the server's address
 * @param {Options} [options]
 * @returns {Promise<any>}
 * @throws {RequestError} where nobody answers in time, or the server refuses; where `signal` ended it, its
 *   reason
 */
export async function request(path, options = {}) {
  return read(path, options, (answer) => answer.json());
}

/**
 * What `take` makes of the answer, all of which has to come in time.
 * @template T
 * @param {string} path below the server's address
 * @param {Options} options
 * @param {(answer: Response) => Promise<T>} take
 * @returns {Promise<T>}
 * @throws {RequestError} as `request` does
 */
export async function read(path, options, take) {
  try {
    const answer = await (options.asked ?? begin(path, options));
    if (!answer.ok) throw await refusal(answer);
    return await take(answer);
  } catch (error) {
    options.signal?.throwIfAborted();
    throw error instanceof RequestError ? error : new RequestError(NO_ANSWER);
  }
}

/** Send a request, whose answer is read later. @param {string} path @param {Options} [options] */
export function begin(path, { signal, withinMs = ANSWERED_WITHIN_MS, asked, json, ...init } = {}) {
  const late = AbortSignal.timeout(withinMs);
  const sent =
    json === undefined ? init : { method: 'POST', ...init, headers: JSON_HEADERS, body: JSON.stringify(json) };
  return fetch(apiUrl(path), { ...sent, signal: signal ? AbortSignal.any([signal, late]) : late });
}

/** Of several requests only the newest counts: it ends the one before, which then gives null. */
export class Newest {
  constructor() {
    this._controller = new AbortController();
  }

  /**
   * @param {string} path @param {Options} [options]
   * @returns {Promise<any>} the document; null where a newer one was asked for
   */
  request(path, options = {}) {
    return this.read(path, options, (answer) => answer.json());
  }

  /**
   * @template T
   * @param {string} path @param {Options} options @param {(answer: Response) => Promise<T>} take
   * @returns {Promise<T|null>}
   * @throws {RequestError} as `request` does
   */
  async read(path, options, take) {
    this.end();
    const { signal } = (this._controller = new AbortController());
    try {
      const taken = await read(path, { ...options, signal }, take);
      return signal.aborted ? null : taken;
    } catch (error) {
      if (signal.aborted) return null;
      throw error;
    }
  }

  /** Nobody waits for an answer any longer. */
  end() {
    this._controller.abort();
  }
}

/** What to tell the person about what went wrong. @param {unknown} error */
export function sentenceOf(error) {
  return error instanceof RequestError ? error.message : NO_ANSWER;
}

/** @param {Response} answer */
async function refusal(answer) {
  if (answer.status === 401) return new RequestError('Signed out: reload the page', 401);
  const document = await answer.json().catch(() => null);
  const message = document?.detail?.message;
  if (typeof message === 'string') return new RequestError(message, answer.status, true);
  return new RequestError(`Rankzero could not answer (${answer.status}).`, answer.status);
}
