"""Random runs, as rows of the store and as the records that the search is defined on."""

from __future__ import annotations

import math
import random
from typing import Any

from db.engine import Store
from db.models import Attempt, ImportedRun, Node, Run, RunTag, Series, Task
from domain.messages import State
from domain.spec import RunSpec
from tests.db.search.searched_matching import Record

NOW = 1_000_000.0
WORDS = ("gpt", "GPT wide", "digits_2", "100%", "größe", "a/b", "Out of Memory", "o'hare")
IMPORTERS = ("tensorboard", "wandb")
TAGS = ("paper", "Baseline", "a%b")
NODES = ("gpu-1", "gpu-3", "CPU_1")
SERIES = ("val/loss", "train/loss", "accuracy", "epoch")
NUMBERS = (0.001, 0.2, 1.0, 3.0, 8.0, math.inf, -math.inf, math.nan)
BASELINE = "run0000000"
"""A project has one at most."""
LOSSES = ("train/loss", "loss")


class Records(dict[str, Record]):
    """Records by the run's id; short where Hypothesis shows an example."""

    def __repr__(self) -> str:
        return f"{len(self)} records"


def fill(store: Store, seed: int, count: int) -> Records:
    """Add runs and return their records; each run's first attempt is of no account."""
    luck = random.Random(seed)
    with store.write() as session:
        for name in NODES:
            session.add(_node(name))
    ids = (f"run{number:07}" for number in range(count))
    return Records({run_id: _add(store, luck, run_id) for run_id in ids})


def _add(store: Store, luck: random.Random, run_id: str) -> Record:
    spec = RunSpec.model_validate(_spec(luck))
    own = {
        "name": luck.choice(WORDS),
        "project": luck.choice(("vision", "Text")),
        "created_at": luck.uniform(0, NOW),
        "baseline_at": 7.0 if run_id == BASELINE else None,
    }
    note = luck.choice([None, *WORDS])
    archived, pinned = luck.choice([None, 5.0]), luck.choice([None, 6.0])
    tags, nodes = luck.sample(TAGS, luck.randint(0, 2)), luck.sample(NODES, luck.randint(0, 2))
    importer = luck.choice([None, None, *IMPORTERS])
    values = {name: luck.choice(NUMBERS) for name in luck.sample(SERIES, luck.randint(0, 4))}
    latest = _attempt(luck, run_id, 2)
    stored = spec.model_dump(mode="json")
    if luck.random() < 0.3:  # a spec of a version that did not know these
        for name in ("elastic", "priority", "on_hang"):
            del stored[name]
        spec = RunSpec.model_validate(stored)
    with store.write() as session:
        session.add(Run(id=run_id, **own, note=note, archived_at=archived, pinned_at=pinned, spec=stored))
        session.flush()
        session.add_all([RunTag(run_id=run_id, tag=tag) for tag in tags])
        if importer:
            session.add(_import(run_id, importer))
        older = _attempt(luck, run_id, 1)
        session.add_all([older])
        session.flush()
        session.add(latest)
        session.flush()
        session.add_all([_series(older.fence, "val/loss", 0.1), _series(latest.fence, "val/loss", 0.1, node_rank=1)])
        session.add_all([_series(latest.fence, name, value) for name, value in values.items()])
        for rank, name in enumerate(nodes):
            session.add(_task(latest.fence, rank, name))
    fields = _fields(spec, run_id, own, note, archived, pinned, tags, nodes, latest, values)
    return Record(fields | {"imported": ("yes", importer) if importer else ("no",)}, values)


def _fields(spec, run_id, own, note, archived, pinned, tags, nodes, latest, values) -> dict[str, tuple[Any, ...]]:
    one: dict[str, Any] = spec.model_dump(mode="json") | {
        "id": run_id, "name": own["name"], "project": own["project"], "created": own["created_at"], "note": note,
        "archived": archived is not None, "pinned": pinned is not None, "state": latest.state,
        "baseline": own["baseline_at"] is not None,
        "reason": latest.reason, "message": latest.message, "attempt": 2, "started": latest.started_at,
        "ended": latest.ended_at, "duration": None, "gpus": None, "step": None, "loss": None, "progress": None,
    }  # fmt: skip
    if latest.started_at is not None:
        one["duration"] = (NOW if latest.ended_at is None else latest.ended_at) - latest.started_at
    if spec.gpus_per_node is not None:
        one["gpus"] = spec.nodes * spec.gpus_per_node
    if values:
        one["step"] = 7
    if latest.state is State.SUCCEEDED:
        one["progress"] = 1.0
    elif spec.max_steps:
        one["progress"] = min(1.0, (one["step"] or 0) / spec.max_steps)
    losses = [values[name] for name in (*LOSSES, "val/loss") if name in values]
    one["loss"] = None if not losses or math.isnan(losses[0]) else losses[0]
    return {name: () if value is None else (value,) for name, value in one.items()} | {
        "tag": tuple(tags), "node": tuple(nodes)
    }  # fmt: skip


def _spec(luck: random.Random) -> dict[str, Any]:
    return {
        "target": luck.choice(("language_model", "/home/ada/Train_v2.py")),
        "nodes": luck.choice((1, 2)), "gpus_per_node": luck.choice((None, 1, 8)),
        "lr": luck.choice((None, 0.001, 0.2)), "batch_size": luck.choice((None, 8)),
        "precision": luck.choice(("fp32", "bf16")), "on_hang": luck.choice(("report", "report", "end")),
        "max_steps": luck.choice((None, 7, 100)), "entry": luck.choice((None, "Train_v2.py")),
    }  # fmt: skip


def _attempt(luck: random.Random, run_id: str, number: int) -> Attempt:
    state = luck.choice(list(State))
    started = None if state is State.QUEUED else luck.uniform(0, NOW)
    return Attempt(
        run_id=run_id, number=number, created_at=1.0, state=state, started_at=started,
        ended_at=luck.uniform(started or 0, NOW) if state.is_terminal else None,
        reason="script error" if state is State.FAILED else None, message=luck.choice([None, *WORDS]),
    )  # fmt: skip


def _series(fence: int, tag: str, value: float, node_rank: int = 0) -> Series:
    return Series(
        fence=fence, node_rank=node_rank, source="events", tag=tag, count=1, first_step=1, last_step=7, first_wall=1.0,
        last_wall=1.0, last_value=value, last_number=None if math.isnan(value) else value, finite_sum=0.0,
        finite_count=0,
    )  # fmt: skip


def _import(run_id: str, importer: str) -> ImportedRun:
    return ImportedRun(
        run_id=run_id,
        format=importer,
        source="/runs",
        digest=run_id,
        points=0,
        state="stopped",
        completed_at=1.0,
    )


def _node(name: str) -> Node:
    return Node(
        id=name, name=name, instance_id=name, token_hash=name, hostname=name, address="127.0.0.1", devices=[],
        labels={}, info={}, first_seen=1.0, last_seen=1.0,
    )  # fmt: skip


def _task(fence: int, rank: int, name: str) -> Task:
    return Task(fence=fence, node_rank=rank, node_id=name, device_kind="cpu", devices=[], state="running")
