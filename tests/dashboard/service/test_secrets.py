"""Nobody but the worker that runs it sees a run's secrets; launched again it keeps them."""

from __future__ import annotations

import json

import httpx2
import pytest

from db.runs import run_queries
from db.runs.run_requests import specification
from domain.masking.masking import MASK
from tests.dashboard.pages import button, served, texts, with_advanced
from tests.dashboard.running import FakeNode, Running

CANARY = "canary7f3a"
SECRETS = {
    "env": {"HF_TOKEN": CANARY, "STORE": f"postgres://me:{CANARY}@db/x", "KEYBOARD": "us"},
    "args": [f"--api-key={CANARY}", "--wandb-key", CANARY, "--tokenizer", "gpt2"],
}


@pytest.fixture
def run_id(dashboard: Running, node: FakeNode) -> str:
    """A run with secrets that has failed, with a command an earlier worker has reported as it is."""
    run_id = dashboard.launch(**SECRETS)
    task = node.task()
    node.report(task, "starting", argv=["python", *SECRETS["args"]], env=SECRETS["env"])
    node.report(task, "failed", reason="script error", message="it broke")
    return run_id


def test_no_route_of_the_api_tells_a_secret(dashboard: Running, run_id: str) -> None:
    described = dashboard.http.get("/api/openapi.json").json()["paths"]
    paths = {path.replace("{run_id}", run_id) for path, methods in described.items() if "get" in methods}
    paths = {path for path in paths if "{" not in path and not path.startswith("/api/worker/")}
    assert f"/api/runs/{run_id}" in paths and len(paths) > 15
    for path in sorted(paths):
        assert CANARY not in dashboard.http.get(path).text, path
    other = dashboard.launch(**{**SECRETS, "env": {"HF_TOKEN": f"{CANARY}x"}})
    differing = dashboard.http.get(f"/api/runs/{run_id}/diff", params={"with": other}).json()["spec"]
    assert CANARY not in json.dumps(differing)
    changes = {change["field"]: (change["old"], change["new"]) for change in differing}
    assert changes["env.HF_TOKEN"] == (f"{MASK} (one value)", f"{MASK} (another)")
    assert CANARY not in dashboard.http.delete(f"/api/runs/{run_id}").text


def test_shown_are_the_names_and_what_is_no_secret(dashboard: Running, run_id: str) -> None:
    spec = dashboard.run(run_id)["spec"]
    assert spec["env"] == {"HF_TOKEN": MASK, "STORE": f"postgres://me:{MASK}@db/x", "KEYBOARD": "us"}
    assert spec["args"] == [f"--api-key={MASK}", "--wandb-key", MASK, "--tokenizer", "gpt2"]
    (task,) = dashboard.http.get(f"/api/runs/{run_id}/attempts").json()[0]["tasks"]
    assert task["argv"] == ["python", *spec["args"]] and task["env"] == spec["env"]


def test_the_live_page_and_the_preview_tell_none(dashboard: Running, run_id: str) -> None:
    with dashboard.watching(run_id) as page:
        page.subscribe()
        assert CANARY not in json.dumps(page.next_of("run"))
    for pool in ("nodes", "slurm"):
        spec = {"target": "image_classifier", "pool": pool, **SECRETS}
        answer = dashboard.http.post("/api/preview", json=spec)
        assert answer.status_code == 200 and CANARY not in answer.text
        assert f"--api-key={MASK}" in answer.text


def test_a_refusal_does_not_repeat_what_was_sent(dashboard: Running) -> None:
    for spec in ({"env": {"HF_TOKEN": [CANARY]}}, {"args": CANARY}, {"env": [f"HF_TOKEN={CANARY}"]}):
        answer = dashboard.http.post("/api/runs", json={"target": "image_classifier"} | spec)
        assert answer.status_code == 422 and CANARY not in answer.text


def test_an_address_with_a_password_is_refused_also_with_code_that_was_brought(dashboard: Running) -> None:
    spec = {"target": f"https://me:{CANARY}@example.com/a.git", "snapshot": "0" * 64, "entry": "t.py"}
    answer = dashboard.http.post("/api/runs", json=spec)
    assert answer.status_code == 422 and CANARY not in answer.text
    assert answer.json()["detail"]["field"] == "target"


def test_the_worker_that_runs_it_is_told_the_values(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch(**SECRETS)
    wanted = node.assignment().spec
    assert (wanted.env, wanted.args) == (SECRETS["env"], SECRETS["args"])


def launch_as_shown(dashboard: Running, run_id: str, like: str | None, **changes: object) -> httpx2.Response:
    """What a program does that reads a run's settings and launches them again."""
    shown = dashboard.run(run_id)["spec"]
    return dashboard.http.post("/api/runs", params={"like": like} if like else {}, json=shown | changes)


def test_masked_values_that_come_back_are_those_of_the_run_it_is_like(dashboard: Running, run_id: str) -> None:
    answer = launch_as_shown(dashboard, run_id, run_id, lr=0.5)
    assert answer.status_code == 201, answer.text
    real = specification(dashboard.service.store, answer.json()["id"])
    assert real is not None and (real.env, real.args, real.lr) == (SECRETS["env"], SECRETS["args"], 0.5)


@pytest.mark.parametrize("like", [None, "nosuchrun0"])
def test_a_mask_with_nothing_behind_it_is_refused_and_never_stored(
    dashboard: Running, run_id: str, like: str | None
) -> None:
    answer = launch_as_shown(dashboard, run_id, like)
    assert answer.status_code == 422
    assert answer.json()["detail"]["field"] == "env"
    assert "HF_TOKEN is ********, the placeholder of a hidden value" in answer.json()["detail"]["message"]
    assert len(dashboard.http.get("/api/runs").json()) == 1


def test_a_resumed_run_keeps_its_values(dashboard: Running, node: FakeNode, run_id: str) -> None:
    dashboard.http.post(f"/api/runs/{run_id}/resume", json={})
    assert node.assignment().spec.env == SECRETS["env"]


def test_the_form_filled_from_a_run_shows_masks_and_launches_the_values(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("here", 2, kind="cpu")
        pages.seed.launch("secretive", 900, target="image_classifier", gpus_per_node=1, **SECRETS)
        run_id = pages.seed.runs["secretive"]
        form = pages.open("launch", **{"from": run_id})
        assert not form.exception and CANARY not in texts(form)
        assert f"HF_TOKEN={MASK}" in with_advanced(form).text_area(key="launch_env").value
        assert CANARY not in form.text_input(key="launch_args").value
        button(form, "Launch").click().run()
        runs = pages.service.store
        (newest,) = (run.id for run in all_runs(pages) if run.id != run_id)
        real = specification(runs, newest)
        assert real is not None and (real.env, real.args) == (SECRETS["env"], SECRETS["args"])


def test_a_mask_typed_into_an_empty_form_is_refused_beside_its_field(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("here", 2, kind="cpu")
        form = with_advanced(pages.open("launch"))
        form.text_area(key="launch_env").set_value(f"HF_TOKEN={MASK}").run()
        assert "hidden value" in texts(form)
        assert button(form, "Launch").disabled


def test_the_run_page_shows_masks(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("here", 2, kind="cpu")
        pages.seed.launch("secretive", 900, target="image_classifier", gpus_per_node=1, **SECRETS)
        page = pages.open("run", id=pages.seed.runs["secretive"], tab="spec")
        shown = texts(page) + "".join(str(table) for table in page.dataframe) + str(page.session_state)
        assert not page.exception and CANARY not in shown
        assert MASK in texts(page)


def all_runs(pages):
    """Every run there is."""
    return run_queries.runs(pages.service.store, pages.service.clock())
