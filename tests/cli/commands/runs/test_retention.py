"""`rankzero checkpoint pin, unpin, delete, restore` and `rankzero retention`, against a dashboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.running import Running, running, wait_for


@pytest.fixture
def dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A dashboard with an ended run that has saved three checkpoints."""
    with running(tmp_path / "data") as dashboard:
        monkeypatch.setenv("RANKZERO_URL", dashboard.url)
        monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
        node = dashboard.node()
        dashboard.launch(name="kept")
        for step in (10, 20, 30):
            node.store_checkpoint(node.task(), f"{step}".encode(), f"work/step_{step}.pt", step)
        yield dashboard


def names(rankzero: Any, *options: str) -> list[str]:
    listed = json.loads(rankzero("checkpoints", "kept", *options, "--json")[1])
    return sorted(one["name"].removeprefix("work/") for one in listed)


def test_a_pinned_checkpoint_is_marked_and_stays(dashboard: Running, rankzero: Any) -> None:
    code, out, _ = rankzero("checkpoint", "pin", "kept", "step_10.pt")
    assert (code, out) == (0, "Checkpoint work/step_10.pt is pinned: no rule deletes it.\n")
    assert "pinned" in rankzero("checkpoints", "kept")[1]
    code, _, err = rankzero("checkpoint", "delete", "kept", "step_10.pt", "--yes")
    assert code == 1 and "unpin it first" in err
    assert json.loads(rankzero("checkpoint", "unpin", "kept", "step_10.pt", "--json")[1])["pinned_at"] is None


def test_a_deleted_checkpoint_is_listed_and_comes_back(dashboard: Running, rankzero: Any) -> None:
    code, out, _ = rankzero("checkpoint", "delete", "kept", "work/step_20.pt", "--yes")
    assert code == 0 and "Can be restored until" in out and "`rankzero checkpoint restore " in out
    assert names(rankzero) == ["step_10.pt", "step_30.pt"]
    assert names(rankzero, "--deleted") == ["step_20.pt"]
    assert "work/step_20.pt" in rankzero("checkpoints", "kept", "--deleted")[1]
    assert rankzero("checkpoint", "restore", "kept", "step_20.pt")[1].endswith("is back, and pinned.\n")
    assert names(rankzero, "--deleted") == []
    code, _, err = rankzero("checkpoint", "restore", "kept", "step_99.pt")
    assert code == 1 and "has no deleted checkpoint 'step_99.pt'" in err


def test_a_rule_is_tried_set_shown_and_removed(dashboard: Running, rankzero: Any) -> None:
    code, out, _ = rankzero("retention", "set", "last 1", "--run", "kept", "--dry-run")
    assert (code, out) == (0, "It would free 4 B: 2 checkpoints of 1 run.\n")
    assert rankzero("retention", "show")[1] == "Project default: keep all (no rule is set)\n"
    code, out, err = rankzero("retention", "set", "last 1", "--run", "kept")
    assert code == 0 and "keeps: last 1, pinned. This frees 4 B" in out and "This rule frees 4 B" in err
    wait_for(lambda: names(rankzero) == ["step_30.pt"], "the rule to be applied")
    assert "a resume begins with it" in rankzero("retention", "show", "--run", "kept")[1]
    assert json.loads(rankzero("retention", "show", "--run", "kept", "--json")[1])["of"] == "run"
    assert json.loads(rankzero("retention", "set", "--clear", "--run", "kept", "--json")[1])["of"] is None


def test_the_rule_of_a_project(dashboard: Running, rankzero: Any) -> None:
    code, out, _ = rankzero("retention", "set", "last 2", "--project", "vision", "--yes")
    assert code == 0 and out.startswith("Project vision keeps: last 2, pinned. This frees nothing")
    assert (
        "last 2, pinned (the rule of the project, set by owner)"
        in rankzero("retention", "show", "--project", "vision")[1]
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["set", "newest"], "is no part of a rule"),
        (["set"], "Give a rule"),
        (["set", "last 1", "--clear"], "Give a rule"),
        (["show", "--project", "a", "--run", "kept"], "not both"),
        (["empty"], "add --yes"),
    ],
)
def test_what_cannot_be_done_is_refused(dashboard: Running, rankzero: Any, arguments: list[str], problem: str) -> None:
    code, _, err = rankzero("retention", *arguments)
    assert code in (1, 2) and problem in err


def test_the_bin_is_emptied(dashboard: Running, rankzero: Any) -> None:
    rankzero("checkpoint", "delete", "kept", "step_20.pt", "--yes")
    assert rankzero("retention", "empty", "--yes")[1] == "2 B are free.\n"
    assert names(rankzero, "--deleted") == []
