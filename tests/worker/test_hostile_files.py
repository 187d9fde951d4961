"""Whatever the files of an attempt contain, each reader ends, and the attempt is complete with all other values."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from domain.spec import RunSpec
from tests.cli.importers.logged_runs import history, write_wandb
from tests.worker.fake_server import FakeServer
from tests.worker.sendings import upload_remaining
from worker.attempt.uploader import AttemptUploader
from worker.node.attempt_files import EXISTING_FILE
from worker.session.client import TaskRef
from worker.session.outbox import Outbox, send

DEPTH = 50_000
PLACES = [
    "work/runs/b/events.out.tfevents.2.host.2.0",
    "work/out/trainer_state.json",
    "work/out/checkpoint-5/trainer_state.json",
    "work/wandb/offline-run-1-abc/run-abc.wandb",
    "work/mlruns/0/abc/meta.yaml",
    "work/mlruns/0/abc/metrics/loss",
    "work/mlflow.db",
    "logs/rank0.out",
    "logs/rank0.err",
    "probe/rank0-7.jsonl",
    "probe/loggers/7.jsonl",
    "probe/loggers/runs-7.jsonl",
    "worker/hardware.jsonl",
    "hardware.jsonl",
    "work/model.safetensors",
    "work/out/model.safetensors.index.json",
    "work/out/model-00001-of-00002.safetensors",
    "work/last.pt",
    "work/out/.metadata",
    "error.json",
]
OWN_PLACES = [
    "worker/mirror.json",
    "worker/main-writer",
    "worker/writers.json",
    "worker/printed.json",
    "worker/loggers.json",
    "worker/losses.json",
    "worker/series.jsonl",
    "worker/omissions.json",
    "worker/points-set-aside.jsonl",
    "worker/.mirror.json.tmp",
    "probe/loggers/settings-0.jsonl",
    "outbox/taken.json",
]
"""Files that the worker itself writes."""
NUMBERS = ["1e400", "-1e400", "NaN", "1" + "0" * 400, "-1" + "0" * 5000, "9223372036854775808", "1e300", "-1"]
OTHERS = ["true", '"x"', "null", "[]", "{}", '"\\ud800"', "[1]"]
KEYS = (
    "step loss t log_history values rank phases events _step _timestamp kind step_time_s world_size weight_map "
    "data_offsets w \\ud800"
).split()
BEGINNINGS = [b":W&B\0\0\0", b"SQLite format 3\0", b"PK\x03\x04", b"\x80\x02", b"1 1 1\n", b"key: [" * 100]


def event_file(folder: Path) -> None:
    writer = EventFileWriter(str(folder))
    for step in range(5):
        value = Summary.Value(tag="healthy", simple_value=step)
        writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
    writer.close()


def nested(opening: str, closing: str, inner: str = "1") -> bytes:
    return (opening * DEPTH + inner + closing * DEPTH).encode()


DEEP = [
    nested("[", "]"),
    nested('{"a":', "}"),
    b"[" * DEPTH,
    nested('{"log_history":[{"step":1,"loss":', "}]}"),
]
values = st.sampled_from(NUMBERS + OTHERS)
records = st.dictionaries(st.sampled_from(KEYS), values, max_size=6).map(
    lambda record: ("{" + ",".join(f'"{key}":{value}' for key, value in record.items()) + "}").encode()
)
contents = st.one_of(
    st.binary(max_size=200),
    records,
    st.lists(records, max_size=3).map(lambda some: b'{"log_history":[' + b",".join(some) + b"]}"),
    st.lists(records, max_size=5).map(lambda some: b"".join(line + b"\n" for line in some)),
    records.map(lambda header: struct.pack("<Q", len(header)) + header + b"\0" * 32),
    st.sampled_from(DEEP),
    st.tuples(st.sampled_from(BEGINNINGS), st.binary(max_size=100)).map(b"".join),
)


class Attempt:
    """An attempt's directory with a healthy event file, whose processes have ended."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server = folder, FakeServer()
        for name in ("work", "logs", "worker"):
            (folder / name).mkdir(parents=True)
        (folder / EXISTING_FILE).parent.mkdir(parents=True, exist_ok=True)
        (folder / EXISTING_FILE).write_text("{}")
        os.utime(folder / EXISTING_FILE, (1, 1))
        event_file(folder / "work/runs/a")

    def write(self, place: str, content: bytes) -> None:
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def upload(self) -> list[str]:
        """Upload everything, as after the attempt's end; returns the findings' kinds."""
        uploader = AttemptUploader(self.folder, RunSpec(target="/a.py"), self.server, TaskRef(1, 0), "a/1")
        for _ in range(50):
            uploader.checkpoints.take(time.monotonic(), final=True)
            uploader.checkpoints.send(None, lambda: True)
            if not upload_remaining(uploader, self.server) and uploader.is_complete:
                return [finding.kind for finding in self.server.findings_of.get(1, [])]
        raise AssertionError("the attempt never ends")

    def check(self) -> None:
        assert [point[1] for point in self.server.series["healthy"]] == [0, 1, 2, 3, 4]
        json.dumps(self.server.series)


@pytest.mark.parametrize("place", PLACES)
def test_each_reader_survives_any_content(place, tmp_path_factory):
    @settings(max_examples=settings.default.max_examples // 5)
    @given(contents)
    def survives(content: bytes) -> None:
        attempt = Attempt(tmp_path_factory.mktemp("attempt", numbered=True) / "node0")
        attempt.write(place, content)
        attempt.upload()
        attempt.check()

    survives()


@pytest.mark.parametrize("content", DEEP)
@pytest.mark.parametrize("place", PLACES)
def test_each_reader_survives_depth(place, content, tmp_path):
    attempt = Attempt(tmp_path / "node0")
    attempt.write(place, content)
    attempt.upload()
    attempt.check()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_read_before", [True, False])
@pytest.mark.parametrize("place", [*PLACES, *OWN_PLACES, "probe/7.jsonl", "probe/loggers/9.jsonl"])
def test_no_reader_waits_for_a_pipe(place, is_read_before, tmp_path):
    """A script may put one where its file was: whoever opens it waits for a writer, and every other run with it."""
    attempt = Attempt(tmp_path / "node0")
    uploader = AttemptUploader(attempt.folder, RunSpec(target="/a.py"), attempt.server, TaskRef(1, 0), "a/1")
    if is_read_before:
        attempt.write(place, b'{"step": 1}\n')
        send(attempt.server, Outbox(uploader.upload(time.monotonic(), watched=True)))
        (attempt.folder / place).unlink(missing_ok=True)
    (attempt.folder / place).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(attempt.folder / place)
    send(attempt.server, Outbox(uploader.upload(time.monotonic() + 60, watched=True)))
    attempt.upload()
    attempt.check()


def test_deeply_nested_history_is_told(tmp_path):
    attempt = Attempt(tmp_path / "node0")
    attempt.write("work/out/trainer_state.json", DEEP[3])
    assert "not read" in attempt.upload()
    attempt.check()


def test_reader_with_a_defect_ends_alone(tmp_path, monkeypatch):
    """A fault that no content shows today: the stream ends with a finding all the same."""
    monkeypatch.setattr("worker.streams.printed_source.PrintedSource.read", lambda *_: 1 / 0)
    attempt = Attempt(tmp_path / "node0")
    attempt.write("logs/rank0.out", b"step 1: loss 2\n")
    assert "not read" in attempt.upload()
    attempt.check()


def test_copying_and_sending_with_a_defect_end_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("worker.checkpoints.watching.completeness", lambda path: 1 / 0)
    attempt = Attempt(tmp_path / "node0")
    attempt.write("work/last.pt", b"PK\x03\x04")
    assert "checkpoint not whole" in attempt.upload()
    attempt.check()


def test_damage_in_a_wandb_file_costs_one_row_and_is_told(tmp_path):
    pytest.importorskip("wandb")
    write_wandb(tmp_path / "whole" / "run-abc.wandb", [history(step, wandb_loss=step) for step in range(400)])
    content = bytearray((tmp_path / "whole" / "run-abc.wandb").read_bytes())
    content[7 + 4] ^= 0x40  # the length of the first record
    attempt = Attempt(tmp_path / "node0")
    attempt.write("work/wandb/offline-run-1-abc/run-abc.wandb", bytes(content))
    assert "event file damaged" in attempt.upload()
    attempt.check()
    assert [point[1] for point in attempt.server.series["wandb_loss"]] == [*range(1, 400)]
