"""The form follows what is typed, refuses beside the field, and launches what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from db.models import Attempt
from db.runs import run_queries
from domain.spec import RunSpec
from tests.dashboard.pages import Pages, button, served, texts, with_advanced


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as opened:
        opened.seed.node("here", 2, kind="cpu")
        yield opened


def fill(page: AppTest, **values: str) -> AppTest:
    for name, value in values.items():
        page.text_input(key=f"launch_{name}").set_value(value)
    return page.run()


def specs(pages: Pages) -> list[RunSpec]:
    return [run.spec for run in run_queries.runs(pages.service.store, pages.service.clock())]


def test_the_empty_form_is_a_run_that_can_be_launched(pages):
    page = pages.open("launch")
    assert not page.exception
    said = texts(page)
    assert "1 node × 2 processes \\= 2 ranks" in said
    assert "2 of 2 free slots on node here" in said
    assert page.code[-1].value.startswith("torchrun --standalone --nproc-per-node=2")
    button(page, "Launch").click().run()
    assert [(spec.target, spec.gpus_per_node) for spec in specs(pages)] == [("image_classifier", 2)]


def test_expected_time_stands_beside_the_form_of_a_program_that_ran_before(pages):
    assert "Like its last run" not in texts(pages.open("launch"))
    button(pages.open("launch"), "Launch").click().run()
    (run,) = run_queries.runs(pages.service.store, pages.service.clock())
    with pages.service.store.write() as session:
        ended = {"state": "succeeded", "placed_at": 0.0, "ended_at": 720.0}
        session.execute(update(Attempt).where(Attempt.run_id == run.id).values(ended))
    page = pages.open("launch")
    assert "Like its last run: 12 min" in texts(page).replace("\\", "")


def test_launch_takes_what_was_typed_before_the_click(pages):
    page = pages.open("launch")
    page.text_input(key="launch_lr").set_value("0.25")
    button(page, "Launch").click().run()
    assert [spec.lr for spec in specs(pages)] == [0.25]


def test_the_form_reads_the_nodes_once_a_rerun(pages, monkeypatch):
    page, read, nodes = pages.open("launch"), [], pages.service.nodes
    monkeypatch.setattr(pages.service, "nodes", lambda: read.append(1) or nodes())
    fill(page, nodes="2")
    assert "Needs 2 nodes" in texts(page) and len(read) == 1


def test_more_environment_than_a_program_can_be_given_stands_beside_its_field(pages):
    page = with_advanced(pages.open("launch"))
    page.text_area(key="launch_env").set_value(f"BLOB={'x' * 131_067}").run()
    assert not page.exception
    assert "BLOB has 131,073 bytes with its name" in texts(page).replace("\\", "")
    assert button(page, "Launch").disabled


def test_advanced_fields_are_drawn_where_they_are_asked_for_and_stay_in_effect_when_closed(pages):
    page = pages.open("launch")
    assert "launch_env" not in {area.key for area in page.text_area}
    with_advanced(page).text_area(key="launch_env").set_value("A=b").run()
    page.session_state["launch_more"] = False
    assert "launch_env" not in {area.key for area in page.run().text_area}
    button(page, "Launch").click().run()
    assert specs(pages)[-1].env == {"A": "b"}


def test_a_plan_for_four_times_two_is_explained_on_a_laptop(pages):
    page = pages.open("launch")
    page.segmented_control(key="launch_lr_scaling").set_value("linear")
    fill(page, nodes="4", gpus_per_node="2", lr="0.0001", batch_size="16")
    said = texts(page)
    assert "0\\.0001 on one rank becomes 0\\.0008 on 8 ranks" in said
    assert "16 × 8 ranks × 1 accumulation step \\= 128 samples a step" in said
    assert "Warm up for about 5 epochs or 500 steps" in said
    assert "Needs 4 nodes with 2 slots each" in said
    assert [code.value.split(" --master")[0] for code in page.code] == [
        f"torchrun --nnodes=4 --node-rank={rank}" for rank in range(4)
    ]
    assert all("--master-addr=<node0-address> --master-port=<port>" in code.value for code in page.code)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("nodes", "0", "Nodes must be at least 1"),
        ("lr", "inf", "Learning rate must be a finite number"),
        ("batch_size", "-8", "Batch per GPU must be at least 1"),
        ("args", "'open", "no closing quotation"),
    ],
)
def test_a_bad_value_is_refused_beside_its_field_and_cannot_be_launched(pages, field, value, sentence):
    page = fill(pages.open("launch"), **{field: value})
    assert sentence.replace(".", "\\.") in texts(page)
    assert button(page, "Launch").disabled
    assert specs(pages) == []


def test_a_script_that_does_not_exist_is_refused_before_it_is_launched(pages, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    page = pages.open("launch")
    page.segmented_control(key="launch_source").set_value("Script").run()
    fill(page, script="/no/such/script.py")
    assert "does not exist" in texts(page)
    assert button(page, "Launch").disabled
    assert "Fix these fields to launch: Script or folder." in texts(page)


def test_form_without_code_says_what_comes_first_and_nothing_red(pages):
    page = pages.open("launch")
    page.segmented_control(key="launch_source").set_value("Script").run()
    said = texts(page)
    assert "First name a script or a folder" in said
    assert "2 ranks" in said
    assert [wrong for wrong in (":red", "starts at once", "no recipe") if wrong in said] == []
    assert button(page, "Launch").disabled


def test_launch_refuses_too_many_devices_beside_their_field(pages):
    page = fill(pages.open("launch"), gpus_per_node="64")
    button(page, "Launch").click().run()
    assert "1 node is registered" in texts(page)
    assert specs(pages) == []
    fill(page, gpus_per_node="2")
    assert "is registered" not in texts(page)


def test_launch_again_fills_the_form_with_that_runs_settings(pages):
    asked = RunSpec(target="language_model", gpus_per_node=1, lr=3e-05, lr_scaling="sqrt", args=["--width", "64"])
    run = pages.service.run(pages.service.launch(asked))
    page = pages.open("launch", **{"from": run.id})
    assert page.selectbox(key="launch_recipe").value == "language_model"
    assert page.text_input(key="launch_lr").value == "3e-05"
    assert page.text_input(key="launch_args").value == "--width 64"
    assert page.segmented_control(key="launch_lr_scaling").value == "sqrt"
    button(page, "Launch").click().run()
    first, second = specs(pages)
    assert first == second


def test_an_unknown_run_to_start_from_leaves_the_form_empty(pages):
    page = pages.open("launch", **{"from": "[x](javascript:1)"})
    assert not page.exception
    assert "There is no run" in texts(page)
