"""Scripts that overwrite, truncate, rename and delete while they are copied: each copy is one version, or none."""

from __future__ import annotations

import hashlib
import io
import json
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
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from worker.checkpoints import watching
from worker.checkpoints.watching import CheckpointWatch

torch = pytest.importorskip("torch")
PIECE = 40_000
QUIET_S = 1000.0
"""Seconds of the script's clock: no test takes as long."""


@pytest.fixture(autouse=True)
def only_the_scripts_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "SETTLE_S", QUIET_S)


def saved(version: int, *, old: bool = False) -> bytes:
    buffer = io.BytesIO()
    state = {"w": torch.full((30_000,), float(version)), "version": version}
    torch.save(state, buffer, _use_new_zipfile_serialization=not old)
    return buffer.getvalue()


ZIPS = [saved(version) for version in range(5)]
OLD = [saved(version, old=True) for version in range(5)]
PICKLES = [pickle.dumps([version] * 50_000) for version in range(5)]


class Script:
    """Saves in a thread of its own. The watch goes by its clock, which stands still while it saves."""

    def __init__(self, work: Path) -> None:
        work.mkdir()
        self.work, self.ends = work, threading.Event()
        self.luck = random.Random(5)
        self.now, self.looks = 0.0, 0

    def rest(self) -> None:
        """Between two saves: mostly for long enough to be copied, and sometimes until the copy has begun."""
        time.sleep(0.02)  # file times advance
        for seconds in (QUIET_S / 10, self.luck.choice([QUIET_S / 10, 2 * QUIET_S])):
            looks = self.looks + self.luck.choice([1, 1, 2])
            self.now += seconds
            while self.looks < looks and not self.ends.wait(0.001):
                pass

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
        self.rest()
        path.unlink()

    def and_truncate(self, name: str, versions: list[bytes]) -> None:
        self._write(self.work / name, versions)
        self.rest()
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

    def folder(self, name: str, versions: list[bytes]) -> None:
        """As the HF Trainer does, its folder sometimes deleted before."""
        folder = self.work / name
        if self.luck.random() < 0.3:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        version = self.luck.choice(range(len(versions)))
        for member in ("optimizer.pt", "rng_state_0.pth", "rng_state_1.pth"):
            self._write(folder / member, [versions[version]])
        (folder / "trainer_state.json").write_text(f'{{"version": {version}}}')

    def train(self, habits: list[Habit]) -> None:
        while not self.ends.is_set():
            habit, name, versions = self.luck.choice(habits)
            getattr(self, habit)(name, versions)
            self.rest()


Habit = tuple[str, str, list[bytes]]
"""Method of `Script`, name of the file, its versions."""


@contextmanager
def training(tmp_path: Path, *habits: Habit) -> Iterator[tuple[Script, CheckpointWatch]]:
    script = Script(tmp_path / "work")
    watch = CheckpointWatch([script.work], tmp_path / "outbox", quiet_s=QUIET_S)
    thread = threading.Thread(target=script.train, args=(list(habits),))
    thread.start()
    try:
        yield script, watch
    finally:
        script.ends.set()
        thread.join()


def copies(watch: CheckpointWatch, now: float = 0.0, *, final: bool = False) -> list[tuple[str, bytes]]:
    """The name and the bytes of each new copy, which has the digest that it claims."""
    contents = []
    for copy in watch.step(now, final=final):
        contents.append((copy.name.removeprefix("work/"), copy.path.read_bytes()))
        assert hashlib.sha256(contents[-1][1]).hexdigest() == copy.sha256
        watch.done(copy)
    return contents


def next_copies(script: Script, watch: CheckpointWatch) -> list[tuple[str, bytes]]:
    script.looks += 1
    return copies(watch, script.now)


def test_every_copy_is_exactly_one_version_whatever_the_script_does(tmp_path: Path) -> None:
    habits = [
        ("in_place", "in-place.pt", ZIPS),
        ("in_place", "old.pt", OLD),
        ("in_place", "pickle.ckpt", PICKLES),
        ("by_rename", "renamed.pt", ZIPS),
        ("and_delete", "short-lived.pt", ZIPS),
        ("and_truncate", "truncated.pt", OLD),
        ("copied_with_its_time", "best.pt", ZIPS),
    ]
    names = {name for _, name, _ in habits} - {"short-lived.pt", "truncated.pt"}
    counts: Counter[str] = Counter()
    with training(tmp_path, *habits) as (script, watch):
        while any(counts[name] < 2 for name in names):
            for name, data in next_copies(script, watch):
                counts[name] += 1
                assert data in (*ZIPS, *OLD, *PICKLES), name
    for name, data in copies(watch, final=True):
        assert data in (*ZIPS, *OLD, *PICKLES), name


@pytest.mark.parametrize("versions", [ZIPS, OLD], ids=["zip", "old format"])
def test_a_file_written_over_from_its_front_is_never_mixed(tmp_path: Path, versions: list[bytes]) -> None:
    contents: list[bytes] = []
    with training(tmp_path, ("in_place_from_the_front", "front.pt", versions)) as (script, watch):
        while len(contents) < 5:
            contents += [data for _, data in next_copies(script, watch)]
    assert all(data in versions for data in contents)


def test_a_folder_is_copied_at_one_moment(tmp_path: Path) -> None:
    archives: list[bytes] = []
    with training(tmp_path, ("folder", "out/checkpoint-7", ZIPS)) as (script, watch):
        while len(archives) < 5:
            archives += [data for _, data in next_copies(script, watch)]
    for archive in archives:
        with tarfile.open(fileobj=io.BytesIO(archive)) as members:
            files = {member.name: members.extractfile(member) for member in members if member.isreg()}
            contents = {Path(name).suffix: file.read() for name, file in files.items() if file}
        version = json.loads(contents.pop(".json"))["version"]
        assert len(files) == 4 and set(contents.values()) == {ZIPS[version]}


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
    copied = 0
    for turn in range(6):
        work = tmp_path / str(turn) / "work"
        work.mkdir(parents=True)
        arguments = [sys.executable, "-c", KILLED, str(tmp_path / "content"), str(work / "last.pt")]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as script:
            assert script.stdout is not None and script.stdout.readline() == b"ready\n"
            time.sleep(0.004 + 0.005 * turn)
            script.send_signal(signal.SIGKILL)
        watch = CheckpointWatch([work], tmp_path / str(turn) / "outbox")
        contents = [data for _, data in copies(watch, final=True)]
        assert contents in ([], [content])
        if not contents and (work / "last.pt").exists():
            assert [checkpoint.name for checkpoint in watch.incomplete()] == ["work/last.pt"]
        copied += bool(contents)
    assert copied < 6
