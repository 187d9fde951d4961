"""A read-only link shows its runs without a login until it ends, and opens nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from websockets.exceptions import InvalidStatus

from dashboard.security.guard.auth import PUBLIC
from db.runs.shared_links import DAY_S
from tests.dashboard.exports.html_page import HOSTILE, Page
from tests.dashboard.running import FakeNode, Running
from worker.session.client import TaskRef

SECRET = "hf_abcdefghijklmnop"
CODE = "print('nobody else reads this')"


@pytest.fixture
def runs(dashboard: Running, node: FakeNode, tmp_path: Path) -> list[str]:
    """Two runs with curves, code and a note, and one more, which waits."""
    script = tmp_path / "train.py"
    ids = []
    for number in range(3):
        script.write_text(f"{CODE}  # {number}\n")
        ids.append(dashboard.launch(target=str(script), name=f"{HOSTILE} {number}", env={"HF_TOKEN": SECRET}))
    for part in parts(node):
        node.log_points(part, 0, train__loss=[(1, 2.5, 1.0), (2, 2.0, 2.0)])
    for run_id in ids:
        dashboard.http.patch(f"/api/runs/{run_id}", json={"note": f"note of {run_id}"})
    return ids


def parts(node: FakeNode) -> list[TaskRef]:
    assignments = node.client.desired_state(None, 0).assignments
    return [TaskRef(one.fence, one.node_rank) for one in assignments]


def made(dashboard: Running, *runs: str, days: int = 7) -> dict[str, Any]:
    answer = dashboard.http.post("/api/shared-links", json={"runs": runs, "days": days})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def visit(dashboard: Running, link: dict[str, Any], method: str = "GET") -> httpx2.Response:
    return dashboard.anonymous().request(method, urlsplit(link["url"]).path)


def test_a_stranger_sees_the_runs_as_they_are_now(dashboard: Running, runs: list[str]) -> None:
    for shown in (runs[:1], runs[:2]):
        answer = visit(dashboard, made(dashboard, *shown))
        assert answer.status_code == 200
        page = Page(answer.text)
        assert not {"script", "img", "link", "iframe", "a", "form"} & set(page.tags)
        assert "svg" in page.tags and all(f"note of {run_id}" in answer.text for run_id in shown)
        assert f"note of {runs[2]}" not in answer.text and runs[2] not in answer.text
        assert "<td>owner</td>" not in answer.text  # people are named to people only
        assert SECRET not in answer.text and CODE not in answer.text and dashboard.token not in answer.text
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert policy.endswith("frame-ancestors 'none'; sandbox allow-scripts") and "script-src" not in policy
        meta = next(value for name, value in page.attributes if name == "content" and "default-src" in value)
        assert policy.startswith(meta)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer" and "set-cookie" not in answer.headers
        assert dashboard.anonymous().head(str(answer.url)).text == ""


def test_a_stranger_is_not_told_how_to_launch_the_code(dashboard: Running, node: FakeNode, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CODE)
    run_id = dashboard.launch(target=str(tmp_path / "train.py"))
    snapshot = dashboard.run(run_id)["spec"]["snapshot"]
    text = visit(dashboard, made(dashboard, run_id)).text
    assert snapshot[:12] in text and snapshot[:13] not in text


def test_a_stranger_sees_no_folder_of_the_server(dashboard: Running, node: FakeNode, tmp_path: Path) -> None:
    folder = tmp_path / "my code"
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(CODE)
    ids = [
        dashboard.launch(target=str(script), python=python, workdir=str(folder), args=["--data", "/mnt/sets/imagenet"])
        for python in ("/opt/my env/bin/python3.12", "/opt/other/bin/python3.13")
    ]
    error = {"rank": 0, "traceback": f'  File "{script}", line 3, in main\n', "file": str(script)}
    for part in parts(node):
        message = f"{script} raised OSError: [Errno 13] Permission denied: '/mnt/sets/imagenet/train'"
        node.report(part, "failed", reason="script error", message=message, error=error)
    for shown in (ids[:1], ids):
        text = visit(dashboard, made(dashboard, *shown)).text
        assert not [path for path in (str(tmp_path), "my code/", "/mnt", "/opt", "my env") if path in text]
        assert "…/train.py" in text and "…/python3.12" in text
    assert str(script) in dashboard.http.get(f"/api/runs/{ids[0]}").text


def test_a_later_visit_shows_later_figures(
    dashboard: Running, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.service.cost_cache.CostCache.get", lambda cache, key, read: read())
    link = made(dashboard, runs[0])
    assert "another note" not in visit(dashboard, link).text
    dashboard.http.patch(f"/api/runs/{runs[0]}", json={"note": "another note"})
    assert "another note" in visit(dashboard, link).text


def test_a_link_refreshes_itself_until_its_runs_have_ended(
    dashboard: Running, node: FakeNode, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.service.cost_cache.CostCache.get", lambda cache, key, read: read())
    link = made(dashboard, runs[0])
    assert ("http-equiv", "refresh") in Page(visit(dashboard, link).text).attributes
    dashboard.http.post(f"/api/runs/{runs[0]}/stop")
    for part in parts(node):
        node.report(part, "stopped")
    ended = visit(dashboard, link).text
    assert ("http-equiv", "refresh") not in Page(ended).attributes and "refreshes itself" not in ended


def test_a_link_ends_on_its_date(dashboard: Running, runs: list[str]) -> None:
    link = made(dashboard, runs[0], days=2)
    assert visit(dashboard, link).status_code == 200
    dashboard.pass_by(2 * DAY_S + 60)
    answer = visit(dashboard, link)
    assert answer.status_code == 410 and "This link expired on" in answer.text
    assert runs[0] not in answer.text and "default-src 'none'" in answer.headers["content-security-policy"]
    (listed,) = dashboard.http.get("/api/shared-links").json()
    assert listed["state"] == "expired" and "url" not in listed


def test_a_revoked_link_and_one_without_runs_end(dashboard: Running, node: FakeNode, runs: list[str]) -> None:
    link, other = made(dashboard, runs[0]), made(dashboard, runs[1])
    assert dashboard.http.delete(f"/api/shared-links/{link['id']}").json()["state"] == "revoked"
    assert visit(dashboard, link).status_code == 410 and "was revoked" in visit(dashboard, link).text
    dashboard.http.post(f"/api/runs/{runs[1]}/stop")
    for part in parts(node):
        node.report(part, "stopped")
    deleted = dashboard.http.delete(f"/api/runs/{runs[1]}")
    assert deleted.status_code == 200, deleted.text
    assert visit(dashboard, other).status_code == 410 and "were deleted" in visit(dashboard, other).text


def test_an_unknown_link_is_not_found(dashboard: Running, runs: list[str]) -> None:
    path = urlsplit(made(dashboard, runs[0])["url"]).path
    for wrong in (
        path[:-1] + ("a" if path[-1] != "a" else "b"),
        "/shared/x",
        "/shared/%2e%2e",
        "/shared/%00",
    ):
        answer = dashboard.anonymous().get(wrong)
        assert answer.status_code == 404 and "There is no such link" in answer.text
    for beyond in ("/shared/", "/shared", f"{path}/x", "/shared/x/..%2fapi/runs", f"{path}/../../api/runs"):
        assert dashboard.anonymous().get(beyond).status_code == 401, beyond
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert dashboard.anonymous().request(method, path).status_code == 401


def test_its_token_opens_no_other_route(dashboard: Running, runs: list[str]) -> None:
    token = made(dashboard, runs[0])["url"].rpartition("/")[2]
    name = dashboard.service.credentials.cookie_name
    holders = [
        dashboard.anonymous(Authorization=f"Bearer {token}"),
        dashboard.anonymous(Cookie=f"{name}={token}"),
    ]
    routes = dashboard.http.get("/api/openapi.json").json()["paths"]
    assert len(routes) > 60
    for path, methods in routes.items():
        for method in methods:
            for holder in holders:
                answer = holder.request(
                    method.upper(), path.replace("{run_id}", runs[0]).replace("{", "").replace("}", "")
                )
                assert answer.status_code == 401 or (method.upper(), path) in PUBLIC, (method, path)
    for holder in holders:
        for path in ("/", f"/run?id={runs[0]}", f"/?token={token}", "/metrics", f"/tensorboard/{runs[0]}/"):
            assert holder.get(path).status_code == 401, path
    with pytest.raises(InvalidStatus):
        dashboard.connect(f"/api/live?run={runs[0]}", {"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"runs": ["0000000000"]}, 404),
        ({"runs": []}, 422),
        ({"runs": ["../x"]}, 422),
        ({"runs": ["0000000000"], "days": 0}, 422),
    ],
)
def test_a_wrong_request_is_refused(dashboard: Running, body: dict[str, Any], status: int) -> None:
    answer = dashboard.http.post("/api/shared-links", json=body)
    assert answer.status_code == status and answer.json()["detail"]["message"].endswith(".")
    assert dashboard.http.delete("/api/shared-links/0000000000").status_code == 404
