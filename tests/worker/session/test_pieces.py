"""Pieces go in as few requests as the server and its proxies take, and each has an answer of its own."""

from __future__ import annotations

import pytest

from domain.messages import MOST_PIECES, Bundle, PieceAnswer, PointBatch
from domain.points import PackedBatch
from tests.worker.session.bundling_client import TASK, BundlingClient, only, piece, refused
from worker.session.failures import (
    AttemptSuperseded,
    OffsetMismatch,
    RequestFailed,
    RequestRefused,
    ServerMistake,
    TooLarge,
)
from worker.session.pieces import bytes_piece, deliver, points_piece


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
    answers = deliver(BundlingClient(only("b", answer)), [piece("a"), piece("b"), piece("c")])
    assert answers[::2] == [10, 10]
    assert isinstance(answers[1], raised)


def test_a_request_has_no_more_than_the_server_takes() -> None:
    client = BundlingClient()
    client.body_limit.refused(2000)
    pieces = [piece("a", 600), piece("b", 600), piece("c", 300), piece("d", 5000)]
    assert deliver(client, pieces) == [600, 600, 300, 5000]
    assert client.requests == [["a"], ["b", "c"], ["d"]]


def test_a_proxy_that_takes_only_small_requests_gets_smaller_ones() -> None:
    client = BundlingClient(only("a+b+c+d", TooLarge("413")))
    assert deliver(client, [piece(path) for path in "abcd"]) == [10] * 4
    assert client.requests == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"]]


def test_no_request_has_more_pieces_than_the_server_reads() -> None:
    client = BundlingClient()
    assert deliver(client, [piece(str(number)) for number in range(MOST_PIECES + 1)]) == [10] * (MOST_PIECES + 1)
    assert [len(request) for request in client.requests] == [MOST_PIECES, 1]


def test_a_request_that_is_refused_as_a_whole_is_refused_for_one_piece() -> None:
    refusal = RequestRefused("must be at most 4096 characters")
    client = BundlingClient(lambda asked: refusal if "b" in asked.split("+") else None)
    assert deliver(client, [piece(path) for path in "abc"]) == [10, refusal, 10]


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
