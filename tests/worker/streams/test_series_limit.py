"""The first names of series count, also after a restart, and what is left out is told."""

from __future__ import annotations

from pathlib import Path

from domain.messages import PointBatch
from worker.streams.series_limit import KIND, SeriesLimit, left_out_findings

POINT = [(1, 2.0, 3.0)]


def batch(*names: str, source: str = "events") -> PointBatch:
    return PointBatch(path="a", generation=0, start=0, end=9, source=source, series=dict.fromkeys(names, POINT))


def test_names_beyond_the_limit_are_left_out_and_told_once(tmp_path):
    limit = SeriesLimit(tmp_path / "worker" / "series.jsonl", most=2)
    assert limit.keep(batch("a", "b")).series.keys() == {"a", "b"} and limit.findings() == []
    kept = limit.keep(batch("c", "a", "d"))
    assert kept.series.keys() == {"a"} and (kept.start, kept.end) == (0, 9)
    (finding,) = limit.findings()
    assert finding.kind == KIND and finding.evidence.startswith("More than 2 names")
    assert finding.evidence.endswith("the first of them: c")
    limit.keep(batch("e"))
    assert limit.findings() == [finding]


def test_one_source_takes_no_names_from_another(tmp_path):
    limit = SeriesLimit(tmp_path / "series.jsonl", most=1)
    limit.keep(batch("a", "b"))
    assert limit.keep(batch("steps_per_s", source="probe")).series.keys() == {"steps_per_s"}


def test_a_restarted_worker_keeps_the_same_names(tmp_path):
    file = tmp_path / "series.jsonl"
    SeriesLimit(file, most=2).keep(batch("b", "a", "c"))
    with file.open("a") as lines:
        lines.write('["events", "torn')
    again = SeriesLimit(file, most=2)
    assert again.keep(batch("c", "d", "a", "b")).series.keys() == {"a", "b"}
    assert "the first of them: c" in again.findings()[0].evidence


def test_files_beyond_the_limit_and_holes_are_told():
    assert left_out_findings(0, [], []) == []
    holes = ["logs/rank0.out was never written from byte 6 to byte 9."]
    many, hole, large = left_out_findings(1_000, holes, [Path("/data/set")])
    assert many.evidence.startswith("1,000 event files are neither read nor copied")
    assert hole.evidence == "logs/rank0.out was never written from byte 6 to byte 9."
    assert large.evidence == "/data/set has more than 500,000 files and folders."
