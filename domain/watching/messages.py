"""What a watching process tells the server of the command that it watches, and what it gets back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.assignments import Assignment
from domain.choices import RUN_ID
from domain.messages import NodeFacts
from domain.people.references import Named, Reference
from domain.people.roles import Action
from domain.requests.bounds import Moment, Rank
from domain.spec import Argument, Label, Tags

Text = Annotated[Argument, Field(max_length=4096)]
Id = Annotated[str, Field(pattern=f"^{RUN_ID.pattern}$")]
Processes = Annotated[int, Field(ge=1, le=4096)]
RanksHere = Annotated[int, Field(ge=1, le=1024)]
WorldSize = Annotated[int, Field(ge=1, le=4096 * 1024)]


class WatchedCommand(BaseModel):
    """What somebody started, where, and under which account."""

    model_config = ConfigDict(frozen=True)

    argv: Annotated[list[Text], Field(max_length=10_000)]
    """As it was typed behind `--`; empty for a notebook or script that watches itself."""
    cwd: Text
    host: Annotated[Label, Field(min_length=1)]
    account: Label
    pid: Annotated[int, Field(ge=0, lt=2**31)]
    """The process that watches."""
    scheduler: Label | None = None
    """What started it, for people: Slurm job 4711."""


class WatchRequest(BaseModel):
    """Asks for a place in a run; asked again with the same `watch_id` it gets the same place."""

    protocol: int
    watch_id: Id
    run_id: Id
    """The id that its processes already have in their environment, which the run gets where it is free."""
    key: Text | None = None
    """What all processes of the run share; None: it has one process only."""
    is_lasting: bool = False
    """Whether a process of this key that comes after the end is the run's next attempt, not a new run."""
    process: Rank | None = None
    """Its place among the watching processes of the run; None: the first free one."""
    processes: Processes | None = None
    """How many watch this run, as far as its scheduler says."""
    ranks_here: RanksHere | None = None
    """Ranks that it starts, as far as its command says; None: the probe will tell."""
    world_size: WorldSize | None = None
    """As its environment says; another one than that of the run's other processes becomes a finding."""
    name: Label = ""
    project: Annotated[Label, Reference(Named.PROJECT, Action.ADD)] = "default"
    tags: Tags = []
    command: WatchedCommand
    python: Text | None = None
    look_only: bool = False
    stop_grace_s: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 30.0
    started_at: Moment
    """When the command was started, by this machine's clock; it may be long ago."""
    facts: NodeFacts


class WatchAnswer(BaseModel):
    """The place of a watching process, or why it has none."""

    place: Literal["joined", "waits", "refused"]
    """waits: ask again, an earlier attempt has not ended. refused: nothing more is to be asked."""
    message: str = ""
    """For people where it waits or is refused."""
    run_id: str = ""
    name: str = ""
    url: str = ""
    """The path of the run's page below the dashboard's address."""
    node_id: str = ""
    node_token: str = ""
    """With which the guest node speaks from now on."""
    assignment: Assignment | None = None
    store: str = ""
