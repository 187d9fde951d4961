"""What the traces of profiled ranks show, as nodes report it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from domain.requests.bounds import Count, Integer, Rank, Seconds

Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(max_length=300)]
MAX_FRAMES = 4000


class Operator(BaseModel):
    """An operator or kernel: all its calls in the recorded steps."""

    name: Name
    calls: Count
    self_s: Seconds
    """Without the operators that it calls."""
    total_s: Seconds


class Gaps(BaseModel):
    """The time between the end of one kernel or operator and the start of the next."""

    count: Count = 0
    total_s: Seconds = 0.0
    longest_s: Seconds = 0.0


class DeviceTimes(BaseModel):
    """How the GPU spent the recorded steps."""

    busy_share: Share
    communication_s: Seconds
    exposed_communication_s: Seconds
    """In which a collective ran and no other kernel."""
    gaps: Gaps
    kernels: list[Operator]


class Overview(BaseModel):
    """What the trace of one rank shows; seconds are those of all recorded steps together."""

    steps: Count
    seconds: Seconds
    """From the start of the first recorded step to the end of the last."""
    data_s: Seconds
    """In which the script waited for its data loader."""
    communication_s: Seconds
    """Of collectives between CPU tensors."""
    exposed_communication_s: Seconds
    """In which one of them ran and no operator did."""
    gaps: Gaps
    """Between operators of the thread that trains: Python, or waiting."""
    operators: list[Operator]
    device: DeviceTimes | None = None
    """None: no device was recorded."""
    advice: list[str] = []


Frame = tuple[Integer, Name, Seconds]
"""(depth, name, seconds) of one frame of a flame graph; a frame's callees follow it, one deeper."""


class RankProfile(BaseModel):
    """The outcome of a profile in one rank."""

    profile: Annotated[str, Field(pattern=r"[a-z0-9]{10}")]
    rank: Rank
    state: Literal["recorded", "failed", "timed out"]
    why: Annotated[str, Field(max_length=500)] = ""
    """Why there is no trace, or no overview of it."""
    file: Annotated[str, Field(max_length=200)] = ""
    """The trace's path below the attempt's directory."""
    size_bytes: Count = 0
    step_s_before: Seconds | None = None
    """Seconds of a step just before the recording."""
    overview: Overview | None = None
    flame: Annotated[list[Frame], Field(max_length=MAX_FRAMES)] = []
