"""Streams in step: one request for the pieces of all, and each goes on with its own answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from domain.messages import MOST_PIECES, Bundle, PieceAnswer, PieceHead, PointBatch
from domain.points import PackedBatch
from worker.session.bodies import BodyLimit
from worker.session.client import TaskRef
from worker.session.failures import (
    AttemptSuperseded,
    OffsetMismatch,
    RequestFailed,
    RequestRefused,
    ServerAway,
    ServerMistake,
    TooLarge,
)
from worker.session.pieces import (
    Piece,
    Sending,
    bytes_piece,
    deliver,
    in_turn,
    points_piece,
    run,
    sent,
    together,
)

TASK = TaskRef(7, 0, "a/1/x")


class FakeClient:
    """Takes bundles as the server does; notes the paths of each."""

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


def stream(*paths: str) -> Sending[list[int]]:
    """Sends one piece after another."""
    ends = []
    for path in paths:
        ends.append((yield from sent(piece(path))))
    return ends


def refused(status: int, message: str = "no", field: str | None = None) -> PieceAnswer:
    return PieceAnswer(status=status, body={"detail": {"field": field, "message": message}})


def only(path: str, answer: Any) -> Callable[[str], Any]:
    """An answer to that piece, and success to all others."""
    return lambda asked: answer if asked == path else None


def test_streams_share_requests_and_a_short_one_delays_none() -> None:
    client = FakeClient()
    results = run(client, together([stream("a", "b", "c"), stream("d"), stream("e", "f")]))
    assert results == [[10, 10, 10], [10], [10, 10]]
    assert client.requests == [["a", "d", "e"], ["b", "f"], ["c"]], "one round takes one request"


def test_streams_that_are_together_may_be_part_of_others() -> None:
    client = FakeClient()
    inner = together([stream("a"), stream("b")])
    assert run(client, together([inner, together([stream("c")])])) == [[[10], [10]], [[10]]]
    assert client.requests == [["a", "b", "c"]]


@pytest.mark.parametrize(
    ("answer", "raised"),
    [
        (refused(409), AttemptSuperseded),
        (refused(404, field="store"), RequestFailed),
        (refused(422), RequestRefused),
        (refused(500), ServerMistake),
        (refused(507), RequestFailed),
        (PieceAnswer(status=416, body={"offset": 4}), OffsetMismatch),
        (PieceAnswer(status=200, body={"offset": 99}), RequestFailed),
    ],
)
def test_a_piece_that_fails_holds_up_no_other(answer: PieceAnswer, raised: type[Exception]) -> None:
    answers = deliver(FakeClient(only("b", answer)), [piece("a"), piece("b"), piece("c")])
    assert answers[::2] == [10, 10]
    assert isinstance(answers[1], raised)


def test_other_streams_end_before_a_servers_mistake_is_raised() -> None:
    client = FakeClient(only("b", refused(500)))
    with pytest.raises(ServerMistake):
        run(client, together([stream("a", "d"), stream("b", "never"), stream("c")]))
    assert client.requests == [["a", "b", "c"], ["d"]]


def test_any_other_failure_ends_the_round_once_all_have_their_answers() -> None:
    client, ended = FakeClient(only("b", refused(409))), []

    def noted(path: str) -> Sending[int]:
        try:
            end = yield from sent(piece(path))
            ended.append(path)
            return end
        finally:
            ended.append(f"{path} is closed")

    with pytest.raises(AttemptSuperseded):
        run(client, together([stream("b"), noted("a"), stream("c", "never")]))
    assert client.requests == [["b", "a", "c"]] and ended == ["a", "a is closed"]


def test_no_more_than_a_request_is_in_memory() -> None:
    client, begun = FakeClient(), []

    def large(number: int) -> Sending[int]:
        begun.append(number)
        return (yield from sent(piece(str(number), 1_000_000)))

    assert run(client, together(map(large, range(5)))) == [1_000_000] * 5
    assert client.requests == [["0", "1"], ["2"], ["3", "4"]]


def test_a_request_has_no_more_than_the_server_takes() -> None:
    client = FakeClient()
    client.body_limit.refused(2000)
    pieces = [piece("a", 600), piece("b", 600), piece("c", 300), piece("d", 5000)]
    assert deliver(client, pieces) == [600, 600, 300, 5000]
    assert client.requests == [["a"], ["b", "c"], ["d"]]


def test_a_proxy_that_takes_only_small_requests_gets_smaller_ones() -> None:
    client = FakeClient(only("a+b+c+d", TooLarge("413")))
    assert deliver(client, [piece(path) for path in "abcd"]) == [10] * 4
    assert client.requests == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"]]


def test_no_request_has_more_pieces_than_the_server_reads() -> None:
    client = FakeClient()
    assert deliver(client, [piece(str(number)) for number in range(MOST_PIECES + 1)]) == [10] * (MOST_PIECES + 1)
    assert [len(request) for request in client.requests] == [MOST_PIECES, 1]


def test_a_request_that_is_refused_as_a_whole_is_refused_for_one_piece() -> None:
    refusal = RequestRefused("must be at most 4096 characters")
    client = FakeClient(lambda asked: refusal if "b" in asked.split("+") else None)
    assert deliver(client, [piece(path) for path in "abc"]) == [10, refusal, 10]


def test_without_a_connection_nothing_else_is_tried() -> None:
    client = FakeClient(lambda _: ServerAway("away"))
    with pytest.raises(ServerAway):
        run(client, together([stream("a"), stream("b", "never")]))
    assert len(client.requests) == 1


def test_steps_in_turn_all_run_before_a_mistake_is_raised() -> None:
    done = []

    def failing() -> Sending[bool]:
        yield from ()
        raise ServerMistake("no")

    def working() -> Sending[bool]:
        yield from ()
        done.append(1)
        return True

    with pytest.raises(ServerMistake):
        run(FakeClient(), in_turn(failing, working))
    assert done == [1] and run(FakeClient(), in_turn(working)) is True


def test_points_and_bytes_are_read_as_they_were_written() -> None:
    batch = PointBatch(path="e", generation=0, start=0, end=9, series={"loss": [(1, float("nan"), 2.0)]})
    pieces = [points_piece(TASK, batch), bytes_piece(TASK, "logs/ü", 2, 5, b"\n\0{}\n")]
    heads, contents = [each.head for each in pieces], [each.content for each in pieces]
    bundle = Bundle.of_body(Bundle.body(heads, contents))
    assert bundle.heads == heads and bundle.contents == contents
    series = {tag: [*points] for tag, points in PackedBatch.of_body(bundle.contents[0]).series.items()}
    assert str(series) == str(batch.series) and bundle.contents[1] == b"\n\0{}\n"
    with pytest.raises(ValueError, match="as long as the heads say"):
        Bundle.of_body(Bundle.body(heads, contents)[:-1])
