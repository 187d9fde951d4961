"""`rankzero timeline`: how long each phase of a start took on each node."""

from __future__ import annotations

import pytest

from cli.commands.runs.performance import print_stacks, print_timeline
from domain.launch.timeline import Phase


def test_timeline_has_a_column_for_each_node_and_names_the_slow_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_timeline(
        [
            Phase("gpu-1", "placed", 0.0, 1.0), Phase("gpu-1", "torch imported", 1.0, 6.0),
            Phase("gpu-2", "placed", 0.0, 1.0), Phase("gpu-2", "torch imported", 1.0, 31.0),
        ]
    )  # fmt: skip
    head, placed, imported, sentence = capsys.readouterr().out.splitlines()
    assert head.split() == ["phase", "gpu-1", "gpu-2"]
    assert placed.split() == ["placed", "1", "s", "1", "s"]
    assert imported.split() == ["torch", "imported", "6", "s", "31", "s"]
    assert sentence == "Importing torch took 31 s on gpu-2, 6 s elsewhere."


def test_each_frame_of_a_stack_has_a_line_and_each_rank_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    frames = [
        {"file": "/x/train.py", "line": 41, "function": "main"},
        {"file": "/x/train.py", "line": 9, "function": "f"},
    ]
    print_stacks({"node": "gpu-1", "ranks": {"1": [], "0": frames}})
    assert capsys.readouterr().out.splitlines() == [
        "", "rank 0 on gpu-1:", "  /x/train.py:41 in main", "  /x/train.py:9 in f",
        "", "rank 1 on gpu-1:", "  could not be asked",
    ]  # fmt: skip
