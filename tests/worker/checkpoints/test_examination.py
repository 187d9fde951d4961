"""Large copies are examined beside the trainings: as strictly as others, and at once when the attempt has ended."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.worker.checkpoints.checkpoint_node import Node
from worker.checkpoints import examination, sums
from worker.checkpoints.examination import Examination
from worker.checkpoints.watching import CheckpointCopy
from worker.node.processes import AUTOGROUP

SIZE = 3 * sums.READ_BYTES
STAND_STILL = "import sys, time; time.sleep(3600)"


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "LARGE_BYTES", 0)


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program gets no processor time at all."""
    (tmp_path / "stuck.py").write_text(STAND_STILL)
    monkeypatch.setattr(sums, "__file__", str(tmp_path / "stuck.py"))
    monkeypatch.setattr("worker.checkpoints.watching.MOSTLY_EXAMINED_S", 0.0)
    monkeypatch.setattr(examination, "PATIENCE_S", 3600.0)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def zip_bytes(members: int = 5) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(members):
            archive.writestr(f"archive/data/{number}", os.urandom(SIZE // members + number))
    return buffer.getvalue()


def sooner_or_later(node: Node, seconds: float = 1) -> list[CheckpointCopy]:
    """What it takes once a look has found something."""
    give_up_at = time.monotonic() + 300
    while time.monotonic() < give_up_at:
        if taken := node.look(seconds):
            return taken
        time.sleep(0.01)
    raise AssertionError("nothing was taken")


def test_a_large_copy_is_returned_once_it_was_read_beside(node: Node) -> None:
    data = zip_bytes()
    node.write(**{"a.pt": data})
    [copy] = sooner_or_later(node)
    assert (copy.sha256, copy.path.read_bytes()) == (hashlib.sha256(data).hexdigest(), data)
    assert (node.look(10), [path.name for path in (node.dir / "outbox").glob("*.part")]) == ([], [])


@pytest.mark.parametrize("at", [100, SIZE // 2, SIZE - 100])
def test_a_large_copy_with_a_changed_bit_is_not_taken_beside(tmp_path: Path, at: int) -> None:
    data = bytearray(zip_bytes())
    data[at] ^= 1
    (tmp_path / "a.pt").write_bytes(data)
    beside = Examination(tmp_path / "a.pt", beside=True)
    assert beside.is_over(60) and beside.sha256() is None


@pytest.mark.usefixtures("stuck")
def test_while_one_is_examined_it_is_not_copied_again_and_others_are(node: Node) -> None:
    node.write(**{"a.pt": zip_bytes()})
    assert node.settle() == []
    node.write(**{"a.pt": zip_bytes(), "b.pt": zip_bytes()})
    assert node.settle() == []
    assert len([*(node.dir / "outbox").glob("*.part")]) == 2
    taken = node.look(final=True)
    assert sorted(copy.name for copy in taken) == ["work/a.pt", "work/a.pt", "work/b.pt"]
    assert node.watch.incomplete() == []


@pytest.mark.usefixtures("stuck")
def test_trainings_that_use_all_cores_do_not_hold_up_a_checkpoint_for_long(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "PATIENCE_S", 0.2)
    data = zip_bytes()
    node.write(**{"a.pt": data})
    [copy] = sooner_or_later(node)
    assert copy.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.usefixtures("stuck")
def test_a_program_that_was_killed_has_its_work_done_at_once(tmp_path: Path) -> None:
    data = zip_bytes()
    (tmp_path / "a.pt").write_bytes(data)
    beside = Examination(tmp_path / "a.pt", beside=True)
    assert beside._program is not None
    beside._program.send_signal(signal.SIGKILL)
    assert beside.is_over(300) and beside.sha256() == hashlib.sha256(data).hexdigest()


def look_of(program: str) -> str:
    argv = [sys.executable, "-c", program, str(Path(sums.__file__).parent)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, start_new_session=True).stdout


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel does not divide the cores by session")
def test_the_program_yields_the_processors_and_the_disk() -> None:
    told = look_of(
        "import os, sys; sys.path.insert(0, sys.argv[1]); import sums; sums.yield_to_others();"
        "print(os.sched_getscheduler(0) == os.SCHED_IDLE, os.nice(0), open('/proc/self/autogroup').read())"
    )
    assert told.split()[:2] == ["True", "19"] and told.split()[-1] == "19"


def test_stretches_that_touch_overlap_or_reach_past_the_end_have_their_own_sums(tmp_path: Path) -> None:
    data = os.urandom(SIZE)
    (tmp_path / "a").write_bytes(data)
    edges = [(0, SIZE), (5, 5), (7, sums.READ_BYTES), (sums.READ_BYTES, SIZE), (10, SIZE - 1)]
    right = [(begin, end, sums.zlib.crc32(data[begin:end])) for begin, end in edges]
    assert sums.sha256_of(tmp_path / "a", right, lambda: None) == hashlib.sha256(data).hexdigest()
    for wrong in range(len(right)):
        changed = [(b, e, crc ^ (number == wrong)) for number, (b, e, crc) in enumerate(right)]
        assert sums.sha256_of(tmp_path / "a", changed, lambda: None) is None
    assert sums.sha256_of(tmp_path / "a", [(0, SIZE + 1, 1)], lambda: None) is None
