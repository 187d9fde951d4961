"""A client that takes bundles as the server does, and the pieces and answers of tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from domain.messages import PieceAnswer, PieceHead
from worker.session.bodies import BodyLimit
from worker.session.client import TaskRef
from worker.session.pieces import Piece, bytes_piece

TASK = TaskRef(7, 0, "a/1/x")


class BundlingClient:
    """Notes the paths of each bundle."""

    url = "http://server"

    def __init__(self, answer: Callable[[str], PieceAnswer | Exception | None] = lambda _: None) -> None:
        self._answer = answer
        self.body_limit = BodyLimit()
        self.requests: list[list[str]] = []

    def bundle(self, heads: Sequence[PieceHead], contents: Sequence[bytes]) -> list[PieceAnswer]:
        """Answer each, or raise for all."""
        assert [head.size_bytes for head in heads] == [*map(len, contents)]
        self.requests.append([head.path for head in heads])
        if isinstance(refusal := self._answer("+".join(self.requests[-1])), Exception):
            raise refusal
        return [self._answer_to(head.path, head.offset + head.size_bytes) for head in heads]

    def _answer_to(self, path: str, end: int) -> PieceAnswer:
        answer = self._answer(path)
        return answer if isinstance(answer, PieceAnswer) else PieceAnswer(status=200, body={"offset": end})


def piece(path: str, size: int = 10, task: TaskRef = TASK) -> Piece:
    return bytes_piece(task, path, 0, 0, b"x" * size)


def refused(status: int, message: str = "no", field: str | None = None) -> PieceAnswer:
    return PieceAnswer(status=status, body={"detail": {"field": field, "message": message}})


def only(path: str, answer: Any) -> Callable[[str], Any]:
    """An answer to that piece, and success to all others."""
    return lambda asked: answer if asked == path else None
