"""Why a measurement misses a target, where that is known; printed only while it is missed."""

WHY = {
    "back_to_training": "without the warm start, torchrun starts again and imports torch first (2.1 s).",
    "chart": "TensorBoard keeps at most 1,000 points of a series, in memory; Rankzero reads 2,000 of the million from "
    "SQLite.",
    "checkpoint_stall": "copying and sending 256 MiB take 0.1 s each of the worker's processor time; hashing (0.3 s) "
    "and the dashboard (0.3 s) compete with the ranks for memory bandwidth.",
    "checkpoints": "a download from the disk takes 0.6 s of processor time per GiB, and 2 s more where "
    "pages are new to this virtual machine, for sendfile too.",
    "command_line": "of the 0.19 s of `rankzero runs`, importing typer and httpx2 takes 60 ms each, Python itself 20.",
    "comparison": "each of the two series takes some 50 ms for fifty runs, one after another.",
    "drawn_point": "a check of the file and the server's answer take 25 ms on two busy cores; where less than half a "
    "core is idle, the worker pauses five times as long.",
    "event_files": "both processes are bound by the processor; their ratio varies between 8 and 10 from round to round "
    "on this machine.",
    "ingestion": "SQLite takes 40 of the 92 ms of a request of 100 runs. trackio has no server and buffers.",
    "live_runs": "a bundle of five streams over five seconds takes 3.8 ms in the store and 5.4 in total; a heartbeat "
    "takes 0.3, an idle node's poll 0.6.",
    "lost_node": "of 2.7 s, ending the rank that timed out and its torchrun takes 1.5 s, the last data 0.6, the fork "
    "0.6.",
    "many_runs": "a search reads every run's spec. MLflow counts nothing and draws no curves.",
    "overhead": "four open pages cost 4 % of a core in the dashboard and 1.5 % in the worker; an interrupted rank "
    "delays the others.",
    "pages": "Chromium takes 100 ms to draw the page, and 0.7 s of a busy core for the Launch page's 830 elements.",
    "placement": "reading nodes and tasks, the expected ends of 4,500 attempts, and placing take a third each.",
    "probe": "a step makes twenty Python calls with cold caches: those of the backward pass take 33 µs there and 4 µs "
    "in a loop.",
    "recipes": "in a step of 8 ms, a recipe also votes on stopping and adds up its loss, in one all-reduce of two "
    "elements.",
    "rights": "each request about a run first reads its project and person, in a thread: 0.3 ms.",
    "set_up": "`make setup` also installs FastAPI, Optuna and more. In the demo, the dashboard takes 2.1 s of "
    "processor time to start, importing torch 2.5.",
    "start": "a launch adds 0.6 s to torchrun's own 3.7 s on a quiet machine.",
    "submissions": "the server is one Python process: a submission takes 3.4 ms of it, a turn of the scheduler 45 ms.",
    "watching": "eleven requests a second carry the points: each takes 2.7 ms of the worker and 5 ms of the dashboard.",
}
