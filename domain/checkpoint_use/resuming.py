"""A resume before it begins: what differs from when its checkpoint was written, what the checkpoint lacks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from domain.catalogue import OTHER_CODE
from domain.checkpoints.contents import CheckpointContents, Kind
from domain.spec import CATALOGUE


@dataclass(frozen=True)
class ResumeChange:
    """A value that the resume has, and the one under which the checkpoint was written."""

    field: str
    """A field of the spec, world_size, global_batch_size, scaled_lr, code, interpreter.NAME or package.NAME."""
    label: str
    then: Any
    now: Any


@dataclass(frozen=True)
class ResumeConsequence(ResumeChange):
    """A change, and what it means for the training."""

    means: str


@dataclass(frozen=True)
class ResumePlan:
    """A resume as it would be."""

    checkpoint: str | None
    """Its name; None where the run would start from the beginning."""
    step: int | None = None
    attempt: int | None = None
    """The attempt that wrote it."""
    differs: list[ResumeConsequence] = field(default_factory=list)
    holds: list[Kind] = field(default_factory=list)
    lacks: list[Kind] = field(default_factory=list)
    consequences: dict[Kind, str] = field(default_factory=dict)
    """A sentence for each kind that it lacks."""
    is_read: bool = False
    """Whether its node has read what it holds; otherwise nothing is known of what it lacks."""
    possible: bool = True
    why: str | None = None
    """Why it is not possible: what happened, the rule, and what to do."""


def resume_plan(
    checkpoint: SavedState, changes: Iterable[ResumeChange], precision: str, worlds: tuple[int, int]
) -> ResumePlan:
    """Plan a resume; `precision`: that of the resume, `worlds`: the number of ranks then and now."""
    contents = checkpoint.contents
    lacks = _lacks(contents, precision) if contents else []
    why = _no_model(checkpoint, lacks) or (_world_refusal(contents, *worlds) if contents else None)
    return ResumePlan(
        checkpoint=checkpoint.name,
        step=checkpoint.step,
        attempt=checkpoint.attempt,
        differs=[consequence for one in changes if (consequence := _consequence(one, contents)).means],
        holds=contents.kinds if contents else [],
        lacks=lacks,
        consequences={kind: LACKS[kind] for kind in lacks},
        is_read=contents is not None,
        possible=why is None,
        why=why,
    )


@dataclass(frozen=True)
class SavedState:
    """The checkpoint that a resume begins with."""

    name: str
    step: int | None
    attempt: int
    contents: CheckpointContents | None


LACKS: dict[Kind, str] = {
    "model": "There are no weights in it to continue from.",
    "optimizer": "The optimizer starts without its averages: the first steps are rougher, and the loss often jumps.",
    "scheduler": "A schedule of the learning rate begins again, unless the script computes it from the step.",
    "scaler": "The gradient scaler begins with its first scale again and skips a few steps.",
    "rng": "Shuffling and dropout continue with other random numbers: not repeatable bit by bit.",
    "sampler": "The data begin again with the first sample of an epoch: samples since then are seen twice.",
    "step": "Steps and epochs count from 0 again, unless the script takes them from the file's name.",
}
"""The consequence of each kind of state that is missing."""
DEEPSPEED = "DeepSpeed checkpoint"


def _lacks(contents: CheckpointContents, precision: str) -> list[Kind]:
    """The kinds that are missing; a gradient scaler belongs to fp16 alone."""
    return [kind for kind in LACKS if kind not in contents.kinds and (kind != "scaler" or precision == "fp16")]


def _no_model(checkpoint: SavedState, lacks: Sequence[Kind]) -> str | None:
    if "model" not in lacks:
        return None
    return f"{checkpoint.name} holds no model: nothing resumes from it alone. Choose another checkpoint."


def _world_refusal(contents: CheckpointContents, then: int, now: int) -> str | None:
    """Why a checkpoint cannot be loaded on another number of ranks."""
    if then == now:
        return None
    is_divided = "optimizer" in contents.by_rank or (then == 1 and "optimizer" in contents.kinds)
    if contents.layout == DEEPSPEED and is_divided:
        return (
            f"DeepSpeed ZeRO loads its optimizer only on the {then} ranks that saved it, and {now} would start. Launch "
            f"it on {then} ranks, or convert the checkpoint first: ds_to_universal.py."
        )
    if bound := [kind for kind in ("model", "optimizer") if kind in contents.by_rank]:
        return (
            f"Each of {then} ranks saved a file of its own ({' and '.join(bound)}), and {now} would start: no rank "
            f"can load another's part. Launch it on {then} ranks, or merge the checkpoint first."
        )
    return None


# The meaning of each change.

_OF_OTHERS = {
    "global_batch_size": "A step averages over another number of samples: a schedule that counts steps passes through "
    "the data at another pace, and the learning rate was chosen for the other batch.",
    "code": OTHER_CODE,
    "interpreter.python": "Pickled objects other than tensors may not load.",
    "interpreter.cuda": "Kernels differ: sums are rounded otherwise.",
    "interpreter.rocm": "Kernels differ: sums are rounded otherwise.",
}
"""What is no field of the spec, whose meaning its row in the catalogue has."""
_FRAMEWORKS = frozenset(
    "accelerate deepspeed lightning pytorch-lightning megatron-core numpy peft safetensors torchdata "
    "transformers".split()
)


def _consequence(change: ResumeChange, contents: CheckpointContents | None) -> ResumeConsequence:
    return ResumeConsequence(change.field, change.label, change.then, change.now, _means(change, contents))


def _means(change: ResumeChange, contents: CheckpointContents | None) -> str:
    """The meaning of a change; empty where a training does not notice it."""
    group, _, name = change.field.partition(".")
    if change.field in ("lr", "scaled_lr"):
        return _of_rate(contents)
    if change.field == "world_size":
        return _of_world(contents, change.then, change.now)
    if change.field == "interpreter.torch":
        return _of_torch(str(change.then), str(change.now))
    if group == "package":
        return f"Checkpoints of {name} may differ between its versions." if name in _FRAMEWORKS else ""
    return _OF_OTHERS.get(change.field) or (CATALOGUE[group].resumed if group in CATALOGUE else "")


def _of_rate(contents: CheckpointContents | None) -> str:
    if contents and "optimizer" in contents.kinds:
        return (
            "The optimizer's state has the rate of then, which loading it brings back: the new one counts only if the "
            "script sets it afterwards."
        )
    return "The steps are larger or smaller from the first one on."


def _of_world(contents: CheckpointContents | None, then: int, now: int) -> str:
    by_rank = contents.by_rank if contents else []
    parts = ["The data are divided otherwise: within the epoch some samples come twice, others never."]
    if "rng" in by_rank:
        more = "; the others begin with new ones" if now > then else ""
        parts.append(f"The random states are those of {then} ranks{more}.")
    if contents and contents.layout == "distributed checkpoint":
        parts.append("torch.distributed.checkpoint divides the tensors anew when it loads them.")
    return " ".join(parts)


def _of_torch(then: str, now: str) -> str:
    if _version(now) < _version(then):
        return "This torch is older than the one that wrote the checkpoint: it may not load it."
    return "A newer torch reads files of older ones; kernels differ, so sums are rounded otherwise."


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text.partition("+")[0])[:3]))
