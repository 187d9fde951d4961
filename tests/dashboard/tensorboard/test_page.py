"""TensorBoard behind the dashboard's login, in a page of its own."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from dashboard.security.guard.sandbox import LIFETIME_S, Passes
from dashboard.security.keys.token_files import Credentials
from dashboard.tensorboard.process import TensorBoardFailed, TensorBoards
from tests.dashboard.event_files import write_events
from tests.dashboard.pages import Pages, served
from tests.dashboard.running import FakeNode, Running
from tests.dashboard.tensorboard.opened_pages import bring, opened
from tests.end_to_end.product import wait_for


# -- passes -----------------------------------------------------------------------------------------
def test_a_pass_opens_one_run_for_a_day() -> None:
    passes, now = Passes(Credentials("u" * 43, "j" * 43, "m" * 43)), 1_760_000_000.0
    issued = passes.issue("abcdefghij", "ana", now)
    assert issued == passes.issue("abcdefghij", "ana", now + 60), "browsers keep what they have loaded"
    good = f"/tensorboard/abcdefghij/{issued}/data/runs"
    assert passes.holder(good, now) == "ana"
    assert passes.holder(good, now + LIFETIME_S - 3600)
    assert not passes.holder(good, now + LIFETIME_S + 1)
    assert not passes.holder(good, now - 7200)
    assert not Passes(Credentials("v" * 43, "j" * 43, "m" * 43)).holder(good, now)
    for wrong in (
        f"/tensorboard/abcdefghik/{issued}/data/runs", f"/tensorboard/abcdefghij/{issued}", "/tensorboard/abcdefghij/",
        f"/tensorboard/abcdefghij/{issued[:-1]}0/x", f"/tensorboard/abcdefghij/{int(now) + 3600}{issued[10:]}/x",
        f"/api/abcdefghij/{issued}/x", f"/tensorboard/a/../abcdefghij/{issued}/x", f"/tensorboard/é/{issued}/x",
    ):  # fmt: skip
        assert not passes.holder(wrong, now) or wrong == good, wrong


def test_a_run_opens_in_tensorboard_behind_the_login(dashboard: Running, node: FakeNode, tmp_path: Path) -> None:
    run = dashboard.launch(name="seen <b>from</b> all sides")
    task = node.task()
    address = f"/tensorboard/{run}/"
    anonymous = dashboard.anonymous()
    page = anonymous.get(address, headers={"Accept": "text/html"})
    assert (page.status_code, "Sign in" in page.text) == (401, True)
    assert anonymous.get(address).status_code == 401
    nothing = dashboard.http.get(address)
    assert "has not written any event files yet" in nothing.text
    assert "&lt;b&gt;from&lt;/b&gt;" in nothing.text

    bring(node, task, write_events(tmp_path / "logs"))
    base = opened(dashboard, run)
    tasks = dashboard.anonymous(Origin="null")
    plugins = ("scalars", "images", "histograms", "text")

    def read() -> dict[str, dict[str, dict[str, object]]]:
        return {plugin: tasks.get(f"{base}data/plugin/{plugin}/tags").json() for plugin in plugins}

    tags = wait_for(lambda: all((tags := read()).values()) and tags, "its events, for which the page waits a moment")
    assert {plugin: list(of_run) for plugin, of_run in tags.items()} == {key: ["attempt 1/runs/a"] for key in tags}
    assert [next(iter(tags[plugin]["attempt 1/runs/a"])) for plugin in ("scalars", "images", "histograms")] == [
        "train/loss", "digits", "weights",
    ]  # fmt: skip
    points = tasks.get(f"{base}data/plugin/scalars/scalars?run=attempt%201%2Fruns%2Fa&tag=train%2Floss").json()
    assert [(step, value) for _, step, value in points] == [(0, 2.0), (1, 1.0), (2, 0.5)]
    asked = {"requests": (None, '[{"plugin":"scalars","tag":"train/loss"}]')}
    posted = tasks.post(f"{base}experiment/defaultExperimentId/data/plugin/timeseries/timeSeries", files=asked)
    assert posted.status_code == 200, "the page asks with POST, too"

    without = base.replace(run, "abcdefghij"), base[:-2] + ("0/" if base[-2] != "0" else "1/"), address
    for wrong in without:
        assert tasks.get(f"{wrong}data/runs").status_code == 401, wrong
    assert dashboard.http.get(f"{address}data/runs").status_code == 404
    assert tasks.get(base).headers["content-security-policy"].endswith("sandbox allow-scripts allow-downloads")
    assert tasks.put(f"{base}data/runs").status_code == 401
    assert tasks.get("/api/runs").status_code == 401, "a pass is good for TensorBoard only"
    assert tasks.post("/api" + base, json={}).status_code == 401


def test_neither_session_nor_token_reaches_tensorboard_and_it_sets_nothing(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests_seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests_seen.append(request)
        headers = {"Set-Cookie": "a=b", "Server": "x", "Connection": "close", "Location": "/", "ETag": '"1"'}
        return httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(b"<head></head>"))

    async def reach(*_: object) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="http://tensorboard")

    monkeypatch.setattr(TensorBoards, "reach", reach)
    run = dashboard.launch()
    base = opened(dashboard, run)
    session = {"Cookie": f"{dashboard.service.credentials.cookie_name}=x", "Accept": "image/png", "X-Y": "z"}
    task = dashboard.http.post(f"{base}a%20b/c?d=e%2Ff&g", headers=session, content=b"asked")
    assert task.headers["etag"] == '"1"'
    assert not {"set-cookie", "location"} & task.headers.keys()
    assert task.headers["server"] != "x" if "server" in task.headers else True
    sent = requests_seen[-1]
    assert (sent.method, sent.url.raw_path, sent.content) == ("POST", b"/a%20b/c?d=e%2Ff&g", b"asked")
    assert not {"cookie", "authorization", "x-y"} & sent.headers.keys()
    assert sent.headers["accept"] == "image/png"
    asking = {"Access-Control-Request-Headers": "x-tensorboard-feature-flags", "Origin": "null"}
    preflight = dashboard.anonymous().request("OPTIONS", f"{base}data/runs", headers=asking)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "null"
    assert preflight.headers["access-control-allow-headers"] == "x-tensorboard-feature-flags"
    assert dashboard.anonymous().post(f"{base}x", content=b"x" * (3 << 20)).status_code == 413


def test_pages_in_its_place_say_what_to_do(dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    run = dashboard.launch(name="a")
    moved = dashboard.http.get(f"/tensorboard/{run}")
    assert moved.headers["location"] == f"/tensorboard/{run}/"
    node.report(node.task(), "failed")
    ended = dashboard.http.get(f"/tensorboard/{run}/").text
    assert "has ended without writing" in ended
    assert "refresh" not in ended
    missing = dashboard.http.get("/tensorboard/abcdefghij/")
    assert (missing.status_code, "There is no such run" in missing.text) == (404, True)

    async def broken(*_: object) -> httpx2.AsyncClient:
        raise TensorBoardFailed("ModuleNotFoundError: No module named 'tensorboard'")

    monkeypatch.setattr(TensorBoards, "reach", broken)
    answer = dashboard.http.get(f"/tensorboard/{run}/")
    assert answer.status_code == 503
    assert "No module named &#x27;tensorboard&#x27;" in answer.text


def test_the_run_page_leads_there_once_there_are_event_files(tmp_path: Path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("n", 2)
        run = pages.seed.launch("a", 10, gpus_per_node=1)
        assert tensorboard_links(pages, run) == []
        pages.seed.file(pages.service.files, "a", "work/events.out.tfevents.1.host", b"")
        assert tensorboard_links(pages, run) == [f"/tensorboard/{run}/"]


def tensorboard_links(pages: Pages, run: str) -> list[str]:
    links = [button.proto for button in pages.open("run", id=run).get("link_button")]
    return [link.url for link in links if link.label == "TensorBoard"]
