"""Pieces of streams that one request of a worker carries: points, and bytes of files, of any of its attempts.

The body is one line, the JSON list of the pieces' heads, and behind it their contents, one after another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationInfo, field_validator

MOST_BYTES = 2 * 1024 * 1024
"""Of the contents of one request."""
MOST_PIECES = 1000
Number = Annotated[int, Field(ge=0, lt=10**18)]


class PieceHead(BaseModel):
    """What a piece is about; its content is a batch of points as JSON, or bytes of the file at `path`."""

    model_config = ConfigDict(frozen=True)

    fence: Number
    node_rank: Number
    label: Annotated[str, Field(max_length=200)] = ""
    """RUN/ATTEMPT/UID, by which a restored store distinguishes the attempt from another with the same number."""
    size_bytes: Number
    """Of the content."""
    path: Annotated[str, Field(max_length=4096)] = ""
    """Empty: the content is a batch of points, which names its file itself."""
    generation: Annotated[int, Field(ge=0, le=2**31)] = 0
    offset: Annotated[int, Field(ge=0, le=2**62)] = 0


class PieceAnswer(BaseModel):
    """The status and body with which a request for this piece alone would be answered."""

    status: int
    body: dict[str, object]


class PieceAnswers(BaseModel):
    """One answer for each piece, in their order."""

    answers: list[PieceAnswer]


class Bundle(BaseModel):
    """The heads and contents of one request."""

    heads: Annotated[list[PieceHead], Field(max_length=MOST_PIECES)]
    contents: list[bytes]

    @field_validator("contents")
    @classmethod
    def _fit_their_heads(cls, contents: list[bytes], info: ValidationInfo) -> list[bytes]:
        if [head.size_bytes for head in info.data.get("heads", [])] != [*map(len, contents)]:
            raise ValueError("must be as long as the heads say")
        return contents

    @classmethod
    def of_body(cls, body: bytes) -> Self:
        """Read a request's body. Raises ValidationError."""
        line, _, rest = body.partition(b"\n")
        heads, contents, at = _HEADS.validate_json(line), list[bytes](), 0
        for head in heads:
            contents.append(rest[at : at + head.size_bytes])
            at += head.size_bytes
        return cls(heads=heads, contents=contents)

    @staticmethod
    def body(heads: Iterable[PieceHead], contents: Iterable[bytes]) -> bytes:
        """Write a request's body."""
        return b"\n".join([_HEADS.dump_json([*heads], exclude_defaults=True), b"".join(contents)])


_HEADS = TypeAdapter(list[PieceHead])
