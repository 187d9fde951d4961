"""The phases of a start are read from the files of the worker, of the supervisor and of each rank's probe."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from worker.attempt.timeline import Timeline
from worker.launch.warm import IS_WARM
from worker.monitor.probe_reader import ProbeReader


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "worker").mkdir()
    (tmp_path / "probe").mkdir()
    touch(tmp_path / "assignment.json", 100.0)
    return tmp_path


def touch(path: Path, at: float, text: str = "{}") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (at, at))


def write_rank(folder: Path, rank: int, **phases: float | tuple[float, float]) -> None:
    events = []
    for name, at in phases.items():
        event = {"kind": "start", "at": at, "phase": name.replace("_", " ")}
        events.append(event | ({"began": at[0], "seconds": at[1]} if isinstance(at, tuple) else {}))
    line = {"t": 1.0, "rank": rank, "world_size": 2, "pid": rank + 7, "step": 0, "events": events}
    with (folder / "probe" / f"{rank + 7}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def started(folder: Path, *, has_preflight: bool = False) -> Timeline:
    """A timeline whose first second is over."""
    timeline = Timeline(folder, has_preflight=has_preflight)
    assert timeline.news(-1.0, None, final=False) is None
    return timeline


def read(timeline: Timeline, folder: Path, now: float = 0.0, **options) -> dict[str, float] | None:
    ends = timeline.news(now, ProbeReader(folder / "probe"), **{"final": False} | options)
    return None if ends is None else {end.phase: end.at for end in ends}


def test_phases_before_the_ranks_are_the_times_of_files(folder):
    timeline = started(folder, has_preflight=True)
    assert read(timeline, folder) == {"placed": 100.0}
    touch(folder / "worker" / "environment.json", 100.4)
    touch(folder / "worker" / "data.json", 100.7)
    touch(folder / "worker" / "existing.json", 101.0)
    touch(folder / "supervisor.json", 0.0, json.dumps({"started_at": 103.0, "running_at": None}))
    assert read(timeline, folder, 1.0) == {
        "placed": 100.0, "environment": 100.4, "data": 100.7, "code fetched": 101.0, "preflight": 103.0,
    }  # fmt: skip
    touch(folder / "supervisor.json", 0.0, json.dumps({"started_at": 103.0, "running_at": 104.5}))
    touch(folder / "launch.json", 102.0)
    (folder / "resume").mkdir()
    whole = read(timeline, folder, 2.0)
    assert whole["checkpoint fetched"] == 102.0 and whole["process"] == 104.5
    assert "preflight" not in read(started(folder), folder)


def test_a_node_has_ended_a_phase_when_its_last_rank_has(folder):
    timeline = started(folder)
    write_rank(folder, 0, torch_imported=105.0, rendezvous=106.0)
    write_rank(folder, 1, torch_imported=107.0)
    assert read(timeline, folder) == {"placed": 100.0, "torch imported": 107.0}


def test_timeline_takes_the_last_note_of_a_phase(folder):
    write_rank(folder, 0, model_built=105.0)
    write_rank(folder, 0, model_built=108.0, compile=(110.0, 2.5))
    ends = started(folder).news(0.0, ProbeReader(folder / "probe"), final=False)
    assert [(end.phase, end.began_at, end.at) for end in ends[1:]] == [
        ("model built", None, 108.0), ("compile", 110.0, 112.5),
    ]  # fmt: skip


def test_it_is_told_once_again_after_a_failure_and_no_more_after_the_first_step(folder):
    timeline = started(folder)
    ends = timeline.news(0.0, None, final=False)
    assert timeline.news(1.0, None, final=False) == ends
    timeline.acknowledged(ends)
    assert timeline.news(2.0, None, final=False) is None
    write_rank(folder, 0, first_step=109.0)
    probe = ProbeReader(folder / "probe")
    assert timeline.news(2.5, probe, final=False) is None, "at most once a second"
    ends = timeline.news(2.5, probe, final=True)
    timeline.acknowledged(ends)
    write_rank(folder, 0, model_built=120.0)
    assert timeline.news(9.0, probe, final=True) is None


def test_timeline_ignores_lines_that_a_script_wrote(folder):
    (folder / "probe" / "7.jsonl").write_text(
        json.dumps({"t": 1.0, "rank": 0, "pid": 7, "step": 0, "events": [{"kind": "start", "phase": "x"}]}) + "\n"
    )
    assert read(started(folder), folder) == {"placed": 100.0}


@pytest.mark.parametrize("is_warm", [True, False])
def test_how_torchrun_came_to_be_is_a_note_of_its_phase(folder: Path, is_warm: bool):
    touch(folder / "worker/warm.json", 100.0, json.dumps({"note": IS_WARM}))
    touch(folder / "supervisor.json", 102.0, json.dumps({"running_at": 102.0, "is_warm": is_warm}))
    ends = started(folder).news(200.0, None, final=True) or []
    assert [end.note for end in ends if end.phase == "process"] == [IS_WARM if is_warm else ""]
