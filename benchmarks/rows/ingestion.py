"""Scalars a second until they are durable and can be queried: through HTTP into SQLite, against the loggers."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from benchmarks.figures import Figure, in_turns, ratios
from benchmarks.peers.environment import peer
from benchmarks.served import Served, served
from domain.messages import PointBatch
from worker.session.client import Client, TaskRef
from worker.session.pieces import Piece, deliver, points_piece

TAGS = [f"train/s{number}" for number in range(8)]
BATCH_POINTS = 5120
"""Points of one request: about as many as a worker reads from a file at once."""
PEERS = {
    "trackio": "trackio",
    "mlflow": "MLflow's log_batch",
    "wandb": "W&B offline",
    "tensorboard": "TensorBoard's writer",
}
RUNS = 100


def measure(quick: bool) -> Iterator[Figure]:
    """Rates with one run, and with a hundred runs at once; each peer logs its own number of points."""
    points = BATCH_POINTS * (1 if quick else 8)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_until_end:
        site = open_until_end.enter_context(served(Path(folder) / "data", RUNS))
        acts = {
            "one run": rate(Ours(site, site.fences[:1]).send, points),
            "100 runs": rate(Ours(site, site.fences).send, points),
            "bare sqlite3": rate(Bare(Path(folder) / "bare.db").send, points),
        }
        for name, title in PEERS.items():
            at = Path(folder) / name
            at.mkdir()
            process = open_until_end.enter_context(peer("log_points.py", name, str(at)))
            acts[title] = lambda process=process: points / process.round(points)
        rates = in_turns(acts, 2 if quick else 5)
    for mode in ("one run", "100 runs"):
        for title in PEERS.values():
            yield figure(mode, rates, title, 8)
        yield figure(mode, rates, "bare sqlite3", 0.5)


def figure(mode: str, rates: dict[str, list[float]], peer: str, target: float) -> Figure:
    middle = {name: f"{sorted(values)[len(values) // 2]:,.0f}/s" for name, values in rates.items()}
    ratio = ratios(rates[mode], rates[peer])
    return Figure(f"scalars stored, {mode}", middle[mode], peer, middle[peer], ratio, target)


def rate(act: Callable[[int], None], points: int) -> Callable[[], float]:
    """Points a second of an act that stores that many."""

    def measured() -> float:
        began = time.perf_counter()
        act(points)
        return points / (time.perf_counter() - began)

    return measured


class Ours:
    """Sends batches by a worker's client: of one run one after another, of many as many as fit in a request."""

    def __init__(self, site: Served, fences: Sequence[int], tags: Sequence[str] = TAGS) -> None:
        token = site.worker.headers["Authorization"].removeprefix("Bearer ")
        self._client = Client(str(site.worker.base_url), token)
        self._tags = tags
        self._offsets = dict.fromkeys(fences, 0)
        self._path = f"logs/events.out.tfevents.{len(fences)}"
        self._batch_steps = BATCH_POINTS // len(tags)

    def send(self, points: int) -> None:
        """Return when the server has stored all points, which it answers within the request."""
        steps = points // len(self._tags) // len(self._offsets)
        for begin in range(0, steps, self._batch_steps):
            pieces = [self._piece(fence, min(self._batch_steps, steps - begin)) for fence in self._offsets]
            answers = deliver(self._client, pieces)
            assert answers == [piece.end for piece in pieces], answers
            self._offsets |= {piece.head.fence: piece.end for piece in pieces}

    def _piece(self, fence: int, steps: int) -> Piece:
        first = self._offsets[fence]
        values = [(step, 1 / (step + 1), time.time()) for step in range(first, first + steps)]
        series = dict.fromkeys(self._tags, values)
        batch = PointBatch(path=self._path, generation=0, start=first, end=first + steps, series=series)
        return points_piece(TaskRef(fence, 0), batch)


class Bare:
    """The least that durable and queryable points need: one table, one transaction for each batch."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute("CREATE TABLE points (series INTEGER, step INTEGER, value REAL, wall REAL)")
        self._connection.execute("CREATE INDEX by_step ON points (series, step)")
        self._steps = count()

    def send(self, points: int) -> None:
        """Insert them in batches as large as ours."""
        for _ in range(0, points, BATCH_POINTS):
            steps = [next(self._steps) for _ in range(BATCH_POINTS // len(TAGS))]
            rows = [(tag, step, 1 / (step + 1), time.time()) for tag in range(len(TAGS)) for step in steps]
            with self._connection:
                self._connection.executemany("INSERT INTO points VALUES (?, ?, ?, ?)", rows)
