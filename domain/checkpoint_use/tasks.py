"""The work on checkpoints that a node does for people: what it is asked, what it reports, and what people see."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.assignments import ResumeFrom
from domain.checkpoints.names import ARCHIVE_SUFFIX, stem_and_suffix
from domain.requests.bounds import Count
from domain.spec import RunSpec
from domain.text.formats import part_of, plural, size


class TaskKind(StrEnum):
    """The kinds of work."""

    MERGE = "merge"
    """One set of safetensors files with plain names, of all shards."""
    PUSH = "push"
    """Upload to the Hugging Face Hub or a bucket."""
    SHOW = "show"
    """Names, shapes, dtypes and norms of the tensors."""
    DIFF = "diff"
    """Relative change and cosine of each layer between two checkpoints."""


MergeFormat = Literal["safetensors", "hf"]
TaskState = Literal["waiting", "running", "succeeded", "failed", "cancelled"]
ENDED_STATES = ("succeeded", "failed", "cancelled")
DONE_HERE = "checkpoint_tasks"
"""The fact about a node that lists the kinds of work its worker can do; older workers do not have it."""


def merged_name(name: str, format: MergeFormat) -> str:
    """Name the checkpoint that a merge makes: a folder of a folder, a file of a file; `hf` is always a folder."""
    stem, suffix = stem_and_suffix(name.removeprefix("work/"))
    if format == "hf":
        return f"merged/{stem}-hf{ARCHIVE_SUFFIX}"
    return f"merged/{stem}{ARCHIVE_SUFFIX if suffix == ARCHIVE_SUFFIX else '.safetensors'}"


def progress_words(node: str, doing: str | None, done_bytes: int, total_bytes: int | None) -> str:
    """Say how far a node is: node n0 reads tensors: 1.2 GB of 6 GB."""
    so_far = f": {part_of(done_bytes, total_bytes)}" if total_bytes else ""
    return f"node {node} {doing or 'has not begun'}{so_far}"


def proof_words(result: Mapping[str, Any]) -> str:
    """Say what a merge wrote and how it was compared: 4 tensors, 8 MiB; 4 checksums agree with the shards, ….

    Its figures come from `rankzero_tensors`, in the Python that trains."""
    proof = result.get("proof") or {}
    equal, sampled = (proof.get("sums") or {}).get("equal", 0), (proof.get("samples") or {}).get("bytes", 0)
    wrote = f"{plural(result.get('tensors', 0), 'tensor')}, {size(result.get('bytes', 0))}"
    return f"{wrote}; {plural(equal, 'checksum')} agree with the shards, {size(sampled)} read from them again are equal"


class DesiredCheckpointTask(BaseModel):
    """The request to a node; repeated until it has reported the end."""

    model_config = ConfigDict(frozen=True)

    task_id: int
    kind: TaskKind
    run_id: str
    attempt: int
    fence: int
    node_rank: int
    uid: str = ""
    """Identify the attempt whose checkpoint it is, under which a merged one is offered."""
    by: str = ""
    """Who launched the run, under whose account the program runs."""
    spec: RunSpec
    """Its Python and environment run the program."""
    sources: Annotated[list[ResumeFrom], Field(min_length=1, max_length=2)]
    """The stored checkpoints to read: of a diff two."""
    format: MergeFormat = "safetensors"
    target: str = ""
    """Of a push: hf:ORG/NAME or s3://BUCKET/PREFIX."""
    is_private: bool = True
    is_cancelled: bool = False
    token: str = ""
    """Speaks for the attempt's task; empty in the store."""

    @property
    def label(self) -> str:
        """RUN/ATTEMPT/UID, as of the attempt's assignment."""
        return f"{self.run_id}/{self.attempt}/{self.uid}"


class PushDetails(BaseModel):
    """What a node asks for when it begins a push; it is in no file and no other message."""

    secrets: Annotated[dict[str, str], Field(repr=False)]
    """By the name of each credential: HF_TOKEN."""
    card: dict[str, Any]
    """The text of the model card, and its pictures by name as base64."""
    message: str
    """Of the commit."""


class CheckpointTaskReport(BaseModel):
    """A node's report on a task; the last one is sent until it is acknowledged."""

    state: TaskState
    doing: Annotated[str, Field(max_length=300)] | None = None
    done_bytes: Count = 0
    total_bytes: Count | None = None
    message: Annotated[str, Field(max_length=4000)] | None = None
    """Why it failed: what happened, the rule, and what to do."""
    result: dict[str, Any] | None = None
    """Of a program that succeeded."""
    merged_id: Count | None = None
    """The checkpoint that a merge has sent."""


class CheckpointTaskView(BaseModel):
    """A task as pages, the API and the command line show it."""

    id: int
    kind: TaskKind
    checkpoint_id: int
    name: str
    """Of the checkpoint."""
    other_id: int | None = None
    other_name: str | None = None
    node: str
    by: str | None
    asked_at: float
    state: TaskState
    doing: str | None = None
    done_bytes: int = 0
    total_bytes: int | None = None
    message: str | None = None
    result: dict[str, Any] | None = None
    merged_id: int | None = None
    ended_at: float | None = None
    options: dict[str, Any] = {}
