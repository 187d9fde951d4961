/**
 * The documents that the server answers with, as types: no more of each than these pages read. Times are seconds since
 * 1970, by the server's clock. Nothing loads this file.
 *
 * @typedef {{metric: string|null, value: number|string|null, baseline_value: number|string|null, better_percent:
 *   number|null, run_id: string, name: string}} BaselineChange
 * a run's result beside that of its project's baseline
 *
 * @typedef {{sent_bytes: number, total_bytes: number, seconds_left: number|null, has_points: boolean,
 *   has_checkpoints: boolean, silent_nodes: string[], sentence: string}} Delivery
 * what the nodes of an ended run have still to send
 *
 * @typedef {{host: string, account: string, scheduler: string|null}} Watched
 * what somebody else started (`domain.watching.views.WatchedView`)
 *
 * @typedef {{
 *   id: string, name: string, project: string, state: string, reason: string|null, message: string|null,
 *   next_step: string|null, error: {rank?: number|null}|null, attention: string|null, finding: string|null,
 *   waiting_for: string|null,
 *   world_size: number, nodes: number, attempt: number, attempt_changes?: {attempt: number, text: string}[],
 *   lost_contact: boolean, silent_s: number|null, silent_nodes?: string[],
 *   step: number|null, total_steps: number|null, progress: number|null, eta_s: number|null, epoch: number|null,
 *   current_epoch?: number|null, total_epochs?: number|null,
 *   last_loss: number|null, loss_not_finite_since: number|null, last_lr: number|null, lr: number|null,
 *   throughput: number|null, throughput_mean: number|null, inferred?: string[], global_batch_size: number|null,
 *   created_at: number, started_at: number|null, ended_at: number|null, stop_requested_at: number|null,
 *   kill_at: number|null, expected_start_at: number|null, spec?: {[field: string]: unknown},
 *   tags?: string[], note?: string|null, archived?: boolean, pinned?: boolean, imported_from?: string|null,
 *   by?: string|null, via?: string|null, baseline?: boolean, against_baseline?: BaselineChange|null,
 *   delivery?: Delivery|null, watched?: Watched|null}} Run
 * `GET /api/runs/{id}` (`domain.views.RunView`)
 *
 * @typedef {{last: number|string|null, best: number|string|null, min: number|string|null, max: number|string|null,
 *   steps: number, last_change_percent?: number|string|null, best_change_percent?: number|string|null,
 *   [figure: string]: number|string|null|undefined}} Result
 * of a run in a series; numbers that JSON does not know are words
 *
 * @typedef {{mean: number|string, spread: number|string|null, count: number, change_percent?: number|string|null}}
 *   Summary
 * of a group of runs
 *
 * @typedef {{field: string, label: string, values: Record<string, unknown>}} Difference
 * a setting in which runs differ; its values by run
 *
 * @typedef {{name: string, goal: 'min'|'max'|null, runs: Record<string, Result>, own_names: Record<string, string>,
 *   baseline?: Result, groups?: {last: Summary|null, best: Summary|null}[]}} ComparedSeries
 *
 * @typedef {{name: string, title: string, runs: Record<string, {seconds: number, change_percent?:
 *   number|null}|undefined>}} ComparedPhase
 *
 * @typedef {{runs: string[], names: Record<string, string>, states: Record<string, string>, baseline: string|null,
 *   baseline_name: string|null, differences: Difference[], series: ComparedSeries[], phases: ComparedPhase[],
 *   groups?: {values: Record<string, unknown>, runs: string[]}[]}} Comparison
 * `GET /api/compare` (`dashboard.compare.document`)
 */
export {};
