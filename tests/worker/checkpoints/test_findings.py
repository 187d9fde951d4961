"""What was never whole is told once, with each file, its size and what is missing."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest

from worker.checkpoints.watching import KIND, NOT_TAKEN, CheckpointWatch, Unfinished, incomplete_findings


def test_nothing_unfinished_is_no_finding() -> None:
    assert incomplete_findings([]) == []


def test_one_finding_names_the_files_their_sizes_and_what_is_missing() -> None:
    left = [
        Unfinished("work/step_40.pt", 1234, "its end record is missing"),
        Unfinished("work/last.pt", 5, "it ends too early", has_earlier=True),
    ]
    [finding] = incomplete_findings(left)
    assert finding.kind == KIND
    assert finding.evidence == (
        "work/step_40.pt: 1234 bytes are there, and its end record is missing. "
        "work/last.pt: 5 bytes are there, and it ends too early. An earlier version of it was stored."
    )
    assert "was not stored" in finding.meaning and "os.replace" in finding.fix


def test_whole_checkpoint_that_could_not_be_copied_has_its_own_finding(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    with zipfile.ZipFile(tmp_path / "work/last.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"x")
    (tmp_path / "work/cut.pt").write_bytes(b"PK\x03\x04")
    watch = CheckpointWatch([tmp_path / "work"], tmp_path / "outbox", free_bytes=lambda _: 0)
    assert watch.step(0.0, final=True) == []
    cut, whole = incomplete_findings(watch.incomplete())
    assert (cut.kind, whole.kind) == (KIND, NOT_TAKEN)
    assert whole.evidence.endswith("bytes are there, and the node's disk has no space for a copy of it.")


def test_very_many_and_very_long_names_keep_it_readable() -> None:
    [finding] = incomplete_findings([Unfinished("x" * 4000, 1, "it is empty")] * 500)
    assert finding.evidence.endswith("And 490 more.") and len(finding.evidence) < 8000


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1288490188\n"
SAFETENSORS = json.dumps({"w": {"dtype": "U8", "shape": [90], "data_offsets": [0, 90]}}).encode()


@pytest.mark.parametrize(
    ("name", "data", "missing"),
    [
        ("a.pt", b"", "it is empty"),
        ("a.pt", b"PK\x03\x04" + b"x" * 50, "its end record is missing"),
        ("a.pt", b"\x80\x02}q\x00(X\x05", "it ends too early"),
        (
            "a.safetensors",
            struct.pack("<Q", len(SAFETENSORS)) + SAFETENSORS + b"x" * 10,
            f"its header promises {8 + len(SAFETENSORS) + 90} bytes",
        ),
        ("a.safetensors", struct.pack("<Q", 500) + b'{"w"', "its header is cut short"),
        (
            "step_5/__0_0.distcp",
            b"x",
            "its .metadata, which is written last, is missing or older than its shards",
        ),
        (
            "best.pt",
            LFS_POINTER,
            "it is a Git LFS pointer, a small text in place of the file: run `git lfs pull` in the checkout that it is "
            "from",
        ),
        (
            "best.safetensors",
            LFS_POINTER,
            "it is a Git LFS pointer, a small text in place of the file: run `git lfs pull` in the checkout that it is "
            "from",
        ),
        (
            "checkpoint-5/trainer_state.json.tmp",
            b"x",
            "trainer_state.json.tmp in it still has a temporary name",
        ),
    ],
)
def test_each_format_says_what_it_lacks(tmp_path: Path, name: str, data: bytes, missing: str) -> None:
    work = tmp_path / "work"
    (work / name).parent.mkdir(parents=True)
    (work / name).write_bytes(data)
    if "trainer_state" in name:
        (work / "checkpoint-5/trainer_state.json").write_bytes(b"{")
        (work / "checkpoint-5/model.safetensors").write_bytes(b"")
    watch = CheckpointWatch([work], tmp_path / "outbox")
    assert watch.step(0.0, final=True) == []
    assert [left.missing for left in watch.incomplete()] == [missing]
