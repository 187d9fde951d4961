"""Records of collectives, as workers read them from torch's Flight Recorder in each rank."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from domain.bounds import Integer, Moment, Rank, WorldSize

MAX_CALLS = 300
"""Latest calls of each rank that are compared."""
ITEM_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1,
    "Bool": 1, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip
DEFAULT_GROUP = "default_pg"

Shape = Annotated[list[Integer], Field(max_length=64)]


class Collective(BaseModel):
    """One call of a collective by one rank."""

    model_config = ConfigDict(frozen=True)

    group: Annotated[str, Field(max_length=200)]
    """The process group's name, the same on all of its ranks."""
    description: Annotated[str, Field(max_length=200)] = DEFAULT_GROUP
    """What the script calls the group."""
    sequence: Integer
    """Number of the call in its group, from 1."""
    operation: Annotated[str, Field(max_length=100)]
    sizes: Annotated[list[Shape], Field(max_length=64)] = []
    """Shapes of the input tensors."""
    dtypes: Annotated[list[Annotated[str, Field(max_length=30)]], Field(max_length=64)] = []
    retired: bool = False
    """Whether it is over for this rank."""
    called_at: Moment = 0.0
    """Seconds since the epoch by the node's clock."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the input tensors; 0 where a data type is unknown."""
        widths = [ITEM_BYTES.get(dtype, 0) for dtype in self.dtypes]
        return sum(math.prod(size) * width for size, width in zip(self.sizes, widths, strict=False))


class RankCollectives(BaseModel):
    """The latest collectives of one rank, and what it does now."""

    rank: Rank
    world_size: WorldSize = 1
    at: Moment = 0.0
    """When they were read, by the node's clock."""
    calls: Annotated[list[Collective], Field(max_length=MAX_CALLS)] = []
    """Oldest first."""
    groups: dict[str, list[Rank]] = {}
    """Ranks of each process group, by its name."""
    is_read: bool = True
    """False when the rank did not answer, or torch records nothing in it."""
    why_not: Annotated[str, Field(max_length=300)] = ""
    line: Annotated[str, Field(max_length=500)] = ""
    """The user's line: `train.py line 88 in step`."""
    doing: Annotated[str, Field(max_length=30)] = ""
    ended: bool = False
    failure: Annotated[str, Field(max_length=500)] = ""
    """The exception with which it ended."""

    @property
    def position(self) -> Collective | None:
        """The oldest call that is not over, else the latest one."""
        return next((call for call in self.calls if not call.retired), self.calls[-1] if self.calls else None)


class NodeCollectives(BaseModel):
    """The records of one node's ranks, and whether they have stopped stepping."""

    is_stalled: bool = False
    ranks: Annotated[list[RankCollectives], Field(max_length=1024)] = []


class CollectivesVerdict(BaseModel):
    """Where the ranks left their common path."""

    model_config = ConfigDict(frozen=True)

    kind: str
    """operation, size, dtype, order, group, missing, loader, left or extra."""
    ranks: list[int]
    """The ranks that the others wait for; all of them where nothing says which are wrong."""
    sentence: str


class CollectivesAnswer(BaseModel):
    """What the server answers to a node's collectives."""

    verdict: CollectivesVerdict | None = None
