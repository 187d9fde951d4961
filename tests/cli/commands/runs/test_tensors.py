"""`rankzero checkpoint show, diff`: what they ask a node for, and what they print of its report."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cli import main
from tests.dashboard.api.workers.checkpoint_work import desired, report, saved, second

__all__ = ["saved"]
CHANGE = {"tensors": 1, "values": 100, "relative": 0.25, "cosine": 0.99, "largest": 0.1, "unchanged": 0.5,
          "not_finite": 0}  # fmt: skip
SHOWN: dict[str, Any] = {
    "format": "torch",
    "totals": {"tensors": 2, "values": 108, "bytes": 416, "norm": 2.0, "zeros": 0, "nan": 3, "inf": 0},
    "dtypes": [{"dtype": "float32", "tensors": 2, "values": 108, "bytes": 416}],
    "tensors": [
        {"name": "layers.0.weight", "shape": [10, 10], "dtype": "float32", "norm": 1.5, "nan": 3, "inf": 0},
        {"name": "\x1b[31mscale", "shape": [], "dtype": "float32", "norm": None, "nan": 0, "inf": 0},
    ],
    "left_out": 1,
    "notes": ["Left out: step."],
}
COMPARED: dict[str, Any] = {
    "formats": ["torch", "torch"],
    "totals": CHANGE,
    "layers": [CHANGE | {"layer": "layers.0"}, CHANGE | {"layer": "head", "relative": None, "cosine": None}],
    "tensors": [CHANGE | {"name": "layers.0.weight", "layer": "layers.0", "not_finite": 7}],
    "only_a": [{"name": f"old.{number}", "shape": [1], "dtype": "float32"} for number in range(5)],
    "only_b": [],
    "different": [],
    "left_out": {"layers": 0, "tensors": 0, "only_a": 0, "only_b": 0, "different": 0},
    "notes": [],
}
Run = Callable[..., str]


@pytest.fixture
def rankzero(dashboard, node, saved, monkeypatch, capfd) -> Run:
    """Run a command to its end, while the node reports this result."""
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)

    def run(result: dict[str, Any], *words: str) -> str:
        def do_it(seconds: float) -> None:
            for task in desired(node):
                report(node, task, "succeeded", result=result)

        monkeypatch.setattr("cli.server.checkpoint_tasks.time.sleep", do_it)
        capfd.readouterr()
        assert main.run(["checkpoint", *words]) == 0
        return str(capfd.readouterr().out)

    return run


def test_show_lists_the_tensors_and_counts_what_is_not_finite(rankzero: Run, saved) -> None:
    lines = rankzero(SHOWN, "show", saved[0]).splitlines()
    assert lines[0].split() == ["name", "shape", "dtype", "norm", "not", "finite"]
    assert lines[1].split() == ["layers.0.weight", "10×10", "float32", "1.5", "3", "NaN"]
    assert "\x1b" not in lines[2] and lines[2].split()[1:] == ["scalar", "float32"]
    assert lines[3:] == [
        "2 tensors, 108 values: float32 (416 B).", "1 further tensor left out, to bound the report's size.",
        "Left out: step.",
    ]  # fmt: skip
    assert json.loads(rankzero({}, "show", saved[0], "last.pt", "--json")) == {"checkpoint": "work/last.pt"} | SHOWN


def test_diff_lists_layers_or_tensors_and_names_what_only_one_has(rankzero: Run, dashboard, node, saved) -> None:
    second(dashboard, node)
    other_run = dashboard.http.get("/api/runs").json()[0]["id"]
    words = ["diff", f"{saved[0]}:last.pt", other_run]
    lines = rankzero(COMPARED, *words).splitlines()
    assert lines[0].split() == ["layer", "change", "cosine", "largest", "unchanged", "values"]
    assert lines[1].split() == ["layers.0", "0.25", "0.99", "0.1", "50", "%", "100"]
    assert lines[2].split() == ["head", "from", "zero", "0.1", "50", "%", "100"]
    assert lines[3] == "Only in A: old.0, old.1, old.2 and 2 more."
    tensors = rankzero({}, *words, "--tensors").splitlines()
    assert tensors[0].split()[0] == "name" and tensors[1].split()[-1] == "7"
    document = json.loads(rankzero({}, *words, "--json"))
    assert document == {"checkpoints": ["work/last.pt", "work/last.pt"]} | COMPARED
    same = json.loads(rankzero(COMPARED, "diff", saved[0], ":last.pt", "--json"))
    assert same["layers"] == COMPARED["layers"]


def test_a_word_without_a_run_is_wrong_usage(rankzero: Run, capfd) -> None:
    assert main.run(["checkpoint", "diff", ":last.pt", "x"]) == 2
    assert capfd.readouterr().err.strip() == "':last.pt' names no run: write RUN or RUN:CHECKPOINT."
