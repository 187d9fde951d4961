"""A run that ran out of memory offers the run that fixes it; the form then stands filled in, ready to launch."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.runs import run_queries
from db.runs.run_list import RunSelection, listed
from domain.messages import Reason
from tests.dashboard.pages import Pages, button, links, served, texts, with_advanced
from tests.dashboard.running import Running

CUDA = "rank 1 on here: CUDA out of memory, 2.00 GiB requested, 1.02 GiB of 79.15 GiB free on GPU 0, train.py line 41"
LABEL = "Launch with batch 16 × accumulate 4"
HALVED = "Halve the batch per GPU: 32 → 16, accumulation 2 → 4; the global batch stays 128."
FRAGMENTS = "9.50 GiB are unused between tensors."


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as opened:
        opened.seed.node("here", 2, kind="cpu")
        yield opened


@pytest.fixture
def run_id(pages: Pages) -> str:
    seed = pages.seed
    seed.launch("too big", 900, target="image_classifier", gpus_per_node=2, batch_size=32, accumulate=2)
    seed.start("too big", 890)
    step = f"Halve the batch per GPU and double the accumulation: the global batch stays. {FRAGMENTS}"
    seed.report("too big", "failed", 800, reason=Reason.OUT_OF_MEMORY, message=CUDA, next_step=step)
    return seed.runs["too big"]


def test_the_next_step_has_the_runs_own_figures_and_keeps_what_else_its_node_said(pages, run_id):
    assert pages.service.run(run_id).next_step == f"{HALVED} {FRAGMENTS}"


def test_the_button_opens_the_form_with_the_change_and_launches_it(pages, run_id):
    page = pages.open("run", id=run_id)
    assert not page.exception
    assert "Resume" in {one.label for one in page.button}
    assert links(page)[LABEL] == f"launch?from={run_id}&fix=1"
    form = pages.open("launch", **{"from": run_id, "fix": "1"})
    assert not form.exception
    assert form.text_input(key="launch_batch_size").value == "16"
    assert form.text_input(key="launch_accumulate").value == "4"
    assert "32 → 16" in texts(form)
    button(form, "Launch").click().run()
    newest = run_queries.runs(pages.service.store, pages.service.clock())[0].spec
    assert (newest.batch_size, newest.accumulate, newest.global_batch_size) == (16, 4, 128)


def test_launching_again_without_the_fix_keeps_the_run_as_it_was(pages, run_id):
    form = pages.open("launch", **{"from": run_id})
    assert form.text_input(key="launch_batch_size").value == "32"


def test_a_run_that_failed_otherwise_offers_no_such_button(pages):
    pages.seed.launch("broken", 900, target="image_classifier", gpus_per_node=2, batch_size=32)
    pages.seed.start("broken", 890)
    pages.seed.report("broken", "failed", 800, reason=Reason.SCRIPT_ERROR, message="rank 0 on here: ValueError")
    page = pages.open("run", id=pages.seed.runs["broken"])
    assert not any(label.startswith("Launch with") for label in links(page))


def test_the_api_says_what_can_be_launched_and_where(dashboard: Running, node):
    run_id = dashboard.launch(gpus_per_node=2, batch_size=32, accumulate=2)
    task = node.task()
    node.report(task, "starting")
    node.report(task, "failed", reason=Reason.OUT_OF_MEMORY, message=CUDA, next_step="Halve it.")
    run = dashboard.run(run_id)
    assert run["next_step"] == HALVED
    assert run["fix"]["label"] == LABEL
    assert run["fix"]["url"].endswith(f"/launch?from={run_id}&fix=1")


def test_a_loss_that_is_nan_is_launched_again_from_before_it_and_resume_comes_second(pages):
    seed = pages.seed
    seed.launch("nan", 900, gpus_per_node=2, lr=0.001)
    seed.start("nan", 890)
    seed.train("nan", 50, 880, last_loss=math.nan)
    for step in (20, 40, 50):
        seed.checkpoint("nan", step, None)
    label = "Launch again from step 40, lr 0.0001"
    run_id = seed.runs["nan"]
    assert label in links(pages.open("run", id=run_id))  # while it trains, too
    seed.report("nan", "failed", 10, reason=Reason.KILLED, message="killed")
    page = pages.open("run", id=run_id)
    assert not page.exception
    drawn = [json.loads(part.proto.json) for part in page.get("bidi_component")
             if part.proto.component_name == "rankzero.page_link"]  # fmt: skip
    assert [link["label"] for link in drawn if link["kind"] == "primary"] == [label]
    assert button(page, "Resume").proto.type == "secondary"
    form = pages.open("launch", **{"from": run_id, "fix": "1"})
    assert not form.exception
    assert form.text_input(key="launch_lr").value == "0.0001"
    assert with_advanced(form).text_input(key="launch_resume").value == f"{run_id}:checkpoints/step_000040.pt"
    assert "The loss is NaN since step 50" in texts(form)


def test_a_nan_run_without_a_checkpoint_or_a_learning_rate_of_ours_is_launched_again_by_hand(pages):
    pages.seed.launch("bare", 900, gpus_per_node=2)
    pages.seed.start("bare", 890)
    pages.seed.train("bare", 50, 880, last_loss=math.inf)
    pages.seed.report("bare", "stopped", 10)
    page = pages.open("run", id=pages.seed.runs["bare"])
    assert not page.exception
    assert "Launch again with changes" in links(page)
    assert button(page, "Resume").proto.type == "secondary"


def test_a_run_is_resumed_with_changes_as_a_new_run_from_before_the_loss_broke(pages):
    seed = pages.seed
    seed.launch("nan", 900, gpus_per_node=2, lr=0.001)
    seed.start("nan", 890)
    seed.train("nan", 50, 880, last_loss=math.nan)
    for step in (20, 40, 50):
        seed.checkpoint("nan", step, None)
    run_id = seed.runs["nan"]
    page = pages.open("run", id=run_id)
    button(page, "Resume with changes").click().run()
    assert not page.exception
    assert page.selectbox(key=f"resume_from_{run_id}").value.step == 40
    assert page.text_input(key=f"resume_lr_{run_id}").value == "0.0001"
    (command,) = [code.value for code in page.code if "torchrun" in code.value]
    assert "--resume=<run-dir>/resume/step_000040.pt" in command.replace("'", "")
    assert "--lr=0.0001" in command
    button(page, "Launch the new run").click().run()
    assert not page.exception
    new = next(run for run in listed(pages.service.store, 0.0, RunSelection(), None, 10) if run.id != run_id)
    assert (new.spec.resume, new.spec.lr) == (f"{run_id}:checkpoints/step_000040.pt", 0.0001)
    assert pages.service.run(run_id).stop_requested_at is not None


def test_a_rate_that_is_typed_just_before_the_click_never_resumes_with_the_old_one(pages):
    pages.seed.launch("ended", 900, gpus_per_node=2, lr=0.001)
    pages.seed.start("ended", 890)
    pages.seed.checkpoint("ended", 20, None)
    pages.seed.report("ended", "stopped", 10)
    run_id = pages.seed.runs["ended"]
    page = pages.open("run", id=run_id)
    button(page, "Resume").click().run()
    page.text_input(key=f"resume_lr_{run_id}").set_value("0.0001")
    button(page, "Resume it").click().run()
    assert not page.exception and "changed just before the click" in page.session_state["dialog_refused"]
    assert pages.service.run(run_id).attempt == 1


def test_resuming_is_not_first_where_no_checkpoint_exists(pages):
    seed = pages.seed
    seed.launch("bare", 900, gpus_per_node=2)
    seed.start("bare", 890)
    seed.report("bare", "stopped", 10)
    page = pages.open("run", id=seed.runs["bare"])
    drawn = [json.loads(part.proto.json) for part in page.get("bidi_component")
             if part.proto.component_name == "rankzero.page_link"]  # fmt: skip
    assert [link["label"] for link in drawn if link["kind"] == "primary"] == ["Launch again with changes"]
    assert button(page, "Resume").proto.type == "secondary"
