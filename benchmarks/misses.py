"""Why a measurement misses a target, where that is known; printed only while it is missed."""

WHY = {
    "back_to_training": "without the warm start a new attempt runs torchrun anew, which imports torch once more than "
    "torchrun's own restart of its ranks, and the ended one takes its modules apart first. The warm start forks both.",
    "chart": "TensorBoard keeps at most 1,000 points of a series, in memory, and has nothing to read or to thin; ours "
    "reads 2,000 of the million from SQLite. Of the 37 ms of an answer 10 are FastAPI's and the client's, 6 write JSON "
    "and the rest makes and runs a dozen statements; binary columns, as comparisons have them, would save the JSON.",
    "checkpoint_stall": "to take a checkpoint of 256 MiB costs the worker 0.43 s of processor time (its copy 0.1, the "
    "check of its CRC-32s 0.12, its SHA-256 0.2), a dashboard beside it 0.25 s when it is linked and 1.3 s when it is "
    "sent. Where ranks fill all cores, that is taken from them. One pass over the file instead of three saves nothing; "
    "a copying process of lower priority might, where cores are idle at times.",
    "checkpoints": "a new checkpoint fills memory that this virtual machine has not used before: of the 7 s of the "
    "dashboard's processor time for a GiB 4 copy into such pages, which `cp` has at hand, since it overwrites one "
    "file. Four uploads in a row reach 167, 162, 221 and 266 MB/s. Each request is on the disk before its answer.",
    "command_line": "most of the time is imports: of those of `rankzero runs` pydantic takes a quarter, and httpx2 "
    "with httpcore2 and h11 a sixth; `--help` needs neither.",
    "comparison": "each of the two series takes some 50 ms for fifty runs, one after another: reading their packed "
    "chunks, thinning them and building statements. Reading both in two threads would meet it.",
    "drawn_point": "a look of the worker and the server's answer take some 25 ms on two busy cores, and where no half "
    "core is idle the pause after it is five times as long, since a training that fills the cores lost a quarter of "
    "its steps to shorter ones. With cores to spare p95 is 49 ms.",
    "event_files": "the ratio of two processes that are bound by the processor changes between 8 and 10 from round to "
    "round on this machine.",
    "ingestion": "of the time in the store two fifths pack and reduce points, a quarter are statements of "
    "SQLAlchemy, a fifth sums series up and a seventh reads JSON; HTTP and the client's own JSON come on top. trackio "
    "and the writers have no server and buffer. Rows packed by numpy from binary columns would come near the limit.",
    "live_runs": "seen with up to 40 runs, a live run takes 3 to 4 ms of the server's processor time a second: one "
    "request with five pieces every five seconds, and a few heartbeats and polls of its node. A node without a run "
    "takes 1 ms: a request costs 1 ms in the event loop, and a poll 5 ms more, since it reads the store though nothing "
    "has changed. To answer such a poll from memory would save nearly half of what nodes cost.",
    "lost_node": "of 2.7 s in a quiet round the rank whose collective timed out and its torchrun take 1.5 s to end and "
    "to say why, the last data of the ended attempt 0.6 s, and the fork until the next step 0.6 s. Without a time-out "
    "in the script the other ranks are found to stand still 3 s later: steps are watched from 5 s of silence on.",
    "many_runs": "of a window of 100 rows two fifths of the processor time make its runs, two fifths read and thin 100 "
    "small curves that are not in memory yet, and the rest finds the runs; a search reads a field of every run's spec, "
    "and sorting by a series looks a value up for every run. MLflow counts nothing and draws no curves; trackio's page "
    "gets names alone.",
    "overhead": "whatever four open pages cost, 12 % of a core in the dashboard and 3 % in the worker, is taken from "
    "ranks that fill both cores. With a core to spare the quartiles, 0.92 to 1.03, are wider than the difference: a "
    "rank has threads of its own (backward, gloo, the event writer) beside its main one. The dashboard on another "
    "machine leaves the worker's share alone.",
    "pages": "Streamlit's rerun and the list's request, 20 ms of processor time (see many runs), begin at the click "
    "and share two cores with Chromium, which then takes 100 ms to build, lay out and paint the page.",
    "placement": "reading the nodes and tasks, the expected ends of 4,500 attempts, and placing take a third each. "
    "Keeping the first two between turns, and reading only what changed, would meet it.",
    "recipes": "the quartiles of the ratio reach from 0.7 to 1.05 on two shared cores, more than the difference; "
    "beyond the plain loop a recipe's step votes on stopping. A core for each rank and one for the rest would show "
    "whether it is met.",
    "set_up": "beyond the five bare packages `make setup` installs FastAPI, Alembic, Optuna, Apprise and more. "
    "Of the demo's 21 s the dashboard and then the worker take 8 to start, importing torch 6, and the recipe 6 to its "
    "first point; torchrun by hand has only the last two. To start the three side by side would save 4 s.",
    "submissions": "16 clients wait for one Python process, of whose time 36 % are FastAPI's and uvicorn's, 30 % write "
    "the run, 17 % are the turns of the scheduler and 6 % read the state for the answer; 200 readers share one answer, "
    "and each costs half a millisecond of uvicorn, the guard and 300 KB through its socket. A second process would "
    "meet both.",
}
