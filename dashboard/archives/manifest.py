"""The manifest of an archive: every file in it with its size and digest, written last and read first."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from domain.choices import RUN_ID

FORMAT, VERSION = "rankzero-archive", 1
MemberSize = Annotated[int, Field(ge=0, lt=2**63)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ArchivedFile(BaseModel):
    """The size and digest of a file in an archive."""

    size_bytes: MemberSize
    sha256: Sha256


class Manifest(BaseModel):
    """What an archive holds."""

    format: Literal["rankzero-archive"] = "rankzero-archive"
    version: int = VERSION
    runs: list[Annotated[str, Field(pattern=f"^{RUN_ID.pattern}$")]]
    files: dict[str, ArchivedFile]


MANIFEST = "manifest.json"
CHUNK_BYTES = 256 * 24
"""A packed chunk of points: 256 steps, values and wall times; the last one of a series may be shorter."""


def run_file(run_id: str, *names: object) -> str:
    """Return the name of a run's file in an archive: run.json, series/3, files/7, checkpoints/2."""
    return "/".join(["runs", run_id, *map(str, names)])


def snapshot_file(sha256: str) -> str:
    """Return the name of a code snapshot in an archive."""
    return f"snapshots/{sha256}"
