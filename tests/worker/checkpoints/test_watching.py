"""Checkpoints are taken whole and as they were, or not at all; none twice, none forgotten."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import struct
import time
import zipfile
from pathlib import Path

import pytest

from domain.messages import CheckpointOffer
from worker.checkpoints.formats import Completeness, completeness, step_of
from worker.checkpoints.upload import CheckpointUploader
from worker.checkpoints.watching import CheckpointCopy, CheckpointWatch
from worker.node.run_files import Listing, is_checkpoint_name, remember_existing
from worker.session.answers import CheckpointUpload
from worker.session.client import Client, TaskRef
from worker.session.failures import TooLarge


def zip_bytes(size: int = 1000, comment: bytes = b"") -> bytes:
    """What torch.save writes: a zip without compression."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + os.urandom(size))
        archive.comment = comment
    return buffer.getvalue()


def safetensors_bytes(values: int = 10) -> bytes:
    header = {
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "F32", "shape": [values], "data_offsets": [0, 4 * values]},
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(4 * values)


class Node:
    """An attempt's directory and a watch over it, with a clock of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.dir = tmp_path / "data/runs/abcdefghij/attempts/1/node0"
        self.work, self.outbox, self.now = self.dir / "work", self.dir / "outbox", 100.0
        self.work.mkdir(parents=True)
        self.restart_worker()

    def restart_worker(self, root: Path | None = None, ignore: Listing | None = None, free: int = 1 << 40) -> None:
        self.free = free
        self.watch = CheckpointWatch(
            [root or self.work], self.outbox, quiet_s=5, ignore=ignore, free_bytes=lambda _path: self.free
        )

    def write(self, name: str, data: bytes, age_s: float = 60.0) -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        written = time.time() - age_s
        os.utime(path, (written, written))
        return path

    def after(self, seconds: float, *, final: bool = False) -> list[CheckpointCopy]:
        self.now += seconds
        return self.watch.step(self.now, final=final)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("step_00000120.pt", zip_bytes()),
        ("a.pth", zip_bytes(comment=b"made by hand")),
        ("checkpoint.pth.tar", zip_bytes()),
        ("epoch=3-step=120.ckpt", zip_bytes()),
        ("checkpoint-120/model.safetensors", safetensors_bytes()),
        ("pytorch_model.bin", zip_bytes()),
    ],
)
def test_a_whole_file_is_copied_with_its_sum(node: Node, name: str, data: bytes) -> None:
    path = node.write(name, data)
    [taken] = node.after(1)
    assert taken.name == f"work/{name}"
    assert taken.path.read_bytes() == data and taken.path.parent == node.outbox
    assert (taken.size_bytes, taken.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert taken.written_at == pytest.approx(path.stat().st_mtime)
    assert node.watch.pending() == [taken]


def test_real_files_of_torch_and_safetensors_are_recognised(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for number, legacy in enumerate((False, True)):
        path = tmp_path / f"{number}.pt"
        torch.save({"w": torch.ones(3)}, path, _use_new_zipfile_serialization=not legacy)
        assert completeness(path) is Completeness.COMPLETE


@pytest.mark.parametrize(("name", "whole"), [("a.pt", zip_bytes(300)), ("a.safetensors", safetensors_bytes(50))])
def test_no_part_of_a_file_counts_as_whole(tmp_path: Path, name: str, whole: bytes) -> None:
    path = tmp_path / name
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert completeness(path) in (Completeness.INCOMPLETE, Completeness.UNKNOWN), cut
        assert cut < 4 or completeness(path) is Completeness.INCOMPLETE
    path.write_bytes(whole)
    assert completeness(path) is Completeness.COMPLETE


@pytest.mark.parametrize("header", [b"[]", b'{"w": 1}', b'{"w": {"data_offsets": []}}', b"\xff\xfe", b"[" * 5000])
def test_a_strange_safetensors_header_is_not_whole(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    assert completeness(path) is Completeness.INCOMPLETE


def test_a_file_without_an_end_mark_is_taken_when_it_is_quiet(node: Node) -> None:
    node.write("old_style.pt", pickle.dumps("raw"))
    assert node.after(1) == []
    assert node.after(4) == []
    node.write("old_style.pt", pickle.dumps("raw, longer"))
    assert node.after(4) == []
    [taken] = node.after(6)
    assert taken.path.read_bytes() == pickle.dumps("raw, longer")


def test_at_the_end_nothing_is_waited_for(node: Node) -> None:
    node.write("old_style.pt", pickle.dumps("raw"), age_s=0)
    node.write("last.pt", zip_bytes(), age_s=0)
    assert len(node.after(0, final=True)) == 2
    assert node.after(0, final=True) == []


def test_a_file_written_this_moment_is_looked_at_twice(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    path = node.write("last.pt", zip_bytes(), age_s=0)
    written = path.stat().st_mtime
    monkeypatch.setattr(time, "time", lambda: written)
    assert node.after(1) == []
    assert len(node.after(1.1)) == 1


@pytest.mark.parametrize(
    "name",
    [
        "a.pt.tmp",
        "a.tmp.pt",
        ".a.pt",
        "tmp123.pt",
        "a.part.ckpt",
        "a.pt~",
        "notes.txt",
        "a.incomplete.safetensors",
    ],
)
def test_temporary_and_other_names_do_not_count(node: Node, name: str) -> None:
    assert not is_checkpoint_name(name)
    node.write(name, zip_bytes())
    assert node.after(1) == []


def test_a_tokenized_data_set_is_not_a_checkpoint(node: Node) -> None:
    node.write("data/train.bin", os.urandom(8) + b"\1" * 1000)
    assert node.after(10) == [] and node.after(10, final=True) == []
    assert node.watch.incomplete() == []


def test_nothing_is_taken_twice_and_a_new_version_is_taken_again(node: Node) -> None:
    node.write("last.pt", zip_bytes())
    assert len(node.after(1)) == 1
    assert node.after(10) == []
    node.write("last.pt", zip_bytes(2000), age_s=30)
    [second] = node.after(10)
    assert [one.name for one in node.watch.pending()] == ["work/last.pt"] * 2
    assert node.watch.pending()[-1] == second


def test_watcher_keeps_the_version_being_sent_and_the_newest(node: Node) -> None:
    taken = []
    for version in range(5):
        node.write("last.pt", zip_bytes(100 + version), age_s=90 - version)
        node.write(f"step_{version}.pt", zip_bytes(), age_s=90 - version)
        taken += [one for one in node.after(10) if one.name == "work/last.pt"]
    assert [one for one in node.watch.pending() if one.name == "work/last.pt"] == [taken[0], taken[4]]
    assert [one.path.exists() for one in taken] == [True, False, False, False, True]
    assert len(node.watch.pending()) == 7
    node.restart_worker()
    assert len(node.watch.pending()) == 7


def test_older_checkpoint_counts_once_it_changes(node: Node, tmp_path: Path) -> None:
    project = tmp_path  # the data directory lies inside the user's own project
    (project / "pretrained.pt").write_bytes(zip_bytes())
    node.write("another_attempts.pt", zip_bytes())
    existing = json.loads(json.dumps(remember_existing(project)))
    node.restart_worker(root=project, ignore=existing)
    assert node.after(1) == []
    (project / "pretrained.pt").write_bytes(zip_bytes(2000))
    os.utime(project / "pretrained.pt", (1e9, 1e9))
    [taken] = node.after(10)
    assert taken.name == "workdir/pretrained.pt"


def test_links_are_not_followed(node: Node, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.pt").write_bytes(zip_bytes())
    (node.work / "data").symlink_to(tmp_path / "elsewhere")
    (node.work / "b.pt").symlink_to(tmp_path / "elsewhere/a.pt")
    assert node.after(1) == [] and node.after(10, final=True) == []


def test_a_restarted_worker_offers_again_what_was_not_acknowledged(node: Node) -> None:
    node.write("step_1.pt", zip_bytes(), age_s=90)
    node.write("step_2.pt", zip_bytes(), age_s=80)
    node.after(1)
    first, second = node.watch.pending()
    node.watch.done(first)
    assert not first.path.exists()
    node.restart_worker()
    assert node.watch.pending() == [second]
    assert node.after(10) == []


def test_a_copy_lost_or_cut_while_no_worker_ran_is_made_again(node: Node) -> None:
    node.write("step_1.pt", zip_bytes())
    [taken] = node.after(1)
    taken.path.write_bytes(b"cut")
    (node.outbox / "0123.part").write_bytes(b"of a killed worker")
    node.restart_worker()
    assert node.watch.pending() == []
    assert [one.sha256 for one in node.after(1)] == [taken.sha256]
    assert sorted(path.name for path in node.outbox.glob("*.part")) == []


def test_notes_that_cannot_be_read_cost_a_second_copy_and_no_more(node: Node) -> None:
    node.write("step_1.pt", zip_bytes())
    node.after(1)
    (node.outbox / "taken.json").write_text('{"taken": [')
    node.restart_worker()
    assert len(node.after(1)) == 1


def test_a_forgotten_copy_is_taken_again(node: Node) -> None:
    node.write("step_1.pt", zip_bytes())
    [taken] = node.after(1)
    node.watch.forget(taken)
    assert not taken.path.exists()
    assert [one.sha256 for one in node.after(10)] == [taken.sha256]


def test_a_nearly_full_disk_is_said_and_tried_again(node: Node) -> None:
    node.free = 1000
    node.write("step_1.pt", zip_bytes())
    assert node.after(1) == []
    assert "Too little disk space to copy checkpoint work/step_1.pt" in (node.watch.notice or "")
    node.free = 1 << 40
    assert len(node.after(10)) == 1
    assert node.watch.notice is None


def test_a_nearly_full_disk_is_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.free = 1000
    node.write("step_1.pt", zip_bytes())
    uploader = CheckpointUploader(node.watch, Client("http://127.0.0.1:9", "token"), TaskRef(7, 0, "a/1/x"), "one")
    for now in (0.0, 100.0, 200.0):
        uploader.take(now, final=False)
    assert caplog.text.count("Too little disk space") == 1


class Refusing(Client):
    """A client whose server takes no checkpoint."""

    def offer_checkpoint(self, task: TaskRef, offer: CheckpointOffer) -> CheckpointUpload:
        raise TooLarge("it is too large")


def test_a_restarted_worker_knows_what_the_server_refused_until_it_is_stored(node: Node) -> None:
    def uploader() -> CheckpointUploader:
        return CheckpointUploader(node.watch, Refusing("http://127.0.0.1:9", "token"), TaskRef(7, 0, "a/1/x"), "one")

    node.write("step_1.pt", zip_bytes())
    node.after(1)
    uploader().send(None, lambda: True)
    assert node.watch.pending() == []
    node.restart_worker()
    assert uploader().refusals == ["checkpoint work/step_1.pt was refused: it is too large"]
    node.write("step_1.pt", zip_bytes(500))
    [smaller] = node.after(10)
    node.watch.stored(smaller)
    assert uploader().refusals == []
    node.restart_worker()
    assert uploader().refusals == []


def test_a_file_changed_while_it_is_copied_is_not_taken(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    path = node.write("last.pt", zip_bytes(5000))
    monkeypatch.setattr("worker.checkpoints.copies._PIECE_BYTES", 1000)
    copy_piece, pieces = os.copy_file_range, []

    def slow_copy(*arguments: int) -> int:
        pieces.append(arguments)
        if len(pieces) == 2:
            path.write_bytes(zip_bytes(5000))  # the same size, in place
        return copy_piece(*arguments)

    monkeypatch.setattr(os, "copy_file_range", slow_copy)
    assert node.after(1) == []
    assert list(node.outbox.iterdir()) == []
    os.utime(path, (1e9, 1e9))
    [taken] = node.after(10)
    assert taken.path.read_bytes() == path.read_bytes()


def test_a_file_deleted_while_it_is_copied_is_still_taken_whole(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    data = zip_bytes(5000)
    path = node.write("last.pt", data)
    monkeypatch.setattr("worker.checkpoints.copies._PIECE_BYTES", 1000)
    copy_piece = os.copy_file_range

    def copy_and_delete(*arguments: int) -> int:
        path.unlink(missing_ok=True)
        return copy_piece(*arguments)

    monkeypatch.setattr(os, "copy_file_range", copy_and_delete)
    [taken] = node.after(1)
    assert taken.path.read_bytes() == data


def test_copying_works_where_the_kernel_cannot_do_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: int) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    data = zip_bytes(100_000)
    node.write("last.pt", data)
    [taken] = node.after(1)
    assert taken.path.read_bytes() == data


def test_file_of_a_kill_in_mid_save_is_named(node: Node) -> None:
    node.write("step_1.pt", zip_bytes()[:-30])
    node.write("step_2.pt", zip_bytes())
    assert len(node.after(1, final=True)) == 1
    [left] = node.watch.incomplete()
    assert (left.name, left.missing) == ("work/step_1.pt", "its end record is missing")
    assert not left.has_earlier


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("work/step_00000120.pt", 120),
        ("work/checkpoint-120/model.safetensors", 120),
        ("work/checkpoints/epoch=3-step=120.ckpt", 120),
        ("work/checkpoints/epoch=3-step=120-v1.ckpt", 120),
        ("work/global_step80/mp_rank_00_model_states.pt", 80),
        ("work/ckpt_000500.pth", 500),
        ("work/iter_7.pt", 7),
        ("work/Step-9.pt", 9),
        ("work/last.pt", None),
        ("work/best_epoch_3.pt", None),
        ("work/model-00001-of-00003.safetensors", None),
        ("work/footstep3.pt", None),
        ("work/step_1.5.pt", None),
        ("work/step_5/logs/last.pt", None),
    ],
)
def test_the_step_is_read_from_the_name(name: str, step: int | None) -> None:
    assert step_of(name) == step
