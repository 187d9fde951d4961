"""A sweep of a recipe in the store: 13 trials of learning rate and accumulation, pruned, failed, live or succeeded."""

from __future__ import annotations

import math

from db.attempts import attempt_queries
from db.runs import run_requests
from db.runs.run_requests import NewTrial
from db.scheduling import queue_placement
from db.studies import studies, trials
from db.studies.trials import Result
from domain.messages import PointBatch
from domain.spec import RunSpec
from domain.sweeps import SweepPlan, params_in_words
from tests.dashboard.seeded_store import Seed
from tests.db import task_streams
from tests.db.cluster import send_heartbeat

NODE = "sweeper"
PLAN = SweepPlan.model_validate(
    {
        "parameters": {"lr": {"low": 1e-4, "high": 1e-1, "log": True}, "accumulate": {"values": [1, 2, 4]}},
        "metric": "val/loss",
        "trials": 14,
        "early_stop": "asha",
        "first_rung": 100,
    }
)
PRUNED = (0,)
"""Trials that were stopped at their first rung."""


def seed_sweep(seed: Seed, count: int = 13) -> str:
    """Store a sweep as the conductor would have left it; returns its id. A node with a GPU for each trial joins."""
    seed.node(NODE, count)
    spec = RunSpec(target="language_model", gpus_per_node=1, on_nodes=[NODE])
    sweep_id = studies.create(seed.store, spec, PLAN, seed.now - 600)
    for number in range(count):
        params = {"lr": 1e-4 * 10 ** (3 * number / (count - 1)), "accumulate": (1, 2, 4)[number % 3]}
        _trial(seed, spec, NewTrial(sweep_id, number, params), is_ended=number < count - 1)
    return sweep_id


def loss(lr: float, accumulate: int) -> float:
    """The metric that a trial approaches: best at a learning rate of 0.003 and without accumulation."""
    return 0.3 + 0.2 * (math.log10(lr) + 2.5) ** 2 + 0.03 * accumulate


def _trial(seed: Seed, spec: RunSpec, trial: NewTrial, is_ended: bool) -> None:
    label = f"language_model {params_in_words(trial.params)}"
    seed.runs[label] = run_requests.submit(
        seed.store, spec.model_copy(update=trial.params | {"name": label}), seed.now - 500, part_of=trial
    )
    send_heartbeat(seed.store, seed.node_ids[NODE], seed.now)
    queue_placement.place_queue(seed.store, seed.now, silent_after_s=60)
    seed.start(label, 400)
    final = loss(**trial.params)
    values = [(step, final + 2 * math.exp(-step / 60), seed.now - 390 + step) for step in range(0, 301, 10)]
    attempt = attempt_queries.attempts(seed.store, seed.runs[label])[-1]
    shown = values if is_ended and trial.number not in PRUNED else values[:12]
    batch = PointBatch(path="events", generation=0, start=0, end=9, series={"val/loss": shown})
    task_streams.points_arrived(seed.store, seed.node_ids[NODE], attempt.fence, 0, batch)
    if not is_ended:
        return
    trials.record_rungs(seed.store, trial.study_id, trial.number, [final + 0.4])
    has_failed = trial.number == 10
    result = Result("succeeded", shown[-1][1], None, 0.1)
    if has_failed:
        result = Result("failed", None, "GPU 0 ran out of memory.", 0.1)
        seed.report(label, "failed", 100, reason="out of memory", message="GPU 0 ran out of memory.")
    elif trial.number in PRUNED:
        message = f"pruned at rung 1 (step 100): val/loss {final + 0.4:.3g}, the best third is at 0.8 or lower"
        trials.prune(seed.store, trial.study_id, trial.number, 100, message)
        run_requests.request_stop(seed.store, seed.runs[label], seed.now - 300, message)
        seed.report(label, "stopped", 100)
        result = Result(trials.PRUNED, shown[-1][1], message, 0.03)
    else:
        seed.report(label, "succeeded", 100)
    trials.settle(seed.store, trial.study_id, trial.number, result)
