"""`rankzero export` against a real dashboard: a whole file, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.documents import document
from tests.dashboard.running import FakeNode, Running


@pytest.fixture
def run_id(dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    monkeypatch.chdir(tmp_path)
    run_id = dashboard.launch()
    node.log_points(node.task(), 0, train__loss=[(1, 2.5, 1.0), (2, 2.0, 2.0)])
    return run_id


def test_the_ending_of_the_path_chooses_the_format(rankzero: Any, run_id: str, tmp_path: Path) -> None:
    answer = document(rankzero("export", run_id, "-o", "points.json", "--json"))
    path = tmp_path / "points.json"
    assert answer == {"path": str(path), "size_bytes": path.stat().st_size}
    assert json.loads(path.read_text())[0]["points"] == [[1, 2.5, 1.0], [2, 2.0, 2.0]]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_failed_export_leaves_the_earlier_file(rankzero: Any, run_id: str, tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text("before")
    code, out, err = rankzero("export", run_id, "a" * 10, "-o", str(path))
    assert (code, out) == (1, "") and "There is no run" in err
    assert path.read_text() == "before" and [file.name for file in tmp_path.glob("*points*")] == ["points.csv"]


def test_an_archive_is_imported_by_the_command_line(
    rankzero: Any, dashboard: Running, node: FakeNode, run_id: str
) -> None:
    node.report(node.task(), "succeeded", exit_code=0)
    assert rankzero("export", run_id, "-o", "run.zip", "--without-checkpoints")[0] == 0
    assert rankzero("delete", run_id, "--yes", "--now")[0] == 0
    expected = {"id": run_id, "name": "image_classifier", "source": "run.zip", "series": 1, "points": 2}
    assert document(rankzero("import", "run.zip", "--json")) == [expected | {"is_new": True}]
    assert document(rankzero("metrics", run_id, "--json")) == {"train/loss": [[1, 2.5, 1.0], [2, 2.0, 2.0]]}
    assert "Nothing new" in rankzero("import", "run.zip")[1]


@pytest.mark.parametrize("path", ["points.txt", "nowhere/points.csv", "data"])
def test_a_wrong_path_is_refused_with_the_rule(rankzero: Any, run_id: str, path: str) -> None:
    code, _, err = rankzero("export", run_id, "-o", path)
    assert code == 2 and "-o: " in err
