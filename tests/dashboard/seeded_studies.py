"""Scaling studies of a script in the store: of devices alone, and of devices at several global batches."""

from __future__ import annotations

from typing import Any

from db.attempts import attempt_queries
from db.runs import run_requests
from db.runs.run_requests import NewTrial
from db.scheduling import queue_placement
from db.studies import studies
from domain.messages import Point, PointBatch
from domain.performance.phases import TAG
from domain.scaling.plan import Mode, PlannedPoint, ScalingPlan, run_spec
from domain.spec import RunSpec
from tests.dashboard.seeded_store import Seed
from tests.db import task_streams
from tests.db.cluster import send_heartbeat

STEPS = {1: (0.1, 0.0), 2: (0.107, 0.008), 4: (0.116, 0.02), 8: (0.194, 0.1)}
"""Devices -> seconds of a step, and those that are communication."""
BATCHES = {256: (8000, 2.11), 512: (10_400, 2.13), 1024: (11_000, 2.19), 2048: (11_200, 2.61)}
"""Global batch -> samples per second on one GPU, and the loss that it reaches."""
RECORDS = 13


def seed_study(seed: Seed, target: str = "/home/ada/train.py", fails: int = 12, is_ended: bool = True) -> str:
    """Store a study as the conductor would have left it; returns its id. A node `big` with 16 GPUs joins.

    It is measured on 1, 2, 4 and 8 GPUs, and the last size failed."""
    spec = RunSpec(target=target, entry="train.py", batch_size=32, on_nodes=["big"])
    points = [_point(size, gpus_per_node=size) for size in (*STEPS, fails)]
    study_id = _study(seed, spec, "weak", points)
    for number, (label, devices) in enumerate(_launched(seed, study_id, spec, points)):
        if number == len(points) - 1:
            seed.report(label, "failed", 100, reason="out of memory", message="GPU 3 ran out of memory")
        else:
            _measure(seed, label, *STEPS[devices], samples=32 * devices)
    if is_ended:
        studies.end(seed.store, study_id, seed.now - 60)
    return study_id


def seed_batches(seed: Seed, most: int = 99, has_losses: bool = True, is_ended: bool = True) -> str:
    """Store a study of four global batches on 1, 2 and 4 GPUs; the first `most` points were measured. Returns its id.

    The largest batch failed on one GPU; larger batches lose less to communication."""
    spec = RunSpec(target="/home/ada/train.py", entry="train.py", batch_size=256, lr=0.1, lr_scaling="linear")
    points = [
        _point(
            size, gpus_per_node=size, batch_size=batch // size, name=f"train.py on {size}, batch {batch}"
        ).model_copy(update={"global_batch_size": batch, "lr": 0.1 * batch / 256, "steps": 120 * 2048 // batch - 20})
        for batch in BATCHES
        for size in (1, 2, 4)
    ]
    study_id = _study(seed, spec.model_copy(update={"on_nodes": ["big"]}), "strong", points)
    for number, (label, devices) in enumerate(_launched(seed, study_id, spec, points[:most])):
        batch, measured = points[number].global_batch_size or 0, points[number].steps or 0
        if (devices, batch) == (1, 2048):
            seed.report(label, "failed", 100, reason="out of memory", message="GPU 0 ran out of memory")
            continue
        rate, loss = BATCHES[batch]
        comm_s = 0.01 * (devices - 1) / devices
        if has_losses:
            steps = measured + 20
            seed.points(label, {"train/loss": [(steps - 1, loss - 0.005, 1.0), (steps, loss + 0.005, 2.0)]})
        _measure(
            seed,
            label,
            batch / rate / devices + comm_s,
            comm_s,
            batch,
            step=measured // 12 + 2,
        )
    if is_ended:
        studies.end(seed.store, study_id, seed.now - 60)
    return study_id


def _point(devices: int, **changes: Any) -> PlannedPoint:
    return PlannedPoint(devices=devices, nodes=1, strategy="ddp", kind="cuda", changes=changes)


def _study(seed: Seed, spec: RunSpec, mode: Mode, points: list[PlannedPoint]) -> str:
    if "big" not in seed.node_ids:
        seed.node("big", 16)
    return studies.create(seed.store, spec, ScalingPlan(mode=mode, steps=100, points=points), seed.now - 600)


def _launched(seed: Seed, study_id: str, spec: RunSpec, points: list[PlannedPoint]) -> Any:
    """Start the run of one point after another, the next once this one has ended."""
    for number, point in enumerate(points):
        of_point = run_spec(spec.model_copy(update={"on_nodes": ["big"]}), point)
        label = f"{study_id} {number}"
        seed.runs[label] = run_requests.submit(
            seed.store, of_point, seed.now - 500, part_of=NewTrial(study_id, number, {"point": number})
        )
        send_heartbeat(seed.store, seed.node_ids["big"], seed.now)
        queue_placement.place_queue(seed.store, seed.now, silent_after_s=60)
        seed.start(label, 400)
        yield label, point.devices


def _measure(seed: Seed, label: str, step_s: float, comm_s: float, samples: int, step: int = 10) -> None:
    """Send what the probe saw of rank 0, a record every so many steps, and end the run."""
    jitter = [1 + 0.02 * (number % 3 - 1) for number in range(RECORDS)]
    steps = [1 + step * number for number in range(RECORDS)]
    series = {
        "steps_per_s": [1 / step_s] * RECORDS,
        "samples_per_s": [samples / step_s] * RECORDS,
        TAG.format(rank=0, name="forward_s"): [
            (step_s - comm_s) * (at + step * sum(jitter[: number + 1]) - step * (number + 1))
            for number, at in enumerate(steps)
        ],
        TAG.format(rank=0, name="exposed_comm_s"): [comm_s * at for at in steps],
    }
    walls = [seed.now - 300 + number for number in range(RECORDS)]
    named: dict[str, list[Point]] = {
        name: list(zip(steps, values, walls, strict=True)) for name, values in series.items()
    }
    attempt = attempt_queries.attempts(seed.store, seed.runs[label])[-1]
    batch = PointBatch(path="probe/1.jsonl", generation=0, start=0, end=9, source="probe", series=named)
    task_streams.points_arrived(seed.store, seed.node_ids["big"], attempt.fence, 0, batch)
    seed.report(label, "succeeded", 100)
