"""Few kinds of failure, and none of them by mistake: only the server's own word ends a training."""

from __future__ import annotations

import hashlib
import json
import math

import httpx2
import pytest

from domain.assignments import ResumeFrom
from domain.messages import Bundle, NodeFacts, NodeLoad, PointBatch, TaskReport
from domain.points import PackedBatch
from worker.session.client import Client, TaskRef
from worker.session.failures import (
    AttemptSuperseded,
    ChecksumMismatch,
    OffsetMismatch,
    RequestFailed,
    RequestRefused,
    ServerAway,
    ServerFull,
    ServerMistake,
    TooLarge,
    Unauthorized,
)
from worker.session.pieces import bytes_piece, deliver, points_piece

PART = TaskRef(fence=7, node_rank=1)
REPORT = TaskReport(state="running")


def client(answer) -> Client:
    """A client whose server is the function `answer(request)`."""
    return Client("http://server/", "node-token", transport=httpx2.MockTransport(answer))


def says(status: int, message: str = "so it is"):
    body = {"detail": {"field": None, "message": message}}
    return lambda request: httpx2.Response(status, json=body)


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (401, Unauthorized),
        (403, AttemptSuperseded),
        (404, AttemptSuperseded),
        (409, AttemptSuperseded),
        (422, RequestRefused),
        (413, TooLarge),
        (429, RequestFailed),
        (500, ServerMistake),
        (503, RequestFailed),
        (507, ServerFull),
    ],
)
def test_each_status_has_one_meaning(status, meaning):
    with pytest.raises(meaning, match="so it is") as caught:
        client(says(status)).report(PART, REPORT)
    assert type(caught.value) is meaning


@pytest.mark.parametrize("status", [301, 400, 403, 404, 409, 410])
def test_answer_of_a_proxy_ends_no_training(status):
    with pytest.raises(ServerAway):
        client(lambda request: httpx2.Response(status, text="<html>no</html>")).report(PART, REPORT)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_that_does_not_reach_the_server_either_means_that_it_is_away(status):
    with pytest.raises(ServerAway) as caught:
        client(lambda request: httpx2.Response(status, text="<html>no</html>")).report(PART, REPORT)
    assert type(caught.value) is ServerAway


@pytest.mark.parametrize(
    ("error", "meaning"), [(httpx2.ConnectTimeout, ServerAway), (httpx2.ReadTimeout, RequestFailed)]
)
def test_only_without_a_connection_nobody_gets_through(error, meaning):
    def answer(request):
        raise error("no")

    with pytest.raises(ServerAway) as caught:
        client(answer).report(PART, REPORT)
    assert type(caught.value) is meaning


def test_an_answer_that_is_not_the_servers_counts_as_no_answer():
    for body in (b"<html>", b"[]", b'{"detail": "Not Found"}'):
        with pytest.raises(ServerAway):
            client(lambda request, body=body: httpx2.Response(200, content=body)).desired_state(None, 0)


def test_a_server_that_cannot_be_reached_is_away():
    def refuse(request):
        raise httpx2.ConnectError("connection refused")

    with pytest.raises(ServerAway, match="connection refused"):
        client(refuse).report(PART, REPORT)


def test_a_wrong_offset_says_which_one_is_right():
    with pytest.raises(OffsetMismatch) as caught:
        client(lambda request: httpx2.Response(416, json={"offset": 12})).send_checkpoint(1, 5, b"x")
    assert caught.value.have == 12


def bundled(status: int, body: dict) -> httpx2.Response:
    return httpx2.Response(200, json={"answers": [{"status": status, "body": body}]})


def test_bytes_are_appended_at_an_offset():
    def answer(request):
        assert (request.method, request.url.path) == ("POST", "/api/worker/pieces")
        assert request.headers["authorization"] == "Bearer node-token"
        bundle = Bundle.of_body(request.content)
        (head,), (content,) = bundle.heads, bundle.contents
        assert (head.fence, head.node_rank, head.path) == (7, 1, "logs/ränk 0&.out")
        assert (head.generation, head.offset, content) == (2, 5, b"\0\xff")
        return bundled(200, {"offset": 7})

    assert deliver(client(answer), [bytes_piece(PART, "logs/ränk 0&.out", 2, 5, b"\0\xff")]) == [7]


def test_nan_and_infinity_travel():
    def answer(request):
        points = PackedBatch.of_body(Bundle.of_body(request.content).contents[0]).series["loss"]
        assert str([value for _, value, _ in points]) == "[nan, inf, -inf, 0.5]"
        return bundled(200, {"offset": 9})

    values = (math.nan, math.inf, -math.inf, 0.5)
    points = [(step, value, 1.0) for step, value in enumerate(values)]
    batch = PointBatch(path="e", generation=0, start=0, end=9, series={"loss": points})
    assert deliver(client(answer), [points_piece(PART, batch)]) == [9]


def test_registering_uses_the_join_token_and_keeps_the_nodes_own():
    def answer(request):
        if request.url.path.endswith("/register"):
            assert request.headers["authorization"] == "Bearer join"
            assert json.loads(request.content)["node_id"] == "n1"
            return httpx2.Response(200, json={"node_id": "n1", "token": "fresh", "adopt": None})
        assert request.headers["authorization"] == "Bearer fresh"
        return httpx2.Response(200, json={"node_id": "n1"})

    server = client(answer)
    facts = NodeFacts(name="a", instance_id="i", hostname="h", address="127.0.0.1", devices=[])
    registration = server.register(facts, "n1", "join")
    assert (registration.node_id, registration.poll_wait_s) == ("n1", 20.0)
    server.load(NodeLoad())


def test_a_name_that_is_taken_is_a_refusal_not_the_end_of_an_attempt():
    facts = NodeFacts(name="a", instance_id="i", hostname="h", address="127.0.0.1", devices=[])
    with pytest.raises(RequestRefused, match="taken"):
        client(says(409, "the name is taken")).register(facts, None, "join")


def test_a_second_upload_of_the_same_bytes_is_no_reason_to_end_a_training():
    with pytest.raises(ServerAway):
        client(says(409)).send_checkpoint(3, 0, b"x")


def test_a_checkpoint_that_arrived_wrong_is_sent_again():
    with pytest.raises(ChecksumMismatch):
        client(says(422)).complete_checkpoint(3, "0" * 64)


DATA = bytes(range(256)) * 5000


class Download:
    """A server that breaks off once in the middle."""

    def __init__(self, breaks_at: int | None = None, data: bytes = DATA) -> None:
        self.breaks_at, self.data = breaks_at, data
        self.ranges = []

    def __call__(self, request):
        begin = int(request.headers.get("range", "bytes=0-")[6:-1])
        self.ranges.append(begin)
        return httpx2.Response(206 if begin else 200, content=self._body(begin))

    def _body(self, begin):
        end, self.breaks_at = self.breaks_at, None
        yield self.data[begin:end]
        if end is not None:
            raise httpx2.ReadError("the connection broke")


def source(data: bytes = DATA) -> ResumeFrom:
    digest = hashlib.sha256(data).hexdigest()
    return ResumeFrom(checkpoint_id=1, name="a.pt", sha256=digest, size_bytes=len(data), download_path="/c/1")


def test_a_download_goes_on_where_it_broke(tmp_path):
    server = Download(breaks_at=700_000)
    with pytest.raises(ServerAway):
        client(server).download(source(), tmp_path / "a.pt")
    client(server).download(source(), tmp_path / "a.pt")
    assert server.ranges == [0, 700_000]
    assert (tmp_path / "a.pt").read_bytes() == DATA
    assert list(tmp_path.iterdir()) == [tmp_path / "a.pt"]


def test_a_download_tells_how_many_bytes_are_there(tmp_path):
    heard = []
    server = Download(breaks_at=700_000)
    with pytest.raises(ServerAway):
        client(server).download(source(), tmp_path / "a.pt", heard.append)
    client(server).download(source(), tmp_path / "a.pt", heard.append)
    assert heard == sorted(heard) and heard[-1] == len(DATA)
    assert any(have <= 700_000 for have in heard)


def test_a_download_with_another_checksum_is_thrown_away(tmp_path):
    with pytest.raises(ChecksumMismatch):
        client(Download(data=DATA[::-1])).download(source(), tmp_path / "a.pt")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_can_be_downloaded(tmp_path):
    client(Download(data=b"")).download(source(b""), tmp_path / "a.pt")
    assert (tmp_path / "a.pt").read_bytes() == b""


def test_a_download_the_server_refuses_is_not_tried_for_ever(tmp_path):
    with pytest.raises(RequestRefused):
        client(says(403)).download(source(), tmp_path / "a.pt")
