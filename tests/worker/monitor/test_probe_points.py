"""The probe's records become points, sent once."""

from __future__ import annotations

import pytest

from tests.worker.monitor.probe_lines import FIGURES, line
from tests.worker.sendings import answering, done
from worker.monitor.probe_points import ProbeFiles
from worker.monitor.probe_reader import ProbeReader
from worker.session.failures import OffsetMismatch, RequestRefused, TooLarge
from worker.streams.omissions import Omissions
from worker.streams.point_uploader import PointStream, PointUploader


class Server:
    """Takes a batch only at the offset it has."""

    def __init__(self) -> None:
        self.offsets, self.points, self.fails = {}, {}, []

    def offset_of(self, path, generation):
        return self.offsets.get(path, 0)

    def send(self, batch):
        assert (batch.source, batch.generation) == ("probe", 0)
        if self.fails:
            raise self.fails.pop()
        if batch.start != self.offset_of(batch.path, 0):
            raise OffsetMismatch(self.offset_of(batch.path, 0))
        self.offsets[batch.path] = batch.end
        for name, points in batch.series.items():
            self.points.setdefault(name, []).extend(points)
        return batch.end


@pytest.fixture
def server():
    return Server()


def stream(folder, server):
    return PointStream(
        ProbeFiles(folder, server.offset_of).sources,
        PointUploader(answering(server.send), Omissions(folder.parent / "attempt")),
    )


def test_points_are_named_by_rank_and_rank_0_speaks_for_all(tmp_path, server):
    (tmp_path / "7.jsonl").write_text(line(peak_memory_bytes=1000, **FIGURES))
    (tmp_path / "8.jsonl").write_text(line(rank=1, pid=8, **FIGURES))
    done(stream(tmp_path, server).step())
    assert server.points == {
        "rank0/step_time_s": [(10, 0.25, 100.0)],
        "rank0/data_wait_s": [(10, 0.05, 100.0)],
        "rank0/peak_memory_bytes": [(10, 1000.0, 100.0)],
        "rank1/step_time_s": [(10, 0.25, 100.0)],
        "rank1/data_wait_s": [(10, 0.05, 100.0)],
        "steps_per_s": [(10, 4.0, 100.0)],
        "samples_per_s": [(10, 128.0, 100.0)],
    }


def test_rank_0_speaks_for_the_model_and_its_reduction_of_gradients(tmp_path, server):
    event = {"kind": "reduction", "model": 0, "step": 8, "buckets_bytes": [20, 4], "rebuilt": True}
    other = event | {"model": 1}
    (tmp_path / "7.jsonl").write_text(line(step=9, events=[event, other, {"kind": "exit"}]))
    (tmp_path / "8.jsonl").write_text(line(rank=1, pid=8, events=[event]))
    (tmp_path / "9.jsonl").write_text(
        line(step=9, pid=9, events=[{"kind": "parameters", "step": 0, "count": 7}], tokens_per_s=3.0)
    )
    done(stream(tmp_path, server).step())
    assert server.points.pop("model/parameters") == [(0, 7.0, 100.0)]
    assert server.points.pop("tokens_per_s") == [(9, 6.0, 100.0)]
    assert server.points == {
        "ddp/buckets": [(8, 2.0, 100.0)],
        "ddp/gradient_bytes": [(8, 24.0, 100.0)],
        "ddp/largest_bytes": [(8, 20.0, 100.0)],
        "ddp/rebuilt": [(8, 1.0, 100.0)],
    }


def test_rank_0_tells_the_first_samples_of_each_epoch(tmp_path, server):
    epochs = [{"kind": "epoch", "step": step, "digests": {"16": 3, "256": step + 7}} for step in (0, 40)]
    without = {"kind": "epoch", "step": 90, "digests": {}}
    (tmp_path / "7.jsonl").write_text(line(step=99, events=[*epochs, without]))
    (tmp_path / "8.jsonl").write_text(line(rank=1, pid=8, events=epochs))
    done(stream(tmp_path, server).step())
    assert server.points == {"data/first_256": [(0, 7.0, 100.0), (40, 47.0, 100.0)]}


def test_a_torn_tail_is_read_again_and_a_line_that_is_no_record_is_passed_over(tmp_path, server):
    first, second = line(**FIGURES), line(step=20, t=101.0, **FIGURES)
    path = tmp_path / "7.jsonl"
    path.write_text(first + '{"t": 1, "st\n[1]\n' + second[:30])
    running = stream(tmp_path, server)
    done(running.step())
    assert [step for step, _, _ in server.points["steps_per_s"]] == [10]
    path.write_text(first + '{"t": 1, "st\n[1]\n' + second)
    done(running.step())
    assert [step for step, _, _ in server.points["steps_per_s"]] == [10, 20]
    assert server.offsets == {"probe/7.jsonl": path.stat().st_size}


def test_points_arrive_once_whatever_fails(tmp_path, server):
    path = tmp_path / "7.jsonl"
    path.write_text(line(**FIGURES))
    server.fails = [ConnectionError()]
    running = stream(tmp_path, server)
    with pytest.raises(ConnectionError):
        done(running.step())
    done(running.step())
    with path.open("a") as file:
        file.write(line(step=20, **FIGURES))
    done(stream(tmp_path, server).step())  # the worker was restarted
    done(running.step())  # and the one before it was not quite dead
    assert [step for step, _, _ in server.points["steps_per_s"]] == [10, 20]


def test_points_the_server_refuses_do_not_hold_up_those_behind_them(tmp_path, server):
    (tmp_path / "7.jsonl").write_text(line(**FIGURES))
    server.fails = [RequestRefused("no")]
    running = stream(tmp_path, server)
    done(running.step())
    assert (server.points, list(server.offsets)) == ({}, ["probe/7.jsonl"])


def test_a_batch_that_is_too_large_is_sent_in_halves(tmp_path, server):
    path = tmp_path / "7.jsonl"
    path.write_text("".join(line(step=step, **FIGURES) for step in range(1, 9)))
    server.fails = [TooLarge("413"), TooLarge("413")]
    running = stream(tmp_path, server)
    for _ in range(4):
        done(running.step())
    assert [step for step, _, _ in server.points["steps_per_s"]] == list(range(1, 9))
    assert server.offsets == {"probe/7.jsonl": path.stat().st_size}


def test_an_offset_beyond_the_files_end_is_not_taken(tmp_path, server):
    (tmp_path / "7.jsonl").write_text(line(**FIGURES))
    server.fails = [OffsetMismatch(10**6)]
    running = stream(tmp_path, server)
    assert done(running.step()) == 0
    assert done(running.step()) == 1 and done(running.step()) == 0


def test_a_folder_that_does_not_exist_has_nothing(tmp_path, server):
    assert done(stream(tmp_path / "probe", server).step()) == 0
    reader = ProbeReader(tmp_path / "probe")
    reader.look()
    assert (reader.latest(), reader.records(), reader.median_step_s()) == ({}, {}, None)
