"""What differs between two runs: settings in the form's words, code as a patch; over HTTP and by command."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.commands.runs import compare as diff_command
from dashboard.compare import runs as comparisons
from dashboard.compare.spec_changes import Difference, interpreter_differences, settings_in_words, spec_differences
from dashboard.compare.spec_words import in_words
from dashboard.snapshots.archive import pack
from dashboard.snapshots.differences import compare
from dashboard.snapshots.selection import select
from db.metrics.run_results import SeriesResult, without_repeated
from domain.spec import RunSpec
from tests.dashboard.checkouts import write
from tests.dashboard.running import Running

MIB = 1024 * 1024
TORCH = {
    "path": "/opt/env/bin/python",
    "python": "3.11.9",
    "torch": "2.13.0",
    "cuda": "12.6",
    "nccl": "2.27.5",
}


def spec(**asked: Any) -> RunSpec:
    return RunSpec.model_validate({"target": "image_classifier", "gpus_per_node": 1} | asked)


def rows(old: RunSpec, new: RunSpec) -> dict[str, tuple[str, str]]:
    """Each difference in words, by its label."""
    return {row.label: in_words(*row.values) for row in spec_differences([old, new])}


# -- specifications ----------------------------------------------------------------------------


def test_fields_are_called_as_the_form_calls_them_and_figures_follow():
    old = spec(batch_size=32, lr=0.001, gpus_per_node=2)
    assert rows(old, spec(batch_size=32, lr=0.001, gpus_per_node=8, lr_scaling="linear")) == {
        "GPUs per node": ("2", "8"),
        "Scaling rule": ("none", "linear"),
        "World size": ("2", "8"),
        "Global batch": ("64", "256"),
        "Learning rate after scaling": ("0.001", "0.008"),
    }


def test_a_name_is_no_difference():
    assert rows(spec(name="a"), spec(name="b")) == {}


def test_arguments_are_compared_option_by_option():
    old = spec(args=["data", "--lr", "0.1", "--depth=3", "--fast", "--bias", "-1"])
    new = spec(args=["data", "--lr", "0.2", "--depth=3", "--betas", "0.9", "0.99", "--bias", "-2"])
    assert rows(old, new) == {
        "Argument --lr": ("0.1", "0.2"),
        "Argument --fast": ("on", "–"),
        "Argument --bias": ("-1", "-2"),
        "Argument --betas": ("–", "0.9 0.99"),
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["-v", "-v"], ["-v"]),
        (["--a", "1", "--b", "2"], ["--b", "2", "--a", "1"]),
        (["--a", "x y"], ["--a=x y"]),
    ],
)
def test_arguments_that_cannot_be_told_apart_by_name_are_shown_whole(old, new):
    (row,) = rows(spec(args=old), spec(args=new)).items()
    assert row[0] == "Extra arguments" and row[1][0] != row[1][1]


def test_variables_and_links_are_compared_one_by_one():
    old = spec(env={"A": "1", "B": "2"}, links={"data": "/a"})
    assert rows(old, spec(env={"B": "3", "C": "4"}, links={"data": "/b"})) == {
        "Environment A": ("1", "–"),
        "Environment B": ("2", "3"),
        "Environment C": ("–", "4"),
        "Link data": ("/a", "/b"),
    }


def test_settings_are_shown_with_their_labels_and_units():
    settings = {"nodes": 2, "stop_grace_s": 12.5, "probe": False, "env": {"A": "1", "B": "x y"}, "args": ["--a", "b c"]}
    assert settings_in_words(settings) == [
        ("Nodes", "2"), ("Stop grace period", "12.5 s"), ("Probe every rank", "off"),
        ("Environment", "A=1, B=x y"), ("Extra arguments", "--a 'b c'"),
    ]  # fmt: skip


def test_figures_get_the_digits_it_takes_to_tell_them_apart():
    assert rows(spec(lr=0.1234567), spec(lr=0.1234568))["Learning rate"] == ("0.1234567", "0.1234568")
    assert in_words(1.0, 2.0) == ("1", "2")
    assert in_words(True, False) == ("on", "off")
    assert in_words(None, "–") != ("–", "–")


def test_other_versions_of_what_trains_are_told_where_both_are_known():
    (row,) = interpreter_differences([TORCH, TORCH | {"torch": "2.14.0"}])
    assert (row.label, row.values) == ("torch", ("2.13.0", "2.14.0"))
    assert interpreter_differences([TORCH, None]) == [] == interpreter_differences([None, TORCH])


def test_packages_are_compared_where_they_were_recorded() -> None:
    recorded = [
        TORCH | {"packages": {"numpy": "2.1.0", "timm": "1.0"}},
        TORCH | {"packages": {"numpy": "2.2.0"}},
    ]
    numpy, timm = interpreter_differences([*recorded, TORCH])
    assert numpy == Difference("package.numpy", "Package numpy", ("2.1.0", "2.2.0", None))
    assert timm == Difference("package.timm", "Package timm", ("1.0", None, None))
    assert interpreter_differences([recorded[0], TORCH]) == []


WORDS = st.lists(st.sampled_from(["--a", "--b=1", "-c", "x", "-1", "--", "", "é y"]), max_size=6)


@given(WORDS, WORDS)
def test_there_is_a_row_exactly_where_arguments_differ(old, new):
    differences = spec_differences([spec(args=old), spec(args=new)])
    assert bool(differences) == (old != new)
    assert all(len(set(in_words(*row.values))) == 2 for row in differences)


# -- over HTTP ---------------------------------------------------------------------------------


def bring(dashboard: Running, folder: Path, **more: Any) -> str:
    """Launch the code in a folder; returns the run's id."""
    archive = folder.parent / f"{folder.name}.tar"
    archive.unlink(missing_ok=True)
    packed = pack(select(folder), archive, MIB)
    content = packed.path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    headers = {"Content-Type": "application/octet-stream"}
    answer = dashboard.http.put(f"/api/snapshots/{sha256}", content=content, headers=headers)
    assert answer.status_code == 200, answer.text
    return dashboard.launch(**{"target": "/x/train.py", "entry": "train.py", "snapshot": sha256} | more)


def difference(dashboard: Running, run: str, other: str) -> Any:
    answer = dashboard.http.get(f"/api/runs/{run}/diff", params={"with": other})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def two(shared: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two runs that differ in a line of code and in the learning rate; comparing them may take minutes."""
    monkeypatch.setattr(comparisons, "compare", partial(compare, time_limit_s=300.0))
    first = bring(shared, write(tmp_path / "a", train_py="lr = 1\n", model_py="m\n"), lr=0.1)
    second = bring(shared, write(tmp_path / "b", train_py="lr = 2\n", model_py="m\n"), lr=0.2)
    return first, second


def test_two_runs_differ_in_settings_and_code(shared, two):
    differences = difference(shared, *two)
    only_variables = {"field": "as_variables", "label": "Only as variables"}  # the script has no option for it
    assert differences["spec"] == [only_variables | {"old": {"lr": "0.1"}, "new": {"lr": "0.2"}}]
    assert differences["same_code"] is False
    (file,) = differences["code"]["files"]
    assert (file["name"], file["kind"], file["lines_added"]) == ("train.py", "changed", 1)
    assert differences["code"]["diff"].endswith("@@ -1 +1 @@\n-lr = 1\n+lr = 2\n")
    assert difference(shared, *reversed(two))["code"]["diff"].endswith("-lr = 2\n+lr = 1\n")


def test_the_same_snapshot_is_the_same_code(shared, tmp_path):
    code = write(tmp_path / "a", train_py="lr = 1\n")
    differences = difference(shared, bring(shared, code), bring(shared, code))
    assert (differences["spec"], differences["same_code"], differences["code"]["files"]) == ([], True, [])


def test_recipes_and_code_that_was_not_kept_are_told(shared, two, tmp_path):
    script = write(tmp_path / "c", train_py="") / "train.py"
    recipe, other = shared.launch(), shared.launch(target="language_model")
    in_place = shared.launch(target=str(script), workdir=str(tmp_path))
    assert difference(shared, recipe, recipe)["same_code"] is True
    assert "language_model" in difference(shared, recipe, other)["code"]["note"]
    mixed = difference(shared, recipe, two[0])
    assert (mixed["same_code"], mixed["code"]["files"]) == (False, []) and recipe in mixed["code"]["note"]
    lost = difference(shared, two[0], in_place)
    assert lost["same_code"] is None and lost["code"]["note"] == f"The code of run {in_place} was not stored."


def test_a_snapshot_that_is_gone_from_the_disk_is_told(dashboard, node, tmp_path):
    first = bring(dashboard, write(tmp_path / "a", train_py="1\n"))
    second = bring(dashboard, write(tmp_path / "b", train_py="2\n"))
    gone = dashboard.run(second)["spec"]["snapshot"]
    dashboard.service.snapshots.path(gone).unlink()
    differences = difference(dashboard, first, second)
    assert differences["same_code"] is None
    assert differences["code"]["note"] == f"The snapshot {gone[:12]} can no longer be read."


def test_runs_that_are_not_there_are_named(shared, two):
    for run, other, missing in ((two[0], "zzzzzzzzzz", "zzzzzzzzzz"), ("nobody", two[0], "nobody")):
        answer = shared.http.get(f"/api/runs/{run}/diff", params={"with": other})
        assert answer.status_code == 404
        assert answer.json()["detail"]["message"] == f"There is no run '{missing}'."
    answer = shared.http.get(f"/api/runs/{two[0]}/diff")
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        {"field": "with", "message": "with is required."},
    )


# -- by command --------------------------------------------------------------------------------


def test_the_command_prints_what_patch_takes(rankzero, two):
    code, out, err = rankzero("diff", *two)
    assert (code, err) == (0, "")
    assert out == (
        "# Learning rate: 0.1 -> 0.2\n"
        "diff --git a/train.py b/train.py\nindex 616f8d9..af33a70 100644\n"
        "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-lr = 1\n+lr = 2\n"
    )


def test_the_command_prints_one_document(rankzero, shared, two):
    code, out, err = rankzero("diff", *two, "--json")
    assert (code, err, json.loads(out)) == (0, "", difference(shared, *two))


def test_no_difference_leaves_stdout_empty(rankzero, two):
    assert rankzero("diff", two[0], two[0]) == (0, "", "No difference.\n")


def test_an_unknown_run_is_one_sentence(rankzero, two):
    sentence = "There is no run 'zzzzzzzzzz'; `rankzero runs` lists them.\n"
    assert rankzero("diff", two[0], "zzzzzzzzzz") == (1, "", sentence)
    code, out, err = rankzero("diff", two[0], "../x")
    assert (code, out) == (1, "") and "`rankzero runs` lists them" in err


def test_code_cannot_steer_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    diff_command.print_lines(["+\x1b]0;owned\x07\tx\r", " same"])
    assert capsys.readouterr().out == "\x1b[32m+\\x1b]0;owned\\x07\tx\\r\x1b[0m\n same\n"
    monkeypatch.setenv("NO_COLOR", "1")
    diff_command.print_lines(["+x"])
    assert capsys.readouterr().out == "+x\n"


def test_printed_copy_of_a_logged_series_is_no_result() -> None:
    result = SeriesResult(1.0, None, 5)
    names = ["train/loss", "printed/loss", "printed/data_s", "val/accuracy", "printed/val/accuracy"]
    assert list(without_repeated(dict.fromkeys(names, result))) == [
        "train/loss",
        "printed/data_s",
        "val/accuracy",
    ]
    assert list(without_repeated({"printed/loss": result})) == ["printed/loss"], "nothing else is known of it"
