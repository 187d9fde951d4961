"""Memory on the Run page: trends on the Ranks tab, and what filled a device when an allocation failed."""

from __future__ import annotations

from pathlib import Path

from dashboard.views.run.memory import shares_bar, strip
from db.metrics.performance import memory_series
from domain.device_memory import AllocatingLine
from domain.messages import RankError, Reason
from tests.dashboard.pages import Pages, served, texts
from tests.domain.devices import GIB, device

MIB = 2**20
LINES = [
    AllocatingLine(file="/x/<b>model</b>.py", line=41, function="forward", bytes=GIB, count=12, largest_bytes=MIB),
    AllocatingLine(kind="optimizer", bytes=2 * GIB, count=3, largest_bytes=GIB),
]
MEMORY = device(other=52, requested=28, unused=4, rank=1, batch_size=64, lines=LINES)


def sampled(pages: Pages, label: str) -> None:
    """Half an hour of samples, in which rank 1 leaks."""
    times = [(step, 1000.0 + step) for step in range(5, 2000, 5)]
    pages.seed.points(
        label,
        {
            "memory_used_bytes": [(step, 8.0 * GIB, at) for step, at in times],
            "cpu_percent": [(step, 50.0, at) for step, at in times],
            "rank0/own_memory_bytes": [(step, float(GIB if step > 5 else 9 * GIB), at) for step, at in times],
            "rank1/own_memory_bytes": [(step, GIB + 12.0 * MIB * step, at) for step, at in times],
        },
        source="hardware",
    )


def test_trends_and_the_failures_memory_are_shown_and_only_where_they_were_read(tmp_path: Path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        pages.seed.launch("leaks", 3000, gpus_per_node=2)
        pages.seed.start("leaks", 2990)
        run_id = pages.seed.runs["leaks"]
        assert "Memory" not in [header.value for header in pages.open("run", id=run_id, tab="ranks").header]
        sampled(pages, "leaks")
        shown = texts(pages.open("run", id=run_id, tab="ranks")).replace("\\", "")
        assert "| 1 | gpu-1 | its process | 24.4 GiB | 24.4 GiB | +12 MiB a step |" in shown
        assert "| 0 | gpu-1 | its process | 1 GiB | 9 GiB | – |" in shown
        assert "gpu-1 | all processes | 8 GiB" in shown and "cpu" not in shown
        (peak,) = {s.peak_bytes for s in memory_series(pages.service.store, run_id, []) if s.tag.startswith("rank0")}
        assert peak == 9 * GIB
        error = RankError(rank=1, node_rank=0, exit_code=1, traceback="Traceback", memory=MEMORY)
        pages.seed.report(
            "leaks", "failed", 10, exit_code=1, reason=Reason.OUT_OF_MEMORY, error=error,
            message="rank 1 on gpu-1: CUDA out of memory",
        )  # fmt: skip
        page = pages.open("run", id=run_id)
        assert "Memory of rank 1 when the allocation failed" in [header.value for header in page.header]
        shown = texts(page).replace("\\", "")
        assert "28 GiB requested" in shown and "backward or native code" in shown
        assert "is an estimate" in shown and "<b>model" not in texts(page)


def test_the_bar_fills_the_device_and_holds_no_text_of_users() -> None:
    bar = shares_bar(MEMORY)
    widths = [float(part.split("%")[0]) for part in bar.split("width:")[1:] if "%" in part.split(";")[0]]
    assert abs(sum(widths) - 100) < 0.1
    assert "forward" not in bar and "activations and buffers 52 GiB" in bar


def test_a_strip_shows_the_highest_of_each_stretch() -> None:
    assert strip([1.0, 8.0], 8.0) == "▂█"
    assert len(strip([float(n) for n in range(500)], 499.0)) == 24
    assert strip([], 1.0) == strip([1.0], 0.0) == ""
