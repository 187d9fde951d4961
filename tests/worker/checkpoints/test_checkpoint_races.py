"""Scripts that overwrite, truncate, rename and delete while copies are taken: each copy is one version, or none."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from worker.checkpoints.watching import CheckpointCopy, CheckpointWatch

torch = pytest.importorskip("torch")
LIMIT_S = 60.0
PIECE = 40_000


def saved(version: int, *, old: bool = False) -> bytes:
    buffer = io.BytesIO()
    state = {"w": torch.full((30_000,), float(version)), "version": version}
    torch.save(state, buffer, _use_new_zipfile_serialization=not old)
    return buffer.getvalue()


ZIPS = [saved(version) for version in range(5)]
OLD = [saved(version, old=True) for version in range(5)]
PICKLES = [pickle.dumps([version] * 50_000) for version in range(5)]


class Script:
    """What writes below the working directory, in a thread of its own, until it is told to end."""

    def __init__(self, work: Path) -> None:
        self.work, self.ends = work, threading.Event()
        self.luck = random.Random(5)

    def in_place(self, name: str, versions: list[bytes]) -> None:
        """As `torch.save(state, path)` does."""
        self._write(self.work / name, versions)

    def in_place_from_the_front(self, name: str, versions: list[bytes]) -> None:
        """Without truncating first: an old end behind a new beginning."""
        path = self.work / name
        path.write_bytes(versions[0])
        data = self.luck.choice(versions)
        with path.open("r+b") as file:
            for at in range(0, len(data), PIECE):
                os.pwrite(file.fileno(), data[at : at + PIECE], at)
            file.truncate(len(data))

    def by_rename(self, name: str, versions: list[bytes]) -> None:
        self._write(self.work / f"{name}.tmp", versions)
        (self.work / f"{name}.tmp").replace(self.work / name)

    def and_delete(self, name: str, versions: list[bytes]) -> None:
        """Keeps only the last, as Lightning does."""
        path = self.work / f"{self.luck.randrange(10**6)}-{name}"
        self._write(path, versions)
        self.ends.wait(self.luck.choice([0, 0.02, 0.2]))
        path.unlink()

    def and_truncate(self, name: str, versions: list[bytes]) -> None:
        self._write(self.work / name, versions)
        self.ends.wait(self.luck.choice([0, 0.1]))
        os.truncate(self.work / name, self.luck.randrange(1000))

    def copied_with_its_time(self, name: str, versions: list[bytes]) -> None:
        """`shutil.copy2(last, best)` gives a new content an old time."""
        self._write(self.work / f"source-{name}", versions)
        shutil.copy2(self.work / f"source-{name}", self.work / name)

    def _write(self, path: Path, versions: list[bytes]) -> None:
        data = self.luck.choice(versions)
        with path.open("wb") as file:
            for at in range(0, len(data), PIECE):
                file.write(data[at : at + PIECE])
                file.flush()
                if self.luck.random() < 0.3:
                    time.sleep(0.002)

    def repeated(self, write: Callable[[str, list[bytes]], None], name: str, versions: list[bytes]) -> None:
        while not self.ends.is_set():
            write(name, versions)
            self.ends.wait(self.luck.choice([0, 0.01, 0.15, 0.6]))


@contextmanager
def writing(script: Script, *habits: tuple[str, str, list[bytes]]) -> Iterator[None]:
    threads = [
        threading.Thread(target=script.repeated, args=(getattr(script, habit), name, versions))
        for habit, name, versions in habits
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        script.ends.set()
        for thread in threads:
            thread.join()


def taken_bytes(watch: CheckpointWatch, *, final: bool = False) -> list[tuple[CheckpointCopy, bytes]]:
    """What is taken now, and handed over at once; the clock runs a little faster than the writers'."""
    found = [(one, one.path.read_bytes()) for one in watch.step(time.monotonic() * 4, final=final)]
    for snapshot, _ in found:
        watch.done(snapshot)
    return found


def test_every_copy_is_exactly_one_version_whatever_the_script_does(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    script, watch = Script(work), CheckpointWatch([work], tmp_path / "outbox", quiet_s=1.2)
    versions = {hashlib.sha256(data).hexdigest() for data in (*ZIPS, *OLD, *PICKLES)}
    habits = [
        ("in_place", "in-place.pt", ZIPS),
        ("in_place", "old.pt", OLD),
        ("in_place", "pickle.ckpt", PICKLES),
        ("by_rename", "renamed.pt", ZIPS),
        ("and_delete", "short-lived.pt", ZIPS),
        ("and_truncate", "truncated.pt", OLD),
        ("copied_with_its_time", "best.pt", ZIPS),
    ]
    taken: dict[str, int] = {}
    wanted = {name for _, name, _ in habits} - {"short-lived.pt", "truncated.pt", "pickle.ckpt"}
    with writing(script, *habits):
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until and any(taken.get(name, 0) < 3 for name in wanted):
            for snapshot, data in taken_bytes(watch):
                name = snapshot.name.rpartition("/")[2].rpartition("source-")[2]
                taken[name] = taken.get(name, 0) + 1
                assert hashlib.sha256(data).hexdigest() == snapshot.sha256
                assert snapshot.sha256 in versions, snapshot.name
    assert all(taken.get(name, 0) >= 3 for name in wanted), taken
    for snapshot, _ in taken_bytes(watch, final=True):
        assert snapshot.sha256 in versions, snapshot.name


@pytest.mark.parametrize("old", [False, True])
def test_a_file_written_over_from_its_front_is_never_mixed(tmp_path: Path, old: bool) -> None:
    versions = OLD if old else ZIPS
    work = tmp_path / "work"
    work.mkdir()
    script, watch = Script(work), CheckpointWatch([work], tmp_path / "outbox", quiet_s=1.2)
    sums = {hashlib.sha256(data).hexdigest() for data in versions}
    with writing(script, ("in_place_from_the_front", "front.pt", versions)):
        until, count = time.monotonic() + LIMIT_S, 0
        while count < 5 and time.monotonic() < until:
            for snapshot, _ in taken_bytes(watch):
                assert snapshot.sha256 in sums
                count += 1
    assert count >= 5


KILLED = """
import io, sys, time
content = open(sys.argv[1], "rb").read()
print("ready", flush=True)
while True:
    with open(sys.argv[2], "wb") as file:
        for at in range(0, len(content), 5000):
            file.write(content[at : at + 5000])
            file.flush()
            time.sleep(0.0005)
"""


@pytest.mark.parametrize("content", [ZIPS[1], OLD[1], PICKLES[1]], ids=["zip", "old format", "plain pickle"])
def test_after_a_kill_in_mid_save_there_is_a_whole_copy_or_none(tmp_path: Path, content: bytes) -> None:
    """At the end nothing is waited for, so the file itself must say whether it is whole."""
    (tmp_path / "content").write_bytes(content)
    taken = 0
    for turn in range(6):
        work = tmp_path / str(turn) / "work"
        work.mkdir(parents=True)
        arguments = [sys.executable, "-c", KILLED, str(tmp_path / "content"), str(work / "last.pt")]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as script:
            assert script.stdout is not None and script.stdout.readline() == b"ready\n"
            time.sleep(0.004 + 0.005 * turn)
            script.send_signal(signal.SIGKILL)
        watch = CheckpointWatch([work], tmp_path / str(turn) / "outbox")
        found = taken_bytes(watch, final=True)
        assert [data for _, data in found] in ([], [content])
        there = (work / "last.pt").exists()
        assert bool(found) or not there or [left.name for left in watch.incomplete()] == ["work/last.pt"]
        taken += bool(found)
    assert taken < 6


def test_a_folder_is_taken_at_one_moment_whatever_order_it_is_written_in(tmp_path: Path) -> None:
    work, ends = tmp_path / "work", threading.Event()
    watch = CheckpointWatch([work], tmp_path / "outbox", quiet_s=1.2)

    def train() -> None:
        luck, version = random.Random(3), 0
        while not ends.is_set():
            version += 1
            folder = work / "out/checkpoint-7"
            if luck.random() < 0.3:
                shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("optimizer.pt", "model.safetensors", "rng_state_0.pth", "rng_state_1.pth"):
                (folder / name).write_bytes(member(name, version))
                ends.wait(luck.choice([0, 0.001, 0.02]))
            (folder / "trainer_state.json").write_text(f'{{"version": {version}}}')
            ends.wait(luck.choice([0, 0.1, 0.7, 0.7]))

    writer = threading.Thread(target=train)
    writer.start()
    try:
        until, count = time.monotonic() + LIMIT_S, 0
        while count < 4 and time.monotonic() < until:
            for _, data in taken_bytes(watch):
                count += 1
                assert len(versions_in(data)) == 1
    finally:
        ends.set()
        writer.join()
    assert count >= 4


def member(name: str, version: int) -> bytes:
    if name.endswith(".safetensors"):
        header = b'{"w":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}'
        return len(header).to_bytes(8, "little") + header + version.to_bytes(8, "little")
    buffer = io.BytesIO()
    torch.save(version, buffer)
    return buffer.getvalue()


def versions_in(archive: bytes) -> set[int]:
    found = set()
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for each in members:
            file = members.extractfile(each)
            if file is not None and each.name.endswith((".pt", ".pth")):
                found.add(torch.load(file, weights_only=True))
            elif file is not None and each.name.endswith(".safetensors"):
                found.add(int.from_bytes(file.read()[-8:], "little"))
    return found
