"""A store of many runs that ended over the last months, a few that train and a queue."""

from __future__ import annotations

import math
import random
from typing import Any

from sqlalchemy import insert

from db.engine import Store
from db.metrics import points
from db.models import Attempt, Chunk, Node, Run, RunTag, Series, Task
from domain.messages import State
from domain.spec import RunSpec

DAY_S = 86_400
POINTS = 120
FIRST_FENCE = 1_000_000
"""Beyond those of runs that are launched."""
LIVE, QUEUED = 6, 40
TARGETS = ("language_model", "image_classifier", "/home/ada/train.py")
TAGS = ("paper", "baseline", "ablation", "wide")


def seed_runs(store: Store, now: float, count: int) -> None:
    """Add that many runs over 90 days; each has six series of 120 points."""
    luck = random.Random(1)
    rows: dict[Any, list[dict[str, Any]]] = {model: [] for model in (Run, Attempt, RunTag, Task, Series, Chunk)}
    for number in range(1, count + 1):
        _add(rows, luck, number, count, now)
    with store.write() as session:
        session.add(_node(now))
        session.flush()
        for model, values in rows.items():
            if values:  # a few runs are all queued
                session.execute(insert(model), values)


def _add(rows: dict[Any, list[dict[str, Any]]], luck: random.Random, number: int, count: int, now: float) -> None:
    run_id, at = f"run{number:07}", now - 90 * DAY_S * (1 - number / count) - 60
    waits = number > count - QUEUED
    lives = not waits and number > count - QUEUED - LIVE
    ended = luck.choices([State.SUCCEEDED, State.FAILED, State.STOPPED], [80, 12, 8])[0]
    state = State.QUEUED if waits else State.RUNNING if lives else ended
    spec = RunSpec(
        target=luck.choice(TARGETS), gpus_per_node=luck.choice([1, 2, 8]), batch_size=luck.choice([8, 32]),
        lr=luck.choice([1e-4, 3e-4, 1e-3]), seed=number, max_steps=2000,
    )  # fmt: skip
    rows[Run].append({
        "id": run_id, "name": f"{spec.target.rsplit('/')[-1]} {number}", "project": luck.choice(["vision", "text"]),
        "spec": spec.model_dump(mode="json"), "created_at": at,
    })  # fmt: skip
    rows[RunTag] += [{"run_id": run_id, "tag": tag} for tag in luck.sample(TAGS, luck.choice([0, 0, 1, 2]))]
    rows[Attempt].append({
        "fence": FIRST_FENCE + number, "run_id": run_id, "number": 1, "created_at": at, "state": state,
        "started_at": None if waits else at + 5, "ended_at": at + luck.randint(60, 7200) if state.is_terminal else None,
        "reason": "out of memory" if state is State.FAILED else None, "restarts": 0,
        "message": "Rank 3 ran out of memory." if state is State.FAILED else None,
    })  # fmt: skip
    if not waits:
        rows[Task].append({
            "fence": FIRST_FENCE + number, "node_rank": 0, "node_id": "node000001", "device_kind": "cuda",
            "devices": [], "state": state,
        })  # fmt: skip
        _add_series(rows, luck, FIRST_FENCE + number, at)


def _add_series(rows: dict[Any, list[dict[str, Any]]], luck: random.Random, fence: int, at: float) -> None:
    best = luck.uniform(0.1, 2)
    for place, tag in enumerate(("train/loss", "val/loss", "train/samples_per_s", "train/lr", "train/epoch", "acc")):
        curve = [
            (step * 10, best + math.exp(-step / 30) + luck.gauss(0, 0.02), at + step) for step in range(1, POINTS + 1)
        ]
        series_id, (step, value, wall) = fence * 6 + place, curve[-1]
        values = [point[1] for point in curve]
        rows[Series].append({
            "id": series_id, "fence": fence, "node_rank": 0, "source": "events", "tag": tag, "count": POINTS,
            "first_step": 10, "last_step": step, "first_wall": at, "last_wall": wall, "last_value": value,
            "last_number": value, "lowest": min(values), "highest": max(values),
            "finite_sum": value * POINTS, "finite_count": POINTS,
        })  # fmt: skip
        rows[Chunk].append({
            "series_id": series_id, "level": 0, "seq": 0, "count": POINTS, "step_min": 10, "step_max": step,
            "points": points.pack(curve),
        })  # fmt: skip


def _node(now: float) -> Node:
    return Node(
        id="node000001", name="gpu-1", instance_id="gpu-1", token_hash="gpu-1", hostname="gpu-1", address="10.0.0.1",
        devices=[], labels={}, info={}, first_seen=1.0, last_seen=now,
    )  # fmt: skip
