"""How many events a second a worker reads from an event file, checksums included, of one core.

Usage: .venv/bin/python benchmarks/event_files.py [EVENTS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from worker.streams.events import EventTail
from worker.streams.point_uploader import BATCH_BYTES

ROUNDS = 9


def write(path: Path, events: int) -> None:
    """A file as SummaryWriter.add_scalar leaves it."""
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for step in range(events):
            value = Summary.Value(tag="train/loss", simple_value=1 / (step + 1))
            event = Event(wall_time=1.7e9 + step / 7, step=step, summary=Summary(value=[value]))
            writer.write(event.SerializeToString())
        writer.flush()


def read(path: Path) -> tuple[int, float]:
    """Points, and the processor time it took to read them in a worker's pieces."""
    tail, count, began = EventTail(path), 0, time.process_time()
    while (found := tail.read(BATCH_BYTES)).end > found.start:
        count += sum(map(len, found.series.values()))
    return count, time.process_time() - began


def main() -> None:
    """Print the median and the best of several rounds."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.out.tfevents.1700000000.node.1.0"
        write(path, events)
        rates = sorted(count / seconds for count, seconds in (read(path) for _ in range(ROUNDS)))
    print(f"{rates[ROUNDS // 2]:,.0f} events/s of one core (best round {rates[-1]:,.0f})")


if __name__ == "__main__":
    main()
