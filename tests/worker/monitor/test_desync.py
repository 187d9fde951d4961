"""Each way to leave the common path of collectives is named with the right rank and line. Real gloo ranks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.collectives import CollectivesVerdict, NodeCollectives, judge
from domain.messages import Finding
from domain.spec import RunSpec
from tests.end_to_end.product import wait_for
from worker.monitor import collective_watch
from worker.monitor.probe_reader import ProbeReader
from worker.monitor.watch import Watch

pytestmark = [pytest.mark.real, pytest.mark.training]
RANKS = Path(__file__).parent / "desync_ranks.py"
SCRIPT = Path(__file__).parents[2] / "end_to_end" / "scripts" / "desync.py"
LINES = SCRIPT.read_text().splitlines()
WORLD_SIZE = 3
PATIENCE_S = 600.0
HANGS = {
    "skipped": ("order", "the step's metrics"),
    "swapped": ("order", "the step's metrics"),
    "extra": ("operation", "one too many"),
    "group": ("group", "other group"),
    "loader": ("loader", "stuck loader"),
}
FAILURES = {"shape": ("size", "other shape"), "dtype": ("dtype", "other dtype"), "exit": ("left", "")}


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All desyncs that are asked for at once, in a path longer than that of a socket may be."""
    of_file = [item for item in request.session.items if item.path == request.path]
    asked = {item.callspec.params["desync"] for item in of_file if hasattr(item, "callspec")} | {"extra"}
    desyncs = [desync for desync in (*HANGS, *FAILURES) if desync in asked]
    folder = tmp_path_factory.mktemp("desync") / ("long" * 30)
    argv = [sys.executable, str(RANKS), str(folder), str(WORLD_SIZE), "none", *desyncs]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as ranks:
        assert ranks.stdin is not None and ranks.stdout is not None
        assert ranks.stdout.readline() == b"started\n"
        yield folder
        ranks.stdin.close()
        assert ranks.wait(PATIENCE_S) == 0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_watch, "LIMIT_S", 60.0)


def align(collectives: NodeCollectives) -> CollectivesVerdict | None:
    """Compare as the server does for a run on one node."""
    return judge({record.rank: record for record in collectives.ranks}, is_stalled=collectives.is_stalled)


def watch_of(folder: Path) -> Watch:
    spec = RunSpec(target="desync.py", gpus_per_node=WORLD_SIZE, hang_after_s=30)
    return Watch(folder, spec, ProbeReader(folder / "probe"), align=align)


def hang_finding(watch: Watch) -> Finding:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if findings := watch.judge():
            return findings[0]
        time.sleep(0.2)
    raise AssertionError("no finding")


def assert_named(sentence: str, odd: int, comment: str) -> None:
    waiting, _, culprit = sentence.partition("; ")
    assert re.match(r"Ranks? 0.* waits? in all_reduce #13 \(3\.91 KiB, Float, desync\.py line ", waiting), sentence
    assert culprit.startswith(f"rank {odd} "), sentence
    if comment:
        (number,) = [number for number, line in enumerate(LINES, start=1) if line.endswith(f"# {comment}")]
        assert f"desync.py line {number} " in culprit, sentence


@pytest.mark.long
@pytest.mark.parametrize("desync", HANGS)
def test_a_hang_names_the_rank_its_call_and_its_line(folder: Path, desync: str) -> None:
    finding = hang_finding(watch_of(folder / desync))
    assert finding.kind == "hung"
    assert_named(finding.evidence, WORLD_SIZE - 1, HANGS[desync][1])
    assert " No rank has made a step for " in finding.evidence


@pytest.mark.parametrize("desync", FAILURES)
def test_a_failure_names_the_rank_its_call_and_its_line(folder: Path, desync: str) -> None:
    wait_for_left_records(folder / desync, 3 if desync == "exit" else 2)
    findings = {finding.kind: finding for finding in watch_of(folder / desync).judge_end()}
    assert_named(findings["collectives differ"].evidence, WORLD_SIZE - 1, FAILURES[desync][1])


def test_equal_ranks_are_not_accused(folder: Path) -> None:
    wait_for_left_records(folder / "none", 3)
    assert watch_of(folder / "none").judge_end() == []


def test_the_sockets_and_records_are_the_users_alone(folder: Path) -> None:
    wait_for_left_records(folder / "none", 3)
    served = lambda: {path: path.stat().st_mode & 0o777 for path in (folder / "extra" / "probe").glob("*.sock")}  # noqa: E731
    wait_for(lambda: [*served().values()] == [0o600] * WORLD_SIZE, "the sockets", PATIENCE_S)
    files = [*served(), *(folder / "none" / "probe").glob("*.collectives")]
    assert len(files) == 2 * WORLD_SIZE
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (folder / "extra" / "logs" / "rank0.err").read_text() == ""


def wait_for_left_records(folder: Path, count: int) -> None:
    """Wait until so many ranks have left a whole record."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        left = [path.read_bytes() for path in (folder / "probe").glob("*.collectives")]
        if sum(text.endswith(b"}") for text in left) >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{len(left)} of {count} ranks have left a record")
