"""Why a measurement misses a target, where that is known; printed only while it is missed."""

WHY = {
    "back_to_training": "without the warm start a new attempt runs torchrun anew, whose import of torch, 2.1 s of "
    "processor time before its ranks import it too, torchrun's own restart of its ranks spares; the rest of the "
    "difference ends the old attempt and places the new one. To import it earlier is what the warm start does.",
    "chart": "TensorBoard has at most 1,000 points of a series, in memory; ours reads 2,000 of the million from "
    "SQLite. Of the 37 ms 10 are FastAPI's and the client's, 6 write JSON, the rest makes and runs a dozen "
    "statements.",
    "checkpoint_stall": "a checkpoint of 256 MiB costs the worker 0.43 s of processor time (copy 0.1, CRC-32s 0.12, "
    "SHA-256 0.2) and a dashboard beside it 0.25 s when it is linked; when it is sent, 0.11 s more to send and 0.33 s "
    "to receive (SHA-256 0.19). Ranks that fill all cores lose that: a thread's priority counts only "
    "within its session (autogroup).",
    "checkpoints": "a GiB sent up takes 1.25 s of the dashboard's processor time, of which SHA-256 0.75, and 0.45 s of "
    "the worker's. Down it takes 2.5 s, of which 2 fill pages that are new to this virtual machine; 0.5 s "
    "from the page cache.",
    "command_line": "of the 0.22 s of `rankzero runs` typer and httpx2 with httpcore2 and h11 take 60 ms each to "
    "import and Python itself 30; pydantic, with which typer converts values, is imported only for a number or a path.",
    "comparison": "each of the two series takes some 50 ms for fifty runs, one after another: reading their packed "
    "chunks, thinning them and building statements.",
    "drawn_point": "a look of the worker and the server's answer take some 25 ms on two busy cores, and where no "
    "half core is idle the pause after it is five times as long, since a training that fills the cores lost a "
    "quarter of its steps to shorter ones.",
    "event_files": "the ratio of two processes that are bound by the processor changes between 8 and 10 from round "
    "to round on this machine.",
    "ingestion": "5,120 points of one run take 10 ms of the store, of which two fifths are statements of SQLAlchemy "
    "and a fifth reads JSON; of many runs in one request each takes 0.7 ms. trackio and the writers have no server and "
    "buffer.",
    "live_runs": "a bundle of five streams of a live run, five seconds long, takes 4.3 ms in the store; a poll of an "
    "idle node reads the store anew (1.6 ms) though nothing has changed.",
    "lost_node": "of 2.7 s in a quiet round the rank whose collective timed out and its torchrun take 1.5 s to end, "
    "the last data of the ended attempt 0.6 s, and the fork until the next step 0.6 s. Without a time-out in the "
    "script the other ranks are seen to stand still 3 s later.",
    "many_runs": "of the 34 ms for a window of 100 rows its runs take half (two fifths of that makes views, a quarter "
    "reads 600 series), 100 curves a quarter, counts and the order a seventh. A search reads a field of every run's "
    "spec. MLflow counts nothing and draws no curves; trackio's page gets names alone.",
    "overhead": "what four open pages cost, 4 % of a core in the dashboard and 1.5 % in the worker, is taken from "
    "ranks that fill both cores. The dashboard on another machine leaves the worker's share alone.",
    "pages": "Streamlit's rerun and the list's request, 20 ms of processor time, share two cores with Chromium, "
    "which then takes 100 ms to build, lay out and paint the page; of the Launch page, whose script takes 50 ms, "
    "Chromium needs some 0.7 s of a busy core for 830 elements, most of it in React and its style sheets.",
    "placement": "reading the nodes and tasks, the expected ends of 4,500 attempts, and placing take a third each.",
    "probe": "of the hooks of a step the backward pass takes half: a look at its first node, a Python call there and "
    "one at the end of computing, which torch's engine makes with Python's lock taken anew.",
    "recipes": "beyond the plain loop a recipe's step of 8 ms votes on stopping and adds up its loss, two all-reduces "
    "of one element; its fused optimizer saves about as much.",
    "set_up": "beyond the five bare packages `make setup` installs FastAPI, Alembic, Optuna, Apprise and more. Of "
    "the demo's processor time until its first point the dashboard takes 2.1 s to start (imports 1.7) and the worker "
    "0.8, beside which 2.5 import torch, once; torchrun by hand imports it three times, and starts nothing else.",
    "watching": "of the worker's 1.5 % of a core with viewers, four requests a second take half, mostly in httpx2 and "
    "the socket; without viewers, of 0.7 %, five looks a second at the attempt's files take 0.45. The dashboard's four "
    "takes of points a second are 2 %, its work of each second 0.3, the run's view 0.25. The supervisor reads every "
    "process of the machine once a second.",
    "submissions": "16 clients wait for one Python process: 7 to 8 ms of its time each, of which the service takes 2.8 "
    "(filling in and checking the spec, one transaction) and HTTP most of the rest; a turn of the scheduler takes 32 "
    "ms, at most once a second. 200 readers share one answer, each at half a millisecond.",
}
