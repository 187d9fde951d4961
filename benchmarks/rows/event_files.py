"""Reading event files, checksums included: a worker's reader against tensorboard's EventAccumulator."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from benchmarks.figures import Figure, in_turns, ratios
from worker.streams.events import EventTail
from worker.streams.point_uploader import BATCH_BYTES


def measure(quick: bool) -> Iterator[Figure]:
    """Events a second of one core."""
    events = 2_000 if quick else 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.out.tfevents.1700000000.node.1.0"
        write(path, events)
        acts = {"ours": lambda: events / ours(path), "theirs": lambda: events / theirs(path, events)}
        rates = in_turns(acts, 2 if quick else 7)
    ratio = ratios(rates["ours"], rates["theirs"])
    medians = {name: f"{sorted(values)[len(values) // 2]:,.0f}/s" for name, values in rates.items()}
    yield Figure("reading event files", medians["ours"], "tensorboard's EventAccumulator", medians["theirs"], ratio, 10)


def write(path: Path, events: int) -> None:
    """A file as SummaryWriter.add_scalar leaves it."""
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for step in range(events):
            value = Summary.Value(tag="train/loss", simple_value=1 / (step + 1))
            event = Event(wall_time=1.7e9 + step / 7, step=step, summary=Summary(value=[value]))
            writer.write(event.SerializeToString())
        writer.flush()


def ours(path: Path) -> float:
    """Processor time in seconds to read the file in a worker's pieces."""
    tail, count, began = EventTail(path), 0, time.process_time()
    while (batch := tail.read(BATCH_BYTES)).end > batch.start:
        count += sum(map(len, batch.series.values()))
    assert count, "the file holds points"
    return time.process_time() - began


def theirs(path: Path, events: int) -> float:
    """Processor time in seconds of tensorboard's own reader, which keeps every point."""
    began = time.process_time()
    accumulator = EventAccumulator(str(path), size_guidance={SCALARS: 0})
    accumulator.Reload()
    assert len(accumulator.Scalars("train/loss")) == events
    return time.process_time() - began
