"""What rank 0 prints arrives as points exactly once, whatever is lost, repeated or restarted."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from domain.messages import PointBatch
from tests.virtual_time import VirtualTime
from tests.worker.sendings import answering, done
from worker.session.failures import RequestRefused
from worker.streams.mirror import MirroredFile, OffsetMismatch
from worker.streams.omissions import SET_ASIDE_FILE, Omissions
from worker.streams.point_uploader import PointStream, PointUploader
from worker.streams.printed_source import MIN_UNREAD, QUIET_S, PrintedLogs
from worker.streams.printed_unread import LEAST_REPEATED


class FakeServer:
    """Takes a log's points only from the byte it has."""

    def __init__(self) -> None:
        self.offsets: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.series: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        self.requests = 0
        self.loses_replies = self.refuses = False

    def offset_of(self, path: str, generation: int) -> int:
        return self.offsets[path, generation]

    def send(self, batch: PointBatch) -> int:
        self.requests += 1
        if self.refuses and batch.series:
            raise RequestRefused("no")
        if batch.start != self.offsets[batch.path, batch.generation]:
            raise OffsetMismatch(self.offsets[batch.path, batch.generation])
        assert batch.source == "printed" and bool(batch.series) != self.refuses
        self.offsets[batch.path, batch.generation] = batch.end
        for tag, points in batch.series.items():
            self.series[tag] += [(step, value) for step, value, _ in points]
        if self.loses_replies and self.requests % 2:
            raise ConnectionError
        return batch.end


class Node:
    """An attempt's logs and a stream over them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server = folder, FakeServer()
        (folder / "logs").mkdir()
        self.time = VirtualTime()
        self.restart_worker()

    def restart_worker(self) -> None:
        self.mirrored: dict[str, MirroredFile] = {}
        logs = self.logs = PrintedLogs(
            self._files, self.server.offset_of, self.folder / "worker/printed.json", self.time
        )
        self.stream = PointStream(logs.sources, PointUploader(answering(self.server.send), Omissions(self.folder)))

    def _files(self) -> list[MirroredFile]:
        for path in (self.folder / "logs").iterdir():
            file = self.mirrored.setdefault(path.name, MirroredFile(f"logs/{path.name}", path, path.stat().st_ino))
            file.inode, file.size_bytes = path.stat().st_ino, path.stat().st_size
        return [self.mirrored[name] for name in sorted(self.mirrored)]

    def print(self, text: str, log: str = "rank0.out") -> None:
        with (self.folder / "logs" / log).open("a") as file:
            file.write(text)

    def settle(self, *, final: bool = False) -> None:
        for _ in range(100):
            try:
                if not done(self.stream.step(final=final)):
                    return
            except ConnectionError:
                pass
        raise AssertionError("the stream does not come to an end")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_points_arrive_once_also_when_replies_are_lost_and_workers_restart(node: Node) -> None:
    node.server.loses_replies = True
    for epoch in range(6):
        for step in range(0, 10, 5):
            node.print(f"Epoch: [{epoch}][{step}/10] Loss {epoch}.{step} (1.0)\nsome other line {step}\n")
            node.settle()
        if epoch % 2:
            node.restart_worker()
    expected = [(epoch * 10 + step, float(f"{epoch}.{step}")) for epoch in range(6) for step in (0, 5)]
    assert node.server.series["loss"] == expected


def test_where_rank_0_prints_no_other_is_read(node: Node) -> None:
    for log in ("rank0.out", "rank1.out", "launcher.err", "rank10.err"):
        node.print("step 1 loss 1.0\n", log)
    node.settle(final=True)
    assert node.server.series == {"loss": [(1, 1.0)]}
    assert {path for path, _ in node.server.offsets} == {"logs/rank0.out"}


def test_the_last_rank_counts_where_only_that_prints(node: Node) -> None:
    node.print("hello\n", "rank0.out")
    node.print("step 1 loss 9.0\n", "rank1.out")
    node.print("[rank3]: step 1 loss 1.0\n", "rank3.out")
    node.settle()
    assert node.server.requests == 0  # rank 0 may be about to print its own
    node.time.advance(QUIET_S)
    node.settle()
    assert node.server.series == {"loss": [(1, 1.0)]}
    node.restart_worker()
    node.print("step 2 loss 0.5\n", "rank3.out")
    node.settle()
    assert node.server.series == {"loss": [(1, 1.0), (2, 0.5)]}


def test_a_rank_0_that_prints_a_moment_later_keeps_the_names(node: Node) -> None:
    node.print("hello\n", "rank0.out")
    node.print("step 1 loss 9.0\n", "rank1.out")
    node.settle()
    node.print("step 1 loss 1.0\n", "rank0.out")
    node.time.advance(QUIET_S)
    node.settle(final=True)
    assert node.server.series == {"loss": [(1, 1.0)]}


def test_values_that_no_rule_reads_are_told(node: Node) -> None:
    node.print("batch_size = 32\nworld size 2\n" + "now loss: 0.5 acc: 0.75\n" * (MIN_UNREAD - 1))
    node.settle()
    assert node.logs.findings() == []
    node.print("now loss: 0.25 acc: 0.75\n")
    node.settle()
    (finding,) = node.logs.findings()
    assert finding.evidence == "5 printed lines hold values, such as: now loss: 0.5 acc: 0.75"
    node.print("step 1 loss 0.25\n")
    node.settle()
    assert node.logs.findings() == []


@pytest.mark.parametrize("line", ["now loss: 0.{n} acc: 0.75", "step {n}: loss 0.{n} 0.{n}5-acc*: 0.{n}"])
def test_values_that_no_rule_reads_are_told_also_beside_others(node: Node, line: str) -> None:
    node.print("step 1 loss 1.0\n")
    node.print("".join(line.format(n=n) + "\n" for n in range(1, LEAST_REPEATED)))
    node.settle()
    assert node.logs.findings() == [] and node.server.series["loss"]
    node.print(line.format(n=9) + "\n", "rank0.out")
    node.settle()
    (finding,) = node.logs.findings()
    assert finding.evidence == f"3 printed lines hold values, such as: {line.format(n=9)}"


UNREAD = "".join(f"now loss: 0.{i} acc: {i}%\n" for i in range(1, MIN_UNREAD + 1))
PATTERN = "now loss: {loss} acc: {acc}"


def test_a_pattern_reads_the_lines_from_their_start_in_a_live_run(node: Node) -> None:
    node.print(UNREAD)
    node.settle()
    assert len(node.logs.findings()) == 1 and not node.server.series
    node.logs.use(PATTERN)
    node.settle()
    assert node.server.series["loss"] == [(step, (step + 1) / 10) for step in range(MIN_UNREAD)]
    assert node.server.series["acc"] == [(step, step + 1.0) for step in range(MIN_UNREAD)]
    assert node.logs.findings() == []


def test_lines_are_counted_on_after_a_restart_and_other_lines_stay_with_the_rules(node: Node) -> None:
    node.logs.use(PATTERN)
    node.print("now loss: 0.1 acc: 1%\nstep 7 lr 0.5\nnow loss: 0.2 acc: 2%\n")
    node.settle()
    node.restart_worker()
    node.logs.use(PATTERN)
    node.print("now loss: 0.3 acc: 3%\n")
    node.settle()
    assert node.server.series["loss"] == [(0, 0.1), (1, 0.2), (2, 0.3)]
    assert node.server.series["lr"] == [(7, 0.5)]


def test_a_changed_pattern_counts_from_there_on(node: Node) -> None:
    node.logs.use("now loss: {wrong} acc: {*}")
    node.print("now loss: 0.1 acc: 1%\n")
    node.settle()
    node.logs.use(PATTERN)
    node.print("now loss: 0.2 acc: 2%\n")
    node.settle()
    assert node.server.series["wrong"] == [(0, 0.1)] and node.server.series["loss"] == [(1, 0.2)]


def test_a_pattern_that_fits_no_line_leaves_the_finding(node: Node) -> None:
    node.logs.use("then loss: {loss}")
    node.print(UNREAD)
    node.settle()
    assert len(node.logs.findings()) == 1


def test_epochs_and_the_last_rank_are_read_by_a_pattern(node: Node) -> None:
    node.logs.use("round {epoch} of training gave {loss}")
    node.print("hello\n")
    node.print("round 3 of training gave 0.5\n", "rank1.out")
    node.settle(final=True)
    assert node.server.series == {"loss": [(3, 0.5)], "epoch": [(3, 3.0)]}


def test_a_table_may_have_its_header_in_the_other_stream(node: Node) -> None:
    node.print("  Epoch  GPU_mem  box_loss  Size\n  Class  Images  Box(P  R)\n  all  8  0.1  0.2\n")
    node.print("  1/5  1.2G  1.1  640: 100%|██████| 20/20 [00:05<00:00,  4.50it/s]\n", "rank0.err")
    node.settle(final=True)
    assert node.server.series["box_loss"] == [(1, 1.1)]


def test_lines_without_values_make_no_requests(node: Node) -> None:
    node.print("step by step we go\n" * 50_000)
    node.settle()
    assert node.server.requests == 0
    node.print("step 1 loss 1.0\n")
    node.settle()
    assert node.server.series == {"loss": [(1, 1.0)]}


def test_a_last_line_without_its_end_arrives_when_the_run_is_over(node: Node) -> None:
    node.print("step 1 loss 2.0\nstep 2 loss 1.0")
    node.settle()
    assert node.server.series["loss"] == [(1, 2.0)]
    node.settle(final=True)
    node.settle(final=True)
    assert node.server.series["loss"] == [(1, 2.0), (2, 1.0)]


def test_one_name_in_both_streams_stays_two_series(node: Node) -> None:
    bar = " 12%|█▏        | 120/1000 [00:10<01:20, 11.0it/s, loss=2.3]\n"
    node.print(bar, "rank0.err")
    node.settle()
    node.print("Epoch 1: loss 2.5\n")
    node.settle()
    node.restart_worker()
    node.print("Epoch 2: loss 2.4\n")
    node.settle()
    assert node.server.series["loss"] == [(120, 2.3)]
    assert node.server.series["stdout/loss"] == [(1, 2.5), (2, 2.4)]


def test_refused_lines_delay_no_others(node: Node) -> None:
    node.server.refuses = True
    node.print("step 1 loss 2.0\n")
    node.settle()
    assert (node.folder / SET_ASIDE_FILE).read_text().count("\n") == 1
    node.server.refuses = False
    node.print("step 2 loss 1.0\n")
    node.settle()
    assert node.server.series["loss"] == [(2, 1.0)]


def test_a_log_that_is_gone_is_no_trouble(node: Node) -> None:
    node.print("step 1 loss 2.0\n")
    files = node._files()
    node._files = lambda: files  # type: ignore[method-assign]
    node.restart_worker()
    (node.folder / "logs/rank0.out").unlink()
    node.settle(final=True)
    assert node.server.requests == 0
