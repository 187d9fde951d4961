"""Bytes that do not agree with their own checksums, or are not the run's own, are not taken."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

import pytest

from worker.checkpoints.examination import Examination
from worker.checkpoints.watching import KIND, LINKED, CheckpointWatch, incomplete_findings
from worker.node import processes

WRITER = """
import mmap, pathlib, sys
path, whole = map(pathlib.Path, sys.argv[1:])
data = whole.read_bytes()
with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
    pages[0:100] = data[0:100]  # from here on its time does not move
    print("writing", flush=True)
    sys.stdin.readline()
    pages[:] = data
    print("written", flush=True)
    sys.stdin.readline()
print("closed", flush=True)
sys.stdin.readline()
"""


class Writer:
    """A process of an attempt that fills a file through an open mmap, in steps."""

    def __init__(self, path: Path, whole: Path) -> None:
        self.run_id = uuid.uuid4().hex[:10]
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(whole)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={"RANKZERO_RUN_ID": self.run_id, "RANKZERO_ATTEMPT": "1", "RANKZERO_NODE_RANK": "0"},
        )  # fmt: skip
        self.hear("writing")

    def hear(self, word: str) -> None:
        assert self.process.stdout.readline().strip() == word

    def go_on(self, until: str) -> None:
        print(file=self.process.stdin, flush=True)
        self.hear(until)


@pytest.fixture
def writer(tmp_path):
    writers = []

    def begin(path: Path, data: bytes, so_far: bytes) -> Writer:
        whole = tmp_path / "whole"
        whole.write_bytes(data)
        path.write_bytes(so_far)
        os.utime(path, (1e9, 1e9))
        writers.append(Writer(path, whole))
        os.utime(path, (1e9, 1e9))  # as after the kernel has carried the first pages to the disk
        return writers[-1]

    yield begin
    for each in writers:
        each.process.kill()
        each.process.communicate()


@pytest.fixture
def work(tmp_path):
    (tmp_path / "node0/work").mkdir(parents=True)
    return tmp_path / "node0/work"


def watch_over(work: Path, **options) -> CheckpointWatch:
    return CheckpointWatch([work], work.parent / "outbox", free_bytes=lambda _: 1 << 40, **options)


def zip_file(path: Path, size: int = 50_000, method: int = zipfile.ZIP_STORED) -> bytes:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}.")
        archive.writestr("a/data/0", os.urandom(size))
    return path.read_bytes()


def has_right_checksums(path: Path) -> bool:
    return Examination(path, beside=False).sha256() is not None


def half_written(data: bytes) -> bytes:
    """Its first and last bytes are there, the middle is still empty."""
    middle = len(data) // 2
    return data[: middle - 5000] + bytes(10_000) + data[middle + 5000 :]


def test_a_zip_that_is_written_through_an_open_mmap_is_taken_when_its_sums_agree(work, writer, tmp_path):
    data = zip_file(tmp_path / "a.zip")
    scribe = writer(work / "step_7.pt", data, half_written(data))
    watch = watch_over(work)
    assert [watch.step(now) for now in (10.0, 20.0, 90.0)] == [[], [], []]
    assert list((work.parent / "outbox").glob("*.part")) == []
    scribe.go_on("written")
    [taken] = watch.step(1000.0) or watch.step(2000.0)
    assert taken.path.read_bytes() == data


def test_checkpoint_without_checksums_is_taken_once_no_process_maps_it(work, writer):
    text = json.dumps({"w": {"dtype": "U8", "shape": [50_000], "data_offsets": [0, 50_000]}}).encode()
    data = struct.pack("<Q", len(text)) + text + os.urandom(50_000)
    scribe = writer(work / "model_7.safetensors", data, half_written(data))
    mine = lambda path: processes.have_mapped(processes.of_attempt(scribe.run_id, 1, 0), path)  # noqa: E731
    watch = watch_over(work, is_mapped=mine)
    assert [watch.step(now) for now in (10.0, 20.0, 90.0)] == [[], [], []]
    scribe.go_on("written")
    assert watch.step(1000.0) == []
    scribe.go_on("closed")
    [taken] = watch.step(2000.0) or watch.step(3000.0)
    assert taken.path.read_bytes() == data


def test_checkpoint_that_never_matched_its_checksums_is_reported_at_the_end(work, tmp_path):
    (work / "last.pt").write_bytes(half_written(zip_file(tmp_path / "a.zip")))
    watch = watch_over(work)
    assert watch.step(0.0, final=True) == []
    [finding] = incomplete_findings(watch.incomplete())
    assert finding.kind == KIND and "does not match the checksums in it" in finding.evidence


def test_any_changed_bit_of_a_member_is_seen(tmp_path):
    data = bytearray(zip_file(tmp_path / "a.pt", 300))
    assert has_right_checksums(tmp_path / "a.pt")
    begins = data.find(b"a/data/0") + len(b"a/data/0")
    for at in range(begins, begins + 300):
        data[at] ^= 1
        (tmp_path / "a.pt").write_bytes(data)
        assert not has_right_checksums(tmp_path / "a.pt"), at
        data[at] ^= 1


def test_members_that_lie_upon_each_other_are_not_read_again_and_again(tmp_path):
    data = bytearray(zip_file(tmp_path / "a.pt", 300))
    entry = data.find(b"PK\x01\x02", data.find(b"PK\x01\x02") + 1)
    data[entry + 20 : entry + 28] = struct.pack("<2L", len(data), len(data))
    (tmp_path / "a.pt").write_bytes(data)
    assert not has_right_checksums(tmp_path / "a.pt")


def test_a_member_before_the_files_beginning_does_not_match(tmp_path):
    data = bytearray(zip_file(tmp_path / "a.pt", 300))
    end = data.rindex(b"PK\x05\x06")
    data[end + 16 : end + 20] = struct.pack("<L", 10**6)  # where the directory is said to begin
    (tmp_path / "a.pt").write_bytes(data)
    assert not has_right_checksums(tmp_path / "a.pt")


@pytest.mark.parametrize("has_sums", [True, False])
def test_checkpoint_of_torch_matches_also_without_checksums(tmp_path, has_sums):
    torch = pytest.importorskip("torch")
    torch.serialization.set_crc32_options(has_sums)
    try:
        torch.save({"w": torch.arange(1000.0)}, tmp_path / "a.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert has_right_checksums(tmp_path / "a.pt")


def test_a_compressed_zip_and_other_files_are_no_matter_of_sums(tmp_path):
    zip_file(tmp_path / "a.pt", method=zipfile.ZIP_DEFLATED)
    assert has_right_checksums(tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(b"\x80\x02}.")
    assert has_right_checksums(tmp_path / "b.pt")


def test_a_file_in_a_folder_is_held_to_its_sums_too(work, tmp_path):
    folder = work / "checkpoint-7"
    folder.mkdir()
    data = zip_file(tmp_path / "a.zip")
    (folder / "optimizer.pt").write_bytes(half_written(data))
    (folder / "trainer_state.json").write_text("{}")
    watch = watch_over(work, quiet_s=0)
    assert [watch.step(now) for now in (10.0, 20.0)] == [[], []]
    (folder / "optimizer.pt").write_bytes(data)
    watch.step(1000.0)
    [taken] = watch.step(2000.0) or watch.pending()
    assert taken.name == "work/checkpoint-7.tar"


def test_a_hard_link_to_a_file_outside_is_not_taken_but_told(work, tmp_path):
    secret = tmp_path / "shadow"
    secret.write_bytes(b"root:x:0:")
    (work / "x.pt").hardlink_to(secret)
    watch = watch_over(work)
    assert [watch.step(now) for now in (0.0, 60.0)] == [[], []]
    assert watch.step(100.0, final=True) == []
    [finding] = incomplete_findings(watch.incomplete())
    assert finding.kind == LINKED
    assert finding.evidence == "work/x.pt is a hard link to a file outside the run's directory."


def test_hard_links_within_the_run_are_taken_like_any_file(work, tmp_path):
    (work / "models/.best").mkdir(parents=True)
    zip_file(work / "epoch=3.ckpt")
    (work / "last.ckpt").hardlink_to(work / "epoch=3.ckpt")
    (work / "models/.best/weights").hardlink_to(work / "epoch=3.ckpt")
    taken = watch_over(work).step(0.0, final=True)
    assert sorted(one.name for one in taken) == ["work/epoch=3.ckpt", "work/last.ckpt"]


def test_a_folder_with_a_hard_link_to_a_file_outside_is_not_taken(work, tmp_path):
    folder = work / "checkpoint-7"
    folder.mkdir()
    zip_file(folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text("{}")
    (tmp_path / "shadow").write_bytes(b"root:x:0:")
    (folder / "notes.txt").hardlink_to(tmp_path / "shadow")
    watch = watch_over(work)
    assert watch.step(0.0, final=True) == []
    assert [finding.kind for finding in incomplete_findings(watch.incomplete())] == [LINKED]
