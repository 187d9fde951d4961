"""The points and settings that the probe recorded of a script's loggers, as the worker reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from worker.loggers.store_source import SharedNames
from worker.loggers.stores import LoggerStores
from worker.streams.points import LoggerFiles

Curve = list[tuple[int, float]]
TRAINING = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
IS_FIRST = dist.get_rank() == 0

def losses(steps):
    for step in range(steps):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step, loss
"""
"""Two ranks of DistributedDataParallel; `losses` trains."""


def curves(attempt: Path) -> dict[str, Curve]:
    """Name -> [(step, value)] of the points that the worker sends."""
    by_name: dict[str, Curve] = {}
    for source in LoggerFiles(attempt, lambda path, generation: 0).sources(final=True):
        while batch := source.read(1 << 20):
            for tag, points in batch.series.items():
                by_name.setdefault(tag, []).extend((step, value) for step, value, _ in points)
    return by_name


def read_from_disk(attempt: Path, work: Path) -> dict[str, Curve]:
    """Name -> [(step, value)] of the points that the worker sends from the files of the loggers themselves."""
    names = SharedNames(attempt / "names.json", lambda: False)
    by_name: dict[str, Curve] = {}
    for source in LoggerStores(attempt, [work], lambda path, generation: 0, names).sources(final=True):
        while batch := source.read(1 << 20):
            for tag, points in batch.series.items():
                by_name.setdefault(tag, []).extend((step, value) for step, value, _ in points)
    return by_name


def settings(attempt: Path) -> dict[str, Any]:
    """Hyperparameters, tags and the like of all loggers."""
    merged: dict[str, Any] = {}
    for path in sorted((attempt / "probe" / "loggers").glob("settings-*.jsonl")):
        for line in path.read_text().splitlines():
            merged |= json.loads(line).get("settings", {})
    return merged
