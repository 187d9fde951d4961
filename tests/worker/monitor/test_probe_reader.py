"""What the probe wrote is read whole, sent once, and judged: hangs and silent mistakes by tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from worker.monitor.hangs import PythonFrame, RankStatus, hang_verdict, ranks_behind, users_frame
from worker.monitor.probe_reader import ProbeFiles, ProbeReader, parse_stack
from worker.monitor.silent_mistakes import RankRecord, silent_mistakes
from worker.session.failures import OffsetMismatch, RequestRefused, TooLarge
from worker.streams.omissions import Omissions
from worker.streams.point_uploader import PointStream, PointUploader


def line(rank=0, step=10, t=100.0, pid=7, world_size=2, **more) -> str:
    return (
        json.dumps({"t": t, "rank": rank, "world_size": world_size, "pid": pid, "step": step} | more) + "\n"
    )


FIGURES = {"steps_per_s": 4.0, "step_time_s": 0.25, "data_wait_s": 0.05, "samples_per_s": 64.0}


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
        PointUploader(server.send, Omissions(folder.parent / "attempt")),
    )


# -- points -------------------------------------------------------------------------------------


def test_points_are_named_by_rank_and_rank_0_speaks_for_all(tmp_path, server):
    (tmp_path / "7.jsonl").write_text(line(peak_memory_bytes=1000, **FIGURES))
    (tmp_path / "8.jsonl").write_text(line(rank=1, pid=8, **FIGURES))
    stream(tmp_path, server).step()
    assert server.points == {
        "rank0/step_time_s": [(10, 0.25, 100.0)],
        "rank0/data_wait_s": [(10, 0.05, 100.0)],
        "rank0/peak_memory_bytes": [(10, 1000.0, 100.0)],
        "rank1/step_time_s": [(10, 0.25, 100.0)],
        "rank1/data_wait_s": [(10, 0.05, 100.0)],
        "steps_per_s": [(10, 4.0, 100.0)],
        "samples_per_s": [(10, 128.0, 100.0)],
    }


def test_a_torn_tail_is_read_again_and_a_line_that_is_no_record_is_passed_over(tmp_path, server):
    first, second = line(**FIGURES), line(step=20, t=101.0, **FIGURES)
    path = tmp_path / "7.jsonl"
    path.write_text(first + '{"t": 1, "st\n[1]\n' + second[:30])
    running = stream(tmp_path, server)
    running.step()
    assert [step for step, _, _ in server.points["steps_per_s"]] == [10]
    path.write_text(first + '{"t": 1, "st\n[1]\n' + second)
    running.step()
    assert [step for step, _, _ in server.points["steps_per_s"]] == [10, 20]
    assert server.offsets == {"probe/7.jsonl": path.stat().st_size}


def test_points_arrive_once_whatever_fails(tmp_path, server):
    path = tmp_path / "7.jsonl"
    path.write_text(line(**FIGURES))
    server.fails = [ConnectionError()]
    running = stream(tmp_path, server)
    with pytest.raises(ConnectionError):
        running.step()
    running.step()
    with path.open("a") as file:
        file.write(line(step=20, **FIGURES))
    stream(tmp_path, server).step()  # the worker was restarted
    running.step()  # and the one before it was not quite dead
    assert [step for step, _, _ in server.points["steps_per_s"]] == [10, 20]


def test_points_the_server_refuses_do_not_hold_up_those_behind_them(tmp_path, server):
    (tmp_path / "7.jsonl").write_text(line(**FIGURES))
    server.fails = [RequestRefused("no")]
    running = stream(tmp_path, server)
    running.step()
    assert (server.points, list(server.offsets)) == ({}, ["probe/7.jsonl"])


def test_a_batch_that_is_too_large_is_sent_in_halves(tmp_path, server):
    path = tmp_path / "7.jsonl"
    path.write_text("".join(line(step=step, **FIGURES) for step in range(1, 9)))
    server.fails = [TooLarge("413"), TooLarge("413")]
    running = stream(tmp_path, server)
    for _ in range(4):
        running.step()
    assert [step for step, _, _ in server.points["steps_per_s"]] == list(range(1, 9))
    assert server.offsets == {"probe/7.jsonl": path.stat().st_size}


def test_an_offset_beyond_the_files_end_is_not_taken(tmp_path, server):
    (tmp_path / "7.jsonl").write_text(line(**FIGURES))
    server.fails = [OffsetMismatch(10**6)]
    running = stream(tmp_path, server)
    assert running.step() == 0
    assert running.step() == 1 and running.step() == 0


def test_a_folder_that_does_not_exist_has_nothing(tmp_path, server):
    assert stream(tmp_path / "probe", server).step() == 0
    reader = ProbeReader(tmp_path / "probe")
    reader.look()
    assert (reader.latest(), reader.records(), reader.median_step_s()) == ({}, {}, None)


# -- where each rank is -------------------------------------------------------------------------


def read(folder: Path) -> ProbeReader:
    reader = ProbeReader(folder)
    reader.look()
    return reader


def test_the_status_of_a_rank_is_its_last_line(tmp_path):
    stack = [["/a/train.py", 12, "main"]]
    (tmp_path / "7.jsonl").write_text(
        line(t=90.0, step=0, **{"in": "starting", "stack": [["/a/x.py", 1, "f"]]})
        + line(t=100.0, last_step_at=99.5, **FIGURES, **{"in": "stepping"})
        + line(t=103.0, last_step_at=99.5, stacks=True, **{"in": "computing", "stack": stack})
        + line(t=104.0, last_step_at=99.5, stacks=True, **{"in": "computing"})
    )
    reader = read(tmp_path)
    assert reader.latest() == {
        0: RankStatus(
            0,
            7,
            2,
            10,
            99.5,
            90.0,
            104.0,
            "computing",
            True,
            False,
            (PythonFrame("/a/train.py", 12, "main"),),
        )
    }
    assert reader.median_step_s() == 0.25


def test_of_several_processes_with_one_rank_it_is_the_one_that_trains_now(tmp_path):
    (tmp_path / "7.jsonl").write_text(line(pid=7, step=50, t=100.0))  # before a restart
    (tmp_path / "8.jsonl").write_text(line(pid=8, step=3, t=200.0))
    (tmp_path / "9.jsonl").write_text(line(pid=9, step=0, t=300.0))  # a helper
    assert {rank: each.pid for rank, each in read(tmp_path).latest().items()} == {0: 8}


def test_a_rank_that_said_good_bye_has_ended(tmp_path):
    (tmp_path / "7.jsonl").write_text(line(events=[{"kind": "exit", "at": 1.0}]))
    reader = read(tmp_path)
    assert reader.latest()[0].ended and reader.records()[0].ended


def test_faulthandlers_text_becomes_frames_of_the_last_stack():
    text = (
        'Current thread 0x1 (most recent call first):\n  File "/old.py", line 1 in old\n\n'
        'Current thread 0x00007f (most recent call first):\n  File "/lib/python3.11/threading.py", line 5 in wait\n'
        '  File "/a b/train.py", line 41 in <module>\n'
    )
    frames = parse_stack(text)
    assert frames == [
        PythonFrame("/lib/python3.11/threading.py", 5, "wait"),
        PythonFrame("/a b/train.py", 41, "<module>"),
    ]
    assert users_frame(frames) == frames[1]
    assert users_frame(frames[:1]) == frames[0]
    assert users_frame([]) is None


STUCK = """
import faulthandler, os, signal, sys, time
if sys.argv[1] == "answers":
    file = open(f"{os.environ['RANKZERO_PROBE_DIR']}/{os.getpid()}.stack", "ab", 0)
    faulthandler.register(signal.SIGUSR2, file=file, all_threads=False, chain=False)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["answers", "cannot", "is somebody else's"])
def test_only_a_process_that_can_answer_is_asked_for_its_stack(tmp_path, kind):
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    folder = tmp_path / "probe"
    folder.mkdir()
    theirs = tmp_path if kind == "is somebody else's" else folder
    argument = "cannot" if kind == "cannot" else "answers"
    process = subprocess.Popen(
        [sys.executable, str(script), argument], stdout=subprocess.PIPE,
        env=os.environ | {"RANKZERO_PROBE_DIR": str(theirs)},
    )  # fmt: skip
    try:
        assert process.stdout.readline() == b"ready\n"
        (folder / f"{process.pid}.stack").touch()
        recorded = {"in": "computing", "stack": [["/recorded.py", 3, "f"]]}
        (folder / f"{process.pid}.jsonl").write_text(line(pid=process.pid, stacks=True, **recorded))
        reader = read(folder)
        stacks = reader.ask_stacks([each for each in reader.latest().values() if each.pid == process.pid])
        assert stacks[0][0].file == (str(script) if kind == "answers" else "/recorded.py")
        time.sleep(0.05)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


# -- hung, not slow -----------------------------------------------------------------------------

HERE, THERE = (PythonFrame("/a/train.py", 41, "step"),), (PythonFrame("/a/train.py", 52, "main"),)


def status(rank, step=40, moved=1000.0, doing="computing", **more):
    return RankStatus(rank, 100 + rank, 2, step, moved if step else None, 900.0, 1001.0, doing, **more)


@pytest.mark.parametrize(
    ("statuses", "behind"),
    [
        ([status(0, 41), status(1, 40)], [1]),
        ([status(0, 40), status(1, 40)], []),
        ([status(0, 40, doing="backward"), status(1, 40)], [1]),
        ([status(0, 40, doing="waiting"), status(1, 40, doing="data")], [1]),
        ([status(0, 40, doing="waiting"), status(1, 40, doing="waiting")], []),
        ([status(0, 41, doing="waiting"), status(1, 40, ended=True)], [1]),
        ([status(2, 9), status(0, 12), status(1, 9)], [1, 2]),
        ([status(0)], []),
        ([], []),
    ],
)
def test_the_rank_behind_has_fewer_steps_or_does_not_wait(statuses, behind):
    assert [each.rank for each in ranks_behind(statuses)] == behind


PAIR = [status(0, doing="backward", frames=THERE), status(1, frames=HERE)]


@pytest.mark.parametrize(
    ("statuses", "idle_s", "median_step_s", "patience_s", "hangs"),
    [
        (PAIR, 59, 0.1, None, False),
        (PAIR, 61, 0.1, None, True),
        (PAIR, 61, None, None, True),
        (PAIR, 299, 30.0, None, False),
        (PAIR, 301, 30.0, None, True),
        (PAIR, 11, 0.1, 10.0, True),
        (PAIR, 9, 0.1, 10.0, False),
        ([status(0, moved=1100.0), status(1)], 100, 0.1, None, False),
        ([status(0, doing="saving"), status(1, doing="waiting")], 600, 0.1, None, False),
        ([status(0, doing="validating"), status(1)], 600, 0.1, None, False),
        ([status(0, doing="compiling"), status(1)], 600, 0.1, 10.0, False),
        ([status(0, doing="saving"), status(1)], 1801, 0.1, None, True),
        ([status(0, 0), status(1, 0)], 200, None, None, False),
        ([status(0, 0), status(1, 0)], 701, None, None, True),
        ([status(0, ended=True), status(1, ended=True)], 600, 0.1, None, False),
        ([], 600, None, None, False),
    ],
)
def test_ranks_hang_when_none_has_stepped_for_long_and_none_is_busy(
    statuses, idle_s, median_step_s, patience_s, hangs
):
    verdict = hang_verdict(statuses, 1000.0 + idle_s, median_step_s, patience_s)
    assert (verdict is not None) == hangs


def test_the_verdict_names_who_is_behind_and_where_the_others_wait():
    verdict = hang_verdict(PAIR, 1075.0, 0.12)
    assert (verdict.since, verdict.idle_s, [each.rank for each in verdict.behind]) == (1000.0, 75.0, [1])
    assert verdict.sentence == (
        "No rank has made a step for 75 s (a step took 0.12 s). Rank 1 is behind: at train.py line 41 in step, "
        "after step 40. Waiting: rank 0 at train.py line 52 in main, after step 40."
    )


def test_a_rank_that_ended_is_what_the_others_wait_for():
    verdict = hang_verdict([status(0, 41, doing="waiting"), status(1, 40, ended=True)], 1100.0, 0.1)
    assert "Rank 1 is behind: has ended after step 40." in verdict.sentence


# -- silent mistakes ----------------------------------------------------------------------------

DDP = {"kind": "ddp", "model": 0, "replicas": 2, "batch_norms": 0, "find_unused_parameters": False}


def epoch(digest=1, fields=(("batch[0]", 5, 40),), sampler_epoch=0, shuffle=True, **more):
    sampler = {"type": "DistributedSampler", "epoch": sampler_epoch, "shuffle": shuffle, "replicas": 2}
    digests = {"16": digest, "64": digest + 1} if digest else {}
    plain = {"kind": "epoch", "dataset_length": 100, "batch_size": 8, "sampler": sampler}
    return plain | {"digests": digests, "fields": [list(each) for each in fields]} | more


def checksum(step, total, size=10.0, model=0):
    return {"kind": "checksum", "model": model, "step": step, "sum": total, "size": size}


def unused(step, *names):
    return {"kind": "unused", "model": 0, "step": step, "count": len(names), "names": list(names)}


def two(first, other=None, world_size=2, **more):
    return {
        rank: RankRecord(rank, world_size, 10, events=[DDP, *events], **more)
        for rank, events in enumerate([first, first if other is None else other])
    }


BN = DDP | {"batch_norms": 3}
OTHER_DATA = (("batch[0]", 6, 40),)
SAME = "same samples on several ranks"


@pytest.mark.parametrize(
    ("records", "kinds"),
    [
        ({}, []),
        # set_epoch
        (two([epoch(1), epoch(1)], [epoch(7), epoch(7)]), ["set_epoch never called"]),
        (two([epoch(1), epoch(2, sampler_epoch=1)], [epoch(7)]), []),
        (two([epoch(1)], [epoch(7)]), []),
        (two([epoch(1, shuffle=False)] * 2, [epoch(7)]), []),
        (two([epoch(1, sampler={})] * 2, [epoch(7)]), []),
        (two([epoch(1), epoch(3)], [epoch(7)]), []),
        # the same samples
        (two([epoch(1)]), [SAME]),
        (two([epoch(1)], [epoch(1, OTHER_DATA)]), []),
        (two([epoch(1, (("batch[0]", 5, 1),))]), []),
        (two([epoch(1, (("a", 5, 40), ("label", 3, 9)))], [epoch(1, (("a", 6, 40), ("label", 3, 9)))]), [SAME]),
        (two([epoch(1)], [epoch(1, dataset_length=99)]), []),
        (two([epoch(0)]), [SAME]),
        (two([epoch(0, (("batch[0]", 5, 4),))]), []),
        (two([epoch(0)], [epoch(1)]), []),
        (two([epoch(1, digests={"1": 4})]), []),
        (two([epoch(1)], world_size=4), []),
        # parameters
        (two([checksum(1, 1.0), checksum(2, 1.1)]), []),
        (two([checksum(1, 1.0)], [checksum(1, 1.2)]), ["parameters differ"]),
        (two([checksum(1, 1.0)], [checksum(2, 1.2)]), []),
        (two([checksum(1, 1.0)], [checksum(1, 1.2, model=1)]), []),
        (two([checksum(1, 1.0)], [checksum(1, 1.001)]), []),
        (two([checksum(1, 1.0), checksum(2, 1.0)], [checksum(1, 1.001), checksum(2, 1.002)]), ["parameters differ"]),
        (two([checksum(1, 1.0), checksum(2, 1.0)], [checksum(1, 1.0000001), checksum(2, 1.0000002)]), []),
        (two([checksum(1, float("nan"))], [checksum(1, 1.0)]), []),
        (two([checksum(1, 1.0)], [checksum(1, 1.2)], world_size=4), []),
        # unused parameters
        (two([unused(0, "a", "b"), unused(1, "a"), unused(2, "a", "c")]), ["unused parameters"]),
        (two([unused(0, "a"), unused(1), unused(2, "a")]), []),
        (two([unused(0, "a"), unused(1, "a")]), []),
        (two([unused(0), unused(1), unused(2)]), []),
        # BatchNorm
        (two([BN, epoch(1, batch_size=1)], [epoch(7)]), ["batch of 1 with BatchNorm"]),
        (two([BN, epoch(1, batch_size=2)], [epoch(7)]), []),
        (two([epoch(1, batch_size=1)], [epoch(7)]), []),
    ],
)  # fmt: skip
def test_a_mistake_is_found_where_it_is_and_nowhere_else(records, kinds):
    assert [finding.kind for finding in silent_mistakes(records)] == kinds


def test_unequal_steps_are_found_when_the_ranks_have_ended():
    records = {rank: RankRecord(rank, 2, 10 - rank, True, [DDP]) for rank in (0, 1)}
    assert [finding.evidence for finding in silent_mistakes(records)] == [
        "Rank 1 made 9 steps, rank 0 made 10."
    ]
    assert not silent_mistakes({rank: RankRecord(rank, 2, 10 - rank, False, [DDP]) for rank in (0, 1)})


def test_a_finding_says_what_was_seen_what_it_means_and_how_to_mend_it():
    (finding,) = silent_mistakes(two([checksum(64, 1.0)], [checksum(64, 1.25)]))
    assert finding.evidence == (
        "After step 64 the same sample of the parameters adds up to 1 on rank 0 and to 1.25 on rank 1."
    )
    assert finding.meaning.endswith("rank 0's checkpoint holds only what rank 0 learned.")
    assert finding.mend.startswith("Call the DistributedDataParallel wrapper")
