"""Opening a chart of a long series, and zooming into it, against TensorBoard, MLflow and trackio."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2

from benchmarks.figures import Cost, Figure, Spread, in_turns, milliseconds, ratios
from benchmarks.peers.environment import peer
from benchmarks.rows.ingestion import Ours
from benchmarks.served import Served, served

PEERS = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "trackio": "trackio"}
WHOLE, ZOOMED = 0, 1
"""Rounds of a peer."""
NAME = "train/loss"
MOST_POINTS = 2000
MOST_MS, MOST_KB = 50, 100


def measure(quick: bool) -> Iterator[Figure | Cost]:
    """Times through HTTP, and how they grow with the length of the series."""
    points = 20_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_until_end:
        site = open_until_end.enter_context(served(Path(folder) / "data", 4))
        lengths = [points // 1000, points // 100, points // 10, points]
        for index, length in enumerate(lengths):
            Ours(site, site.fences[index : index + 1], [NAME]).send(length)
        acts = {"whole": lambda: opened(site, points), "zoomed": lambda: zoomed(site, points)}
        for name, title in PEERS.items():
            at = Path(folder) / name
            at.mkdir()
            process = open_until_end.enter_context(peer("open_chart.py", name, str(at)))
            process.round(points)
            acts[f"whole {title}"] = lambda process=process: process.round(WHOLE)
            if name != "tensorboard":
                acts[f"zoomed {title}"] = lambda process=process: process.round(ZOOMED)
        seconds = in_turns(acts, 3 if quick else 11)
        length_of_answer = len(read(site, 3).content)
        growth = Cost("opening a chart", "points")
        for index, length in enumerate(lengths):
            growth.seconds[length] = Spread.of(timed(site, index) for _ in range(5)).median
    for view in ("whole", "zoomed"):
        for title in PEERS.values():
            if peers := seconds.get(f"{view} {title}"):
                what = f"chart of {points:,} points, {view}"
                yield Figure(what, ms(seconds[view]), title, ms(peers), ratios(peers, seconds[view]), 20)
    limit = Spread.of(1000 * s / MOST_MS for s in seconds["whole"])
    yield Figure(
        f"chart of {points:,} points, whole",
        ms(seconds["whole"]),
        "a limit",
        f"{MOST_MS} ms",
        limit,
        1,
        "less",
    )
    size = Spread.of([length_of_answer / 1000 / MOST_KB])
    yield Figure(
        f"bytes of a chart of {points:,} points",
        f"{length_of_answer / 1000:.0f} KB",
        "a limit",
        f"{MOST_KB} KB",
        size,
        1,
        "less",
    )
    yield growth


def read(site: Served, index: int, **more: str | int) -> httpx2.Response:
    """The answer that a chart is drawn from."""
    query = {"name": NAME, "max_points": MOST_POINTS, **more}
    answer = site.user.get(f"/api/runs/{site.runs[index]}/metrics", params=query)
    answer.raise_for_status()
    return answer


def timed(site: Served, index: int, **more: str | int) -> float:
    began = time.perf_counter()
    assert len(read(site, index, **more).json()[NAME]) > 10
    return time.perf_counter() - began


def opened(site: Served, points: int) -> float:
    """Seconds until all of it has arrived, thinned for the screen."""
    return timed(site, 3)


def zoomed(site: Served, points: int) -> float:
    """Seconds for the tenth in the middle."""
    return timed(site, 3, since=int(0.45 * points), until=int(0.55 * points))


def ms(seconds: list[float]) -> str:
    return milliseconds(sorted(seconds)[len(seconds) // 2])
