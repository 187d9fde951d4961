"""New nodes: tokens made through the API and the command line, and the command that a new machine is given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli import main
from dashboard.cluster.joining import PROGRAM, WHERE, Listening, how_to_join, program, url_for_links
from dashboard.security.keys.certificates import ServerCertificate, publish, published_self_signed
from domain.lists.node_lists import versions
from domain.messages import NodeLoad
from tests.dashboard.certificates import self_signed, signed
from tests.dashboard.running import FakeNode, Running, wait_for
from worker.session.failures import Ended, Unauthorized

OPEN = Listening("0.0.0.0", 8765, "10.0.0.1")


def made(dashboard: Running, **asked: object) -> dict[str, object]:
    answer = dashboard.http.post("/api/join-tokens", json=asked)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def joining(dashboard: Running, token: object, name: str) -> FakeNode:
    dashboard.join_token = str(token)
    return dashboard.node(name)


def test_a_node_joins_with_a_token_that_was_made_and_stays_when_it_is_revoked(dashboard: Running) -> None:
    token = made(dashboard, ttl_s=3600, name="rack 3")
    node = joining(dashboard, token["token"], "n1")
    (listed,) = dashboard.http.get("/api/join-tokens").json()
    assert (listed["id"], listed["name"], listed["uses"]) == (token["id"], "rack 3", 1)
    assert str(token["token"]) not in json.dumps(listed)
    assert dashboard.http.delete(f"/api/join-tokens/{token['id']}").json()["revoked_at"] is not None
    assert node.client.desired_state(None, 0).assignments == []
    with pytest.raises(Unauthorized, match=r"This join token was revoked at .*Make a new one"):
        joining(dashboard, token["token"], "n2")


def test_an_expired_token_says_when_it_expired(dashboard: Running) -> None:
    token = made(dashboard, ttl_s=60)
    dashboard.pass_by(61)
    with pytest.raises(Unauthorized, match="This join token expired at"):
        joining(dashboard, token["token"], "n1")


def test_a_made_token_opens_nothing_but_the_door_of_workers(dashboard: Running) -> None:
    token = made(dashboard)
    holder = dashboard.anonymous(Authorization=f"Bearer {token['token']}")
    for method, path in (("GET", "/api/runs"), ("POST", "/api/join-tokens"), ("GET", "/api/worker/desired")):
        assert holder.request(method, path, json={}).status_code == 403
    assert (
        dashboard.anonymous(Authorization=f"Bearer {dashboard.join_token}").get("/api/join-tokens").status_code == 403
    )


def test_a_worker_with_a_wrong_token_is_told_where_to_get_one(dashboard: Running) -> None:
    with pytest.raises(
        Unauthorized, match=r"This is not a join token of this dashboard\. Create one on its Nodes page"
    ):
        joining(dashboard, "rzjoin-00000000-aaaaaaaaaaaaaaaaaaaaaaaa", "n1")


def test_wrong_join_token_request_is_refused(dashboard: Running) -> None:
    assert dashboard.http.post("/api/join-tokens", json={"ttl_s": 5}).status_code == 422
    assert dashboard.http.post("/api/join-tokens", json={"ttl": 5}).status_code == 422
    assert dashboard.http.delete("/api/join-tokens/00000000").status_code == 404


@pytest.mark.parametrize(
    ("listening", "shown", "url", "warns"),
    [
        (OPEN, "http://127.0.0.1:8765/", "http://10.0.0.1:8765", False),
        (OPEN, "http://gpu-1:8765/nodes", "http://gpu-1:8765", False),
        (OPEN, "https://rankzero.example/", "https://rankzero.example", False),
        (OPEN, "http://[::1]:8765", "http://10.0.0.1:8765", False),
        (OPEN, "http://a'b;c:8765", "http://10.0.0.1:8765", False),
        (OPEN, "http://x:y@evil:99999999/", "http://10.0.0.1:8765", False),
        (Listening("::", 8765, "fd00::1"), None, "http://[fd00::1]:8765", False),
        (Listening("10.7.0.2", 80, "10.0.0.1"), "http://localhost:80", "http://10.7.0.2:80", False),
        (Listening("127.0.0.1", 8765, "10.0.0.1"), "http://localhost:8765", "http://10.0.0.1:8765", True),
        (Listening("127.0.0.1", 8765, "10.0.0.1"), "https://rankzero.example", "https://rankzero.example", False),
        (Listening("0.0.0.0", 8765, "127.0.1.1"), None, "http://127.0.1.1:8765", True),
    ],
)  # fmt: skip
def test_the_command_names_an_address_that_others_reach(
    listening: Listening, shown: str | None, url: str, warns: bool
) -> None:
    how = how_to_join("rzjoin-1-x", listening, shown)
    assert (how.url, how.warning is not None) == (url, warns)
    quoted = f"'{url}'" if "[" in url else url
    assert how.command == f"RANKZERO_TOKEN=rzjoin-1-x {PROGRAM} worker --server {quoted}"
    assert f"'RANKZERO_URL={url}' 'RANKZERO_TOKEN=rzjoin-1-x'" in how.service[1]


def test_links_for_others_begin_with_an_address_that_they_can_open() -> None:
    here, everywhere = Listening("127.0.0.1", 8765, "10.0.0.1"), Listening("0.0.0.0", 8765, "10.0.0.1", "https")
    own = "https://127.0.0.1:8765"
    assert url_for_links(everywhere, own) == "https://10.0.0.1:8765"
    assert url_for_links(everywhere, "https://gpu-1:8765") == "https://gpu-1:8765"
    assert url_for_links(everywhere, own, "https://lab.example") == "https://lab.example"
    assert url_for_links(here, own) == own


def test_command_is_called_on_the_new_machine_as_here() -> None:
    assert program(Path("/a/rankzero/.venv"), Path("/a/rankzero")) == ".venv/bin/rankzero"
    assert program(Path("/a/.venv"), Path("/a/.venv/lib/python3.11/site-packages")) == "rankzero"
    assert program(Path("/usr"), Path("/usr/lib/python3/dist-packages")) == "rankzero"


def test_a_dashboard_for_this_machine_alone_says_how_to_open_it() -> None:
    how = how_to_join("t", Listening("127.0.0.1", 8765, "10.0.0.1"))
    assert how.warning is not None and "--host 0.0.0.0" in how.warning


def test_new_machine_is_told_to_trust_a_self_signed_certificate(tmp_path: Path) -> None:
    assert how_to_join("t", OPEN).trust is None
    authority = self_signed(tmp_path, "authority")
    for name, pair in (("own", self_signed(tmp_path)), ("vouched for", signed(tmp_path, authority))):
        published = tmp_path / name
        published.mkdir()
        publish(ServerCertificate(pair.certificate, pair.key), published)
        file = published_self_signed(published)
        assert (file is not None) is (name == "own")
        trust = how_to_join("t", replace(OPEN, self_signed=file)).trust
        assert trust is None if file is None else f"copy `{file}`" in str(trust) and "RANKZERO_CA_FILE" in str(trust)
        assert "PRIVATE KEY" not in (published / "certificate.pem").read_text()
    assert published_self_signed(tmp_path / "nowhere") is None


def test_the_command_line_makes_lists_and_revokes(
    dashboard: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    assert main.run(["token", "--join", "--expires", "90m", "--name", "rack 3"]) == 0
    said = capsys.readouterr()
    secret = said.out.strip()
    assert secret.startswith("rzjoin-") and "01:30:00" in said.err and f"{WHERE}: RANKZERO_TOKEN={secret}" in said.err
    joining(dashboard, secret, "n1")
    assert main.run(["token", "--join", "--list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["uses"]) == ("rack 3", 1)
    assert main.run(["token", "--join", "--revoke", listed["id"]]) == 0
    assert main.run(["token", "--join", "--list"]) == 0
    assert "revoked just now" in capsys.readouterr().out
    for wrong in (
        ["--expires", "1h"],
        ["--join", "--expires", "soon"],
        ["--join", "--list", "--revoke", "x"],
    ):
        assert main.run(["token", *wrong]) == 2


def test_a_node_comes_back_with_its_own_token_when_its_join_token_has_ended(dashboard: Running) -> None:
    token = made(dashboard)
    node = joining(dashboard, token["token"], "n1")
    dashboard.http.delete(f"/api/join-tokens/{token['id']}")
    own = node.client.token
    back = node.client.register(node.facts.model_copy(update={"instance_id": "later"}), None, own)
    assert back.node_id == node.identity.node_id and back.token != own
    with pytest.raises(Unauthorized):
        node.client.register(node.facts, back.node_id, own)
    assert dashboard.http.get("/api/join-tokens").json()[0]["uses"] == 1


def test_a_nodes_own_token_makes_it_no_other_node(dashboard: Running, node: FakeNode) -> None:
    other = dashboard.node("n1")
    back = node.client.register(node.facts, other.identity.node_id, node.client.token)
    assert back.node_id == node.identity.node_id
    assert other.client.desired_state(None, 0).assignments == []


def test_a_removed_node_is_gone_from_the_list_and_its_worker_is_told(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    run_id = dashboard.launch()
    assert main.run(["nodes", "remove", "n0"]) == 1
    assert f"Node n0 still has {run_id}; stop it first" in capsys.readouterr().err
    node.report(node.task(), "succeeded")
    assert main.run(["nodes", "remove", "n0"]) == 0
    assert "Node n0 is removed" in capsys.readouterr().out
    with pytest.raises(Ended, match=r"Node n0 was removed at .* delete node/node.json"):
        node.client.load(NodeLoad())
    with pytest.raises(Ended, match="Node n0 was removed"):
        node.client.register(node.facts, node.identity.node_id, dashboard.join_token)
    assert dashboard.http.get("/api/nodes").json() == []
    assert dashboard.http.get(f"/api/runs/{run_id}").json()["state"] == "succeeded"
    assert main.run(["nodes", "remove", "n0"]) == 1
    assert main.run(["nodes", "--json"]) == 0 and json.loads(capsys.readouterr().out) == []


def test_list_has_the_address_and_clock_of_a_node(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    load = NodeLoad(address="10.0.0.7", interface="eth1", clock_offset_s=5.0, clock_error_s=0.001)
    node.client.load(load)
    wait_for(lambda: dashboard.http.get("/api/nodes").json()[0]["load"], "the load to be stored")
    (listed,) = dashboard.http.get("/api/nodes").json()
    assert (listed["address"], listed["info"]["interface"]) == ("10.0.0.7", "eth1")
    assert main.run(["nodes"]) == 0
    said = capsys.readouterr().out
    assert "10.0.0.7" in said and "n0: Its clock is 5.0 s ahead of the dashboard's." in said


def test_the_versions_of_a_node_stand_in_one_cell() -> None:
    info = {"interpreter": {"torch": "2.13.0", "cuda": "12.6", "nccl": "2.27.5"}, "driver_version": "550.54"}
    assert versions(info) == "torch 2.13.0, CUDA 12.6, NCCL 2.27.5, driver 550.54"
    assert versions({}) == ""
