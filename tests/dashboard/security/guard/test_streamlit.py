"""Streamlit's own routes: who opens a page's WebSocket, uploads and media; and a token's scope bounds its pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.dashboard.program import Program, dashboard

LIMIT_S = 60
ROUTES = (("PUT", "/_stcore/upload_file/session/file"), ("GET", "/media/abc.png"), ("GET", "/_stcore/health"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    with dashboard(tmp_path_factory.mktemp("streamlit") / "data") as it:
        yield it


@pytest.fixture
def owner(program: Program) -> Iterator[httpx2.Client]:
    bearer = {"Authorization": f"Bearer {program.token}"}
    with httpx2.Client(base_url=program.about["url"], headers=bearer, trust_env=False, timeout=60) as http:
        yield http


@contextmanager
def page(program: Program, headers: dict[str, str]) -> Iterator[ClientConnection]:
    """The WebSocket of a page that somebody opens."""
    url, protocols = f"{program.about['url']}/_stcore/stream".replace("http", "ws"), [Subprotocol("streamlit")]
    with connect(
        url, additional_headers=headers, subprotocols=protocols, proxy=None, open_timeout=60, max_size=None
    ) as socket:
        yield socket


def shown(program: Program, headers: dict[str, str], name: str) -> bytes:
    """Everything that a page sends until its script has ended."""
    asked, parts = BackMsg(), []
    asked.rerun_script.page_name = name
    with page(program, headers) as socket:
        socket.send(asked.SerializeToString())
        while True:
            content = bytes(socket.recv(timeout=LIMIT_S))
            parts.append(content)
            if ForwardMsg.FromString(content).WhichOneof("type") == "script_finished":
                return b"".join(parts)


def token_of(http: httpx2.Client, scope: str, name: str) -> dict[str, str]:
    """The header of a new token of whoever `http` speaks for."""
    made = http.post("/api/tokens", json={"name": name, "scope": scope})
    assert made.status_code == 201, made.text
    return {"Authorization": f"Bearer {made.json()['token']}"}


def are_refused(program: Program, headers: dict[str, str]) -> None:
    """Check that whoever sends this reaches none of Streamlit's routes."""
    for method, path in ROUTES:
        answer = httpx2.request(method, program.about["url"] + path, headers=headers, trust_env=False, timeout=60)
        assert answer.status_code == 401, path
    with pytest.raises(InvalidStatus) as refused, page(program, headers):
        pass
    assert refused.value.response.status_code == 401


def test_a_page_offers_no_more_than_the_tokens_scope(program: Program, owner: httpx2.Client) -> None:
    whole, read = ({"Authorization": f"Bearer {program.token}"}, token_of(owner, "read", "reads"))
    assert b"invite_make" in shown(program, whole, "people")
    assert b"invite_make" not in shown(program, read, "people")


def test_whoever_is_signed_out_or_revoked_or_removed_reaches_nothing(program: Program, owner: httpx2.Client) -> None:
    are_refused(program, {})
    invited = owner.post("/api/invitations", json={"email": "ana@lab.example", "role": "member"}).json()["link"]
    with httpx2.Client(
        base_url=program.about["url"], headers={"Origin": program.about["url"]}, trust_env=False, timeout=60
    ) as ana:
        assert ana.post(invited, data={"name": "ana", "password": "correct horse"}).status_code == 303
        revoked, kept = token_of(ana, "act", "one"), token_of(ana, "act", "two")
        cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in ana.cookies.items())}
        here = cookie | {"Origin": program.about["url"]}
        with page(program, revoked) as by_token, page(program, here) as by_cookie:
            assert ana.delete("/api/tokens/one").status_code == 200
            assert ana.post("/logout").status_code == 204
            for socket in (by_token, by_cookie):
                with pytest.raises(ConnectionClosed):
                    while True:
                        socket.recv(timeout=LIMIT_S)
    are_refused(program, revoked)
    are_refused(program, here)
    assert (
        httpx2.get(program.about["url"] + "/_stcore/health", headers=kept, trust_env=False, timeout=60).status_code
        == 200
    )
    assert owner.delete("/api/users/ana").status_code == 200
    are_refused(program, kept)
