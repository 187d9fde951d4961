"""Why a measurement misses a target, where that is known; printed only while it is missed."""

WHY = {
    "back_to_training": "without the warm start a new attempt runs torchrun anew, which imports torch (2.1 s) before"
    " its ranks do; torchrun's own restart spares that.",
    "chart": "TensorBoard has at most 1,000 points of a series, in memory; ours reads 2,000 of the million from "
    "SQLite.",
    "checkpoint_stall": "of 256 MiB, copying and sending take 0.1 s each of the worker's processor time; its sums "
    "0.3 s and the dashboard 0.3 s share the memory's bandwidth with the ranks.",
    "checkpoints": "down from the disk a GiB takes 0.6 s of the dashboard's processor time, and 2 s more where pages "
    "are new to this virtual machine, for sendfile too.",
    "command_line": "of the 0.19 s of `rankzero runs` typer and httpx2 take 60 ms each to import and Python itself 20.",
    "comparison": "each of the two series takes some 50 ms for fifty runs, one after another.",
    "drawn_point": "a look and the server's answer take 25 ms on two busy cores, and where no half core is idle the "
    "pause after it is five times as long.",
    "event_files": "the ratio of two processes that are bound by the processor changes between 8 and 10 from round "
    "to round on this machine.",
    "ingestion": "of a request of 100 runs, 92 ms, SQLite takes 40, its statements and numpy the rest. trackio has "
    "no server and buffers.",
    "live_runs": "a bundle of five streams, five seconds long, takes 3.8 ms in the store and 5.4 in all; a heartbeat"
    " 0.3, the poll of an idle node 0.6.",
    "lost_node": "of 2.7 s the rank that timed out and its torchrun take 1.5 s to end, the last data 0.6, the fork "
    "0.6.",
    "many_runs": "of a window's 29 ms its runs take half, 100 curves a quarter. A search reads every run's spec. "
    "MLflow counts nothing and draws no curves.",
    "overhead": "four open pages cost 4 % of a core in the dashboard and 1.5 % in the worker; what interrupts one "
    "rank holds up the other.",
    "pages": "Chromium takes 100 ms to draw the page, and 0.7 s of a busy core for the Launch page's 830 elements.",
    "placement": "reading the nodes and tasks, the expected ends of 4,500 attempts, and placing take a third each.",
    "probe": "twenty calls of Python, cold after the matrix products: those of the backward pass take 33 µs there "
    "and 4 µs in a loop.",
    "recipes": "beyond the plain loop a recipe's step of 8 ms votes on stopping and adds up its loss, in one "
    "all-reduce of two elements.",
    "rights": "each request about a run first reads its project and person, in a thread: 0.3 ms.",
    "set_up": "`make setup` also installs FastAPI, Alembic, Optuna, Apprise and more. Of the demo the dashboard "
    "takes 2.1 s of processor time to start, the worker 0.8, and 2.5 import torch.",
    "start": "a launch adds 0.6 s to what torchrun takes by hand, 3.7 s on a quiet machine; the run's timeline has "
    "its phases.",
    "submissions": "one Python process: 3.4 ms of its time each; a turn of the scheduler among them takes 45 ms.",
    "watching": "eleven requests a second carry the points: each takes 2.7 ms of the worker, half of it in httpx2 "
    "and h11, and 5 ms of the dashboard.",
}
