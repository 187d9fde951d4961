"""CSV files with a row for each epoch arrive as inferred series, named by file and column."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.importers.logged_runs import WALL
from tests.worker.loggers.logging_node import Node

HEADER = "                  epoch,         train/box_loss,       metrics/mAP50(B)\n"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def write(node: Node, text: str, name: str = "results.csv") -> None:
    file = node.work / "runs/train" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.write(text)
    os.utime(file, (WALL + 10, WALL + 10))


def test_padded_names_and_rows_that_follow(node: Node) -> None:
    write(node, HEADER + "                      1,                    1.2,                   0.11\n   2, 1.1")
    assert node.read() == {"results:train/box_loss": [(1, 1.2)], "results:metrics/mAP50(B)": [(1, 0.11)]}
    write(node, ",  0.22\n" + HEADER + "3,,nan\n4,text\n")
    node.restart_worker()
    points = node.read()
    assert points["results:train/box_loss"] == [(1, 1.2), (2, 1.1)]
    assert [step for step, _ in points["results:metrics/mAP50(B)"]] == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("results.csv", "name,score\nana,1\n"),
        ("people.csv", HEADER + "1,2,3\n"),
        ("metrics.csv", "step,loss\n0.5,1\n" + "9" * 400 + ",1\n1e400,1\n"),
        ("metrics.csv", ""),
        ("log.csv", "step,loss"),
    ],
)
def test_table_without_steps_gives_no_points(node: Node, name: str, text: str) -> None:
    write(node, text, name)
    assert node.read() == {}


def test_beside_another_logger_it_is_left_alone(node: Node) -> None:
    folder = node.work / "mlruns/0/abc"
    (folder / "metrics").mkdir(parents=True)
    (folder / "meta.yaml").write_text("run_id: abc\n")
    (folder / "metrics/loss").write_text(f"{int((WALL + 5) * 1000)} 2.0 1\n")
    assert node.read() == {"loss": [(1, 2.0)]}
    write(node, HEADER + "1,1.2,0.1\n")
    assert node.read() == {"loss": [(1, 2.0)]}
