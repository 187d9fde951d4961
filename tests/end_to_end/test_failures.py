"""A run that goes wrong ends `failed` with the reason in words; the worker goes on."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.end_to_end.failing import BROKEN, ROWS, SCRIPTS, assert_explained
from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.real

SLOWER = [
    "raise",
    "import",
    "garbage",
    "file",
    "print",
    "print --nonsense",
    "wait --rank=-1",
    "port --rank=0",
]
"""Told apart by the same path as the others; tests/worker/diagnosis/causes reads their logs."""


@pytest.mark.parametrize(
    "arguments", [pytest.param(row, marks=pytest.mark.long if row in SLOWER else ()) for row in ROWS]
)
def test_failed_run_says_why_and_what_to_try(product: Product, arguments: str):
    assert_explained(product, arguments)


def test_the_first_line_of_what_a_rank_printed_is_kept(product: Product):
    run_id = product.launch(BROKEN, gpus_per_node=2, args=["exit"])
    product.wait_state(run_id)
    printed = product.request("GET", f"/api/runs/{run_id}/logs?rank=1&stream=out").content
    assert printed.startswith(b"rank 1 is about to do: exit")


def test_garbage_arrives_byte_for_byte(product: Product):
    run_id = product.launch(BROKEN, gpus_per_node=2, args=["garbage"])
    product.wait_state(run_id)
    printed = product.request("GET", f"/api/runs/{run_id}/logs?rank=1&stream=out").content
    assert bytes(range(256)) * 40 in printed


def test_a_loss_that_is_not_a_number_is_kept_and_shown(product: Product):
    run_id = product.launch(SCRIPTS / "logging_nan.py", strategy="single")
    assert product.wait_state(run_id)["state"] == "succeeded"
    points = product.get(f"/api/runs/{run_id}/metrics")["train/loss"]
    assert [p[1] for p in points[:5]] == [2.0, 1.0, "NaN", "Infinity", "-Infinity"]
    assert repr(points[5][1]) == "-0.0"


BLOCKING = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""


@pytest.mark.parametrize("in_place", [False, True])
def test_a_script_that_is_removed_before_it_starts(product: Product, tmp_path: Path, in_place: bool):
    """Its code was kept with the run; only a run in place needs it where it was."""
    script = tmp_path / "train.py"
    script.write_text("print('hello')")
    release, blocking = tmp_path / "told", tmp_path / "blocking.py"
    blocking.write_text(BLOCKING)
    blocker = product.launch(blocking, gpus_per_node=2, args=[str(release)])
    run_id = product.launch(script, gpus_per_node=2, **({"workdir": str(tmp_path)} if in_place else {}))
    script.unlink()
    release.touch()
    ended = product.wait_state(run_id)
    product.wait_state(blocker)
    if in_place:
        assert (ended["state"], ended["reason"]) == ("failed", "script missing"), ended
        assert str(script) in ended["message"]
    else:
        assert ended["state"] == "succeeded", ended


def test_a_missing_interpreter(product: Product):
    run_id = product.launch(BROKEN, gpus_per_node=1, args=["raise"], python="/nowhere/bin/python")
    ended = product.wait_state(run_id)
    assert (ended["state"], ended["reason"]) == ("failed", "script missing")
    assert "/nowhere/bin/python" in ended["message"]


@pytest.mark.parametrize("victim", ["launcher", "supervisor"])
def test_kill_9_of_the_owner_of_the_ranks_leaves_none_of_them(product: Product, victim: str, tmp_path: Path):
    script = tmp_path / "sleeping.py"
    script.write_text("import time\nwhile True:\n    time.sleep(1)\n")
    run_id = product.launch(script, gpus_per_node=2)
    product.wait_state(run_id, "running")
    ranks = wait_for(lambda: len(found := product.ranks(run_id)) == 2 and found, "both ranks")
    launcher = ranks[0].parent()
    (launcher if victim == "launcher" else launcher.parent()).kill()
    ended = product.wait_state(run_id)
    assert (ended["state"], ended["reason"]) == ("failed", "killed"), ended
    wait_for(lambda: not psutil.pid_exists(ranks[0].pid) and not product.ranks(run_id), "the ranks to be gone")


BAD = [
    ({"nodes": 0}, "nodes"),
    ({"gpus_per_node": -1}, "gpus_per_node"),
    ({"lr": "NaN"}, "lr"),
    ({"lr": 0}, "lr"),
    ({"epochs": 0}, "epochs"),
    ({"nodes": 4, "gpus_per_node": 2}, "nodes"),
    ({"gpus_per_node": 64}, "gpus_per_node"),
    ({"target": "no_such_recipe"}, "target"),
    ({"target": "/nowhere/train.py"}, "target"),
    ({"batchsize": 3}, "batchsize"),
]


@pytest.mark.parametrize(("wrong", "field"), BAD, ids=[str(row[0]) for row in BAD])
def test_api_refuses_a_wrong_spec(product: Product, wrong: dict, field: str):
    response = product.request("POST", "/api/runs", json={"target": "image_classifier"} | wrong)
    assert response.status_code == 422, response.text
    detail = response.json()["detail"]
    assert detail["field"] == field
    assert field in detail["message"] and "\n" not in detail["message"]
