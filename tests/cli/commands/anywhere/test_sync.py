"""`rankzero sync`: which folders it takes, and what it says of each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cli.commands.anywhere import sync
from tests.worker.watched.left import left_behind
from worker.watched.companion import lock


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a command whose server nobody knows."""
    monkeypatch.setattr(sync, "PATIENCE_S", 0.0)
    monkeypatch.setenv("RANKZERO_DATA", str(tmp_path / "data"))
    return left_behind(tmp_path / "data", tmp_path / "cwd")


def test_without_anything_left_it_says_so(rankzero: Any, tmp_path: Path) -> None:
    assert rankzero("sync", str(tmp_path)) == (0, "Nothing is left to send.\n", "")
    assert rankzero("sync", str(tmp_path), "--json")[:2] == (0, "[]\n")


@pytest.mark.parametrize("place", ["data", "watched", "one"])
def test_each_kind_of_folder_is_understood_and_what_cannot_be_sent_stays(
    rankzero: Any, folder: Path, place: str
) -> None:
    named = {"data": folder.parents[1], "watched": folder.parent, "one": folder}[place]
    code, out, err = rankzero("sync", str(named), "--json")
    (line,) = json.loads(out)
    assert code == 1 and line.keys() == {"run", "sent", "left"} and (line["sent"], line["left"] > 0) == (0, True)
    assert "No dashboard runs on" in err and "rankzero sync" in err
    assert (folder / "attempt/logs/rank0.out").read_text() == "trained\n"


def test_a_folder_in_use_is_listed_and_left_alone(rankzero: Any, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    descriptor = lock(folder)
    code, out, _ = rankzero("sync")
    os.close(descriptor)
    assert code == 0 and "It is being watched, and sent, now." in out
    assert sorted(folder.rglob("*")) == sorted([*before, folder / "companion.lock"])


def test_a_folder_that_cannot_be_read_is_told_of_and_the_others_are_not_held_up(
    rankzero: Any, folder: Path, tmp_path: Path
) -> None:
    other = left_behind(tmp_path / "data", tmp_path / "other")
    (folder / "watch.json").write_text('{"from": "another version"}')
    code, out, _ = rankzero("sync", "--json")
    by_run = {line["run"]: line["left"] for line in json.loads(out)}
    assert code == 1 and by_run[folder.name] == 0 and len(by_run) == 2 and other.exists()
