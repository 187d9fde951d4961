"""Streams in step: one request for the pieces of all, and each goes on with its own answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from domain.messages import PieceAnswer
from tests.worker.session.bundling_client import BundlingClient, only, piece, refused
from worker.session.failures import AttemptSuperseded, RequestFailed, ServerAway, ServerMistake
from worker.session.outbox import Outbox, Outgoing, send
from worker.session.pieces import Answer, Piece


class Stream(Outgoing):
    """Sends one piece after another; `ends` are the offsets that the server has then."""

    def __init__(self, *paths: str, size: int = 10) -> None:
        self._pieces = [piece(path, size) for path in paths]
        self.ends: list[int] = []

    def pending(self) -> list[Piece]:
        return self._pieces[len(self.ends) :][:1]

    def answered(self, answers: Sequence[Answer]) -> None:
        (answer,) = answers
        if isinstance(answer, Exception):
            raise answer
        self.ends.append(answer)


class Failing(Outgoing):
    """Has nothing to send, and raises that instead."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    def pending(self) -> list[Piece]:
        raise self._failure

    def answered(self, answers: Sequence[Answer]) -> None:
        raise AssertionError(answers)


def test_streams_share_requests_and_a_short_one_delays_none() -> None:
    client = BundlingClient()
    streams = [Stream("a", "b", "c"), Stream("d"), Stream("e", "f")]
    send(client, Outbox([streams]))
    assert [stream.ends for stream in streams] == [[10, 10, 10], [10], [10, 10]]
    assert client.requests == [["a", "d", "e"], ["b", "f"], ["c"]], "one round takes one request"


def test_streams_that_are_together_may_be_part_of_others() -> None:
    client = BundlingClient()
    inner = Outbox([[Stream("a"), Stream("b")]])
    send(client, Outbox([[inner, Outbox([[Stream("c")]])]]))
    assert client.requests == [["a", "b", "c"]]


def test_a_group_waits_for_those_before_it() -> None:
    client = BundlingClient()
    send(client, Outbox([[Stream("a", "b"), Stream("c")], [], [Stream("d")]]))
    assert client.requests == [["a", "c"], ["b"], ["d"]]


def test_other_streams_end_before_a_servers_mistake_is_raised() -> None:
    client = BundlingClient(only("b", refused(500)))
    with pytest.raises(ServerMistake):
        send(client, Outbox([[Stream("a", "d"), Stream("b", "never"), Stream("c")]]))
    assert client.requests == [["a", "b", "c"], ["d"]]


def test_any_other_failure_ends_the_round_once_all_have_their_answers() -> None:
    client, other = BundlingClient(only("b", refused(409))), Stream("a")
    with pytest.raises(AttemptSuperseded):
        send(client, Outbox([[Stream("b"), other, Stream("c", "never")], [Stream("never")]]))
    assert client.requests == [["b", "a", "c"]] and other.ends == [10]


def test_what_others_have_begun_is_sent_before_a_failure_to_read_is_raised() -> None:
    client, other = BundlingClient(), Stream("a", "never")
    with pytest.raises(RequestFailed):
        send(client, Outbox([[other, Failing(RequestFailed("no offset")), Stream("never")]]))
    assert client.requests == [["a"]] and other.ends == [10]


@pytest.mark.parametrize("failure", [refused(500), refused(409)])
def test_failure_that_its_owner_judges_holds_up_no_other(failure: PieceAnswer) -> None:
    client, judged = BundlingClient(only("b", failure)), list[Exception | None]()
    attempts = [Outbox([[Stream(*paths)]], judged.append) for paths in (("a", "d"), ("b", "never"), ("c",))]
    send(client, Outbox([attempts]))
    assert client.requests == [["a", "b", "c"], ["d"]]
    assert isinstance(judged[0], ServerMistake | AttemptSuperseded) and judged[1:] == [None, None]


def test_no_more_than_a_request_is_in_memory() -> None:
    client, begun = BundlingClient(), list[int]()

    def large(number: int) -> Stream:
        begun.append(number)
        return Stream(str(number), size=1_000_000)

    outbox = Outbox([map(large, range(5))])
    assert len(outbox.pending()) == len(begun) == 3

    send(client, Outbox([map(large, range(5))]))
    assert client.requests == [["0", "1"], ["2"], ["3", "4"]]


@pytest.mark.parametrize("has_owner", [True, False])
def test_without_a_connection_nothing_else_is_tried(has_owner: bool) -> None:
    client = BundlingClient(lambda _: ServerAway("away"))
    attempts = [Outbox([[Stream(path)]]) if has_owner else Stream(path) for path in ("a", "b")]
    with pytest.raises(ServerAway):
        send(client, Outbox([attempts, [Stream("never")]]))
    assert len(client.requests) == 1


def test_groups_all_have_their_turn_before_a_mistake_is_raised() -> None:
    client = BundlingClient()
    with pytest.raises(ServerMistake):
        send(client, Outbox([[Failing(ServerMistake("no"))], [Stream("a")]]))
    assert client.requests == [["a"]]
