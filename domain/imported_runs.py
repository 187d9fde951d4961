"""Runs that trained elsewhere: their description and points, as `rankzero import` sends them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.messages import Point
from domain.people.references import Named, Reference
from domain.people.roles import Action
from domain.requests.bounds import Count
from domain.spec import Argument, Label

Moment = Annotated[float, Field(ge=0, lt=2**40, allow_inf_nan=False)]
"""Seconds since the epoch."""
ImportFormat = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
"""The importer that read a run: tensorboard, wandb, mlflow, …"""


class ImportRequest(BaseModel):
    """A run that trained elsewhere and has ended."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings", extra="forbid")

    format: ImportFormat
    source: Annotated[Argument, Field(min_length=1, max_length=4096)]
    """The machine and path it was read from; a changed run is recognised by it."""
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of everything read, by which an unchanged run is recognised."""
    name: Annotated[Label, Field(min_length=1)]
    project: Annotated[Label, Field(min_length=1), Reference(Named.PROJECT, Action.LAUNCH)] = "default"
    state: Literal["succeeded", "failed", "stopped"]
    message: Annotated[Argument, Field(max_length=2000)] | None = None
    """How it ended, in a sentence."""
    started_at: Moment
    ended_at: Moment | None = None
    """None: the time of its last point."""
    settings: dict[str, Any] = {}
    """Its `config`, `tags` and `summary`, as loggers have them."""


class ImportedPoints(BaseModel):
    """The next points of an imported run."""

    model_config = ConfigDict(ser_json_inf_nan="strings", extra="forbid")

    start: Count
    """The number of its points before these."""
    series: dict[str, list[Point]]
    writer: Count = 0
    """The number of the file that they were written to, among those of the run: one that goes back replaces points."""
    is_last: bool = False
