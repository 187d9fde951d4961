"""A scaling study of a script in the store: measured on 1, 2, 4 and 8 GPUs, the last size failed."""

from __future__ import annotations

from db.queries import run_queries
from db.reports import progress
from db.requests import run_requests
from db.requests.run_requests import StudyPoint
from db.scaling import studies
from db.scheduling import queue_placement
from domain.messages import PointBatch
from domain.performance.phases import TAG
from domain.spec import RunSpec
from tests.dashboard.seeded_store import Seed
from tests.db.cluster import send_heartbeat

STEPS = {1: (0.1, 0.0), 2: (0.107, 0.008), 4: (0.116, 0.02), 8: (0.194, 0.1)}
"""Devices -> seconds of a step, and those that are communication."""


def seed_study(seed: Seed, target: str = "/home/ada/train.py", fails: int = 12, is_ended: bool = True) -> str:
    """Store a study as the conductor would have left it; returns its id. A node `big` with 16 GPUs joins."""
    seed.node("big", 16)
    spec = RunSpec(target=target, entry="train.py", batch_size=32, on_nodes=["big"])
    points = [
        {"devices": size, "nodes": 1, "strategy": "ddp", "kind": "cuda", "changes": {"gpus_per_node": size}}
        for size in (*STEPS, fails)
    ]
    study_id = studies.create(seed.store, spec, "weak", 100, points, seed.now - 600)
    for number, point in enumerate(points):
        _run(seed, spec.model_copy(update=point["changes"]), StudyPoint(study_id, number), point["devices"])
    if is_ended:
        studies.end(seed.store, study_id, seed.now - 60)
    return study_id


def _run(seed: Seed, spec: RunSpec, point: StudyPoint, devices: int) -> None:
    label = f"{point.study_id} on {devices}"
    seed.runs[label] = run_requests.submit(seed.store, spec, seed.now - 500, part_of=point)
    send_heartbeat(seed.store, seed.node_ids["big"], seed.now)
    queue_placement.place_queue(seed.store, seed.now, silent_after_s=60)
    seed.start(label, 400)
    if devices not in STEPS:
        seed.report(label, "failed", 100, reason="out of memory", message="GPU 3 ran out of memory")
        return
    step_s, comm_s = STEPS[devices]
    jitter = [1 + 0.02 * (number % 3 - 1) for number in range(13)]
    steps = [1 + 10 * number for number in range(13)]
    series = {
        "steps_per_s": [1 / step_s] * 13,
        "samples_per_s": [32 * devices / step_s] * 13,
        TAG.format(rank=0, name="forward_s"): [
            (step_s - comm_s) * (step + 10 * sum(jitter[: number + 1]) - 10 * (number + 1))
            for number, step in enumerate(steps)
        ],
        TAG.format(rank=0, name="exposed_comm_s"): [comm_s * step for step in steps],
    }
    walls = [seed.now - 300 + number for number in range(13)]
    named = {name: list(zip(steps, values, walls, strict=True)) for name, values in series.items()}
    attempt = run_queries.attempts(seed.store, seed.runs[label])[-1]
    batch = PointBatch(path="probe/1.jsonl", generation=0, start=0, end=9, source="probe", series=named)
    progress.points_arrived(seed.store, seed.node_ids["big"], attempt.fence, 0, batch)
    seed.report(label, "succeeded", 100)
