"""How an alert changes the learning rate of a run, and what it refuses to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.alerts.acting import rate_change
from domain.spec import RunSpec
from tests.dashboard.running import running

WITH_OPTION = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=0.2)
args = parser.parse_args()
"""
WITHOUT = "import torch\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
PARAMS = {"lr_scaling": "none"}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(WITH_OPTION)
    return path


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({}, PARAMS | {"lr": 0.1, "args": ["--learning-rate={lr}"]}),
        ({"args": ["--learning-rate", "0.4", "-v"]}, PARAMS | {"lr": 0.2, "args": ["--learning-rate", "{lr}", "-v"]}),
        ({"args": ["--learning-rate=0.4"]}, PARAMS | {"lr": 0.2, "args": ["--learning-rate={lr}"]}),
        ({"args": ["--learning-rate={lr}"]}, PARAMS | {"lr": 0.1}),
        ({"args": ["--learning-rate={lr}"], "lr": 0.3, "lr_scaling": "linear"}, {"lr": 0.15}),
        ({"args": ["--learning-rate=fast"]}, {}),
    ],
)  # fmt: skip
def test_the_rate_is_changed_where_the_program_takes_it(script: Path, fields, changes) -> None:
    assert rate_change(RunSpec(target=str(script), **fields), 0.5).changes == changes


def test_a_recipe_takes_the_rate_and_a_constant_is_left_alone_and_said_to_be(tmp_path: Path) -> None:
    recipe = rate_change(RunSpec(target="image_classifier", lr=0.1), 0.5)
    assert (recipe.changes, recipe.words) == ({"lr": 0.05}, "with the learning rate 0.05 instead of 0.1")
    path = tmp_path / "fixed.py"
    path.write_text(WITHOUT)
    fixed = rate_change(RunSpec(target=str(path)), 0.5)
    assert fixed.changes == {} and "because no known option passes it to fixed" in fixed.words
    assert rate_change(RunSpec(target=str(path)), 1.0).words == "with the same learning rate"


def test_wrong_action_is_refused_with_the_rule(tmp_path: Path) -> None:
    with running(tmp_path / "data", alert_private_targets=True) as it:
        it.node()
        path = tmp_path / "fixed.py"
        path.write_text(WITHOUT)
        run_id = it.launch(target=str(path))

        def refusal(**fields) -> str:
            answer = it.http.post("/api/alerts", json={"target": "http://127.0.0.1:9/", **fields})
            return str(answer.text if answer.status_code != 201 else answer.json()["lr_factor"])

        assert "has ended" in refusal(rule="failed", act="end")
        assert "rollback needs spike or loss-nan" in refusal(rule="hung", act="rollback")
        assert "only a rollback" in refusal(rule="spike", act="end", lr_factor=0.5)
        assert "above 0 and at most 1" in refusal(rule="spike", act="rollback", lr_factor=1.5)
        assert "passes a learning rate to fixed" in refusal(rule="spike", act="rollback", run=run_id)
        assert refusal(rule="spike", act="rollback", run=run_id, lr_factor=1) == "1.0"
        assert refusal(rule="loss-nan", act="rollback") == "0.5"
        assert refusal(rule="hung", act="end") == "None"
        assert it.http.get("/api/alerts").json()[-1]["act"] == "end"
