"""Lists of what a run made, and of a study's sizes: ranks, checkpoints, history. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from domain.text.columns import Column, Columns, Figure
from domain.text.formats import (
    clock_time,
    count,
    milliseconds,
    number,
    signature,
    size,
)

if TYPE_CHECKING:
    from domain.checkpoints.contents import Kind
    from domain.scaling.points import Point
    from domain.views import CheckpointView, HistoryView, RankView


KIND_WORDS: dict[Kind, str] = {
    "model": "model",
    "optimizer": "optimizer",
    "scheduler": "scheduler",
    "scaler": "scaler",
    "rng": "random states",
    "sampler": "data position",
    "step": "step",
}
RANKS: Columns[RankView] = (
    Column("rank"), Column("node"), Figure("step", lambda rank: count(rank.step)),
    Figure("step time", lambda rank: milliseconds(rank.step_time_s)),
    Figure("waits for data", lambda rank: milliseconds(rank.data_wait_s)),
    Figure("memory", lambda rank: size(rank.peak_memory_bytes)),
)  # fmt: skip


def checkpoints(when: Callable[[float], str]) -> Columns[CheckpointView]:
    """Return the columns of checkpoints; `when` puts the moment of saving into words."""
    return [
        Column("name"), Figure("step", lambda one: ("≈ " if one.step_is_inferred else "") + count(one.step)),
        Figure("loss", lambda one: number(one.loss, 4)), Figure("size", lambda one: size(one.size_bytes)),
        Column("holds", lambda one: holds_words(one.holds)),
        Column("state", lambda one: ", ".join([progress(one), *marks(one)])), Figure("attempt"),
        Column("saved", lambda one: when(one.created_at)), Column("SHA-256", lambda one: f"{one.sha256[:12]}…"),
    ]  # fmt: skip


def holds_words(kinds: Sequence[Kind] | None) -> str:
    """Return the kinds of state in a checkpoint in words."""
    return "not read" if kinds is None else ", ".join(KIND_WORDS[kind] for kind in kinds)


def progress(checkpoint: CheckpointView, attempt_has_ended: bool = False) -> str:
    """Return how much of a checkpoint has arrived, in words."""
    if checkpoint.complete:
        return "complete"
    share = f"{checkpoint.received_bytes / (checkpoint.size_bytes or 1):.0%} received"
    if checkpoint.is_asked_for_again:
        return f"asked for again, {share}"
    if attempt_has_ended:
        return "never completed"
    return f"{share}, waiting" if checkpoint.trouble else share


def marks(checkpoint: CheckpointView) -> list[str]:
    """Return what tells a checkpoint from the others, each in a word or two."""
    prefix = checkpoint.prefix or ""
    wrapper = "DDP" if prefix.startswith("module.") else "torch.compile" if prefix == "_orig_mod." else prefix
    marked = {
        "latest": checkpoint.latest, "best": checkpoint.best, "pinned": checkpoint.pinned_at,
        "only a part": checkpoint.is_part, f"{wrapper} prefix": checkpoint.prefix,
        merged_words(checkpoint): checkpoint.merged_from is not None,
    }  # fmt: skip
    return [mark for mark, holds in marked.items() if holds]


def merged_words(checkpoint: CheckpointView) -> str:
    """Say from which one a checkpoint was merged, by the last part of its name."""
    source = PurePosixPath(checkpoint.merged_from_name or "").name
    return f"merged from {source}" if source else "merged"


def deleter(checkpoint: CheckpointView) -> str:
    """Return who or which rule deleted a checkpoint."""
    return f"the rule {checkpoint.deleted_why}" if checkpoint.deleted_why else checkpoint.deleted_by or "a person"


def history(zone: tzinfo, with_people: bool) -> Columns[HistoryView]:
    """Return the columns of a run's history in a time zone."""
    columns: list[Column[HistoryView]] = [
        Column("when (UTC)" if zone is UTC else "when", lambda line: clock_time(line.at, zone)), Figure("attempt"),
        Column("what", lambda line: line.text), Column("who", lambda line: signature(line.by, line.via)),
    ]  # fmt: skip
    return columns if with_people else columns[:-1]


STRATEGIES = {"ddp": "DDP", "dp": "DataParallel", "single": "a single process", "fsdp": "FSDP"}


def scaling_points(has_batches: bool) -> Columns[Point]:
    """Return the columns of the sizes of a scaling study, with the global batch where several are compared."""
    columns: list[Column[Point]] = [
        Figure("global batch", lambda point: count(point.global_batch_size)), Figure("devices"), Figure("nodes"),
        Column("strategy", lambda point: STRATEGIES.get(point.strategy, point.strategy)), Column("run"),
        Figure("samples/s", lambda point: _known(point.samples_per_s, number)),
        Figure("speed-up", lambda point: _known(point.speedup, "{:.2f}x".format)),
        Figure("efficiency", lambda point: _known(point.efficiency, "{:.0%}".format)),
        Figure("spread", lambda point: _known(point.spread, "{:.1%}".format)),
        Column("limit", lambda point: point.limit or point.problem),
    ]  # fmt: skip
    return columns if has_batches else columns[1:]


def _known(value: float | None, words: Callable[[float], str]) -> str:
    return "" if value is None else words(value)
