"""Event files are read whole record by whole record, whatever they look like."""

from __future__ import annotations

import math
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto import event_pb2, types_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tests.worker.streams.event_bytes import record, scalar
from worker.streams.events import EventTail, Gap, find_event_files, main_writer_dir, series_name

NAME = "events.out.tfevents.1700000000.node.1.0"


def tensor(dtype: int, plugin: str = "scalars", dims: tuple[int, ...] = (), **values: object) -> bytes:
    event = event_pb2.Event(step=7, wall_time=2.0)
    value = event.summary.value.add(tag="t")
    value.metadata.plugin_data.plugin_name = plugin
    value.tensor.dtype = dtype
    for size in dims:
        value.tensor.tensor_shape.dim.add(size=size)
    for field, content in values.items():
        if isinstance(content, bytes):
            setattr(value.tensor, field, content)
        else:
            getattr(value.tensor, field).extend(content)
    return record(event.SerializeToString())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / NAME


def test_points_keep_step_value_and_wall_time_by_tag(path: Path) -> None:
    path.write_bytes(scalar(1, 0.5) + scalar(1, 2.0, "lr") + scalar(2, 0.25, wall=9.0))
    read = EventTail(path).read()
    assert read.series == {"train/loss": [(1, 0.5, 1.5), (2, 0.25, 9.0)], "lr": [(1, 2.0, 1.5)]}
    assert (read.start, read.end, read.notice) == (0, path.stat().st_size, None)


@given(
    points=st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300),
            st.floats(width=32),
            st.floats(allow_nan=False, allow_infinity=False),
            st.sampled_from(["a", "ab", "\x15\0\0\0\0", "é/ü"]),
        ),
        max_size=30,
    )
)
def test_an_event_like_one_before_is_read_as_protobuf_reads_it(
    tmp_path_factory: pytest.TempPathFactory, points: list[tuple[int, float, float, str]]
) -> None:
    path = tmp_path_factory.mktemp("events") / NAME
    path.write_bytes(b"".join(scalar(step, value, tag, wall) for step, value, wall, tag in points))
    expected: dict[str, list[tuple[int, float, float]]] = {}
    for step, value, wall, tag in points:
        expected.setdefault(tag, []).append((step, value, wall))
    assert repr(EventTail(path).read().series) == repr(expected)


def test_reader_reads_files_of_tensorboards_writer(tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path))
    event = event_pb2.Event(step=3, wall_time=4.0)
    event.summary.value.add(tag="a", simple_value=1.0)
    writer.add_event(event)
    writer.close()
    assert EventTail(find_event_files(tmp_path)[0]).read().series == {"a": [(3, 1.0, 4.0)]}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 1e-45])
def test_odd_numbers_come_through(path: Path, value: float) -> None:
    path.write_bytes(scalar(0, value))
    [(_, read, _)] = EventTail(path).read().series["train/loss"]
    assert struct.pack("<f", read) == struct.pack("<f", value)


@pytest.mark.parametrize(
    "data",
    [
        tensor(types_pb2.DT_FLOAT, float_val=[1.5]),
        tensor(types_pb2.DT_FLOAT, dims=(1,), tensor_content=struct.pack("<f", 1.5)),
        tensor(types_pb2.DT_FLOAT, plugin="", float_val=[1.5]),
        tensor(types_pb2.DT_DOUBLE, tensor_content=struct.pack("<d", 1.5)),
        tensor(types_pb2.DT_DOUBLE, double_val=[1.5]),
        tensor(types_pb2.DT_HALF, tensor_content=struct.pack("<e", 1.5)),
        tensor(types_pb2.DT_HALF, half_val=list(struct.unpack("<H", struct.pack("<e", 1.5)))),
        tensor(types_pb2.DT_BFLOAT16, tensor_content=struct.pack("<f", 1.5)[2:]),
    ],
)
def test_scalars_written_as_tensors_are_read(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    assert EventTail(path).read().series == {"t": [(7, 1.5, 2.0)]}


@pytest.mark.parametrize(
    "data",
    [
        tensor(types_pb2.DT_STRING, plugin="text", string_val=[b"words"]),
        tensor(types_pb2.DT_FLOAT, dims=(2,), float_val=[1.0, 2.0]),
        tensor(types_pb2.DT_FLOAT, dims=(1, 1), float_val=[1.0]),
        tensor(types_pb2.DT_FLOAT, plugin="hparams", float_val=[1.0]),
        tensor(types_pb2.DT_FLOAT, tensor_content=b"123"),
        tensor(types_pb2.DT_COMPLEX64, scomplex_val=[1.0]),
        record(event_pb2.Event(file_version="brain.Event:2").SerializeToString()),
    ],
)
def test_reader_skips_values_that_are_no_scalars(path: Path, data: bytes) -> None:
    path.write_bytes(data + scalar(8, 1.0))
    read = EventTail(path).read()
    assert read.series == {"train/loss": [(8, 1.0, 1.5)]}
    assert read.notice is None


def test_a_torn_tail_is_read_again(path: Path) -> None:
    whole, second = scalar(1, 0.5), scalar(2, 0.25)
    for cut in range(len(second)):
        path.write_bytes(whole + second[:cut])
        tail = EventTail(path)
        read = tail.read()
        assert (read.end, read.notice, len(read.series["train/loss"])) == (len(whole), None, 1)
        path.write_bytes(whole + second)
        assert tail.read().series == {"train/loss": [(2, 0.25, 1.5)]}


def test_reading_goes_on_at_a_given_offset_in_bounded_pieces(path: Path) -> None:
    path.write_bytes(b"".join(scalar(step, step) for step in range(100)))
    steps, tail = [], EventTail(path)
    while (read := tail.read(max_bytes=200)).end > read.start:
        assert read.end - read.start <= 200
        steps += [step for step, _, _ in read.series["train/loss"]]
        tail = EventTail(path, read.end)
    assert steps == list(range(100))


def test_a_record_longer_than_the_piece_is_still_read(path: Path) -> None:
    path.write_bytes(scalar(1, 0.5, tag="x" * 5000) + scalar(2, 0.5))
    tail = EventTail(path)
    assert [len(tag) for tag in tail.read(max_bytes=100).series] == [5000]
    assert tail.read(max_bytes=100).series == {"train/loss": [(2, 0.5, 1.5)]}


def test_a_record_too_long_to_hold_is_stepped_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.streams.events.MAX_RECORD_BYTES", 1000)
    path.write_bytes(record(b"v" * 3000) + scalar(2, 0.5))
    tail = EventTail(path)
    assert "3016 bytes" in (tail.read(max_bytes=100).notice or "")
    assert tail.read(max_bytes=100).series == {"train/loss": [(2, 0.5, 1.5)]}


def everything(path: Path, piece: int = 10**6, final: bool = True) -> tuple[list, list[Gap]]:
    """Points and gaps of a file that is read to its end, in pieces."""
    tail, points, gaps = EventTail(path), [], []
    tail.final = final
    while (read := tail.read(max_bytes=piece)).end > read.start:
        points += [(tag, *point) for tag, points_read in read.series.items() for point in points_read]
        gaps += read.gaps
    return points, gaps


@pytest.mark.parametrize("piece", [10**6, 70])
def test_no_single_flipped_bit_stores_anything_wrong_or_costs_another_record(path: Path, piece: int) -> None:
    records = [scalar(step, 1 / (step + 1), tag=f"loss{step % 2}") for step in range(4)]
    whole = b"".join(records)
    path.write_bytes(whole)
    points, gaps = everything(path)
    assert len(points) == 4 and not gaps
    points.sort(key=lambda point: point[1])
    ends = [sum(map(len, records[: n + 1])) for n in range(4)]
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        hit = next(n for n, end in enumerate(ends) if bit // 8 < end)
        points_read, gaps = everything(path, piece)
        assert sorted(points_read, key=lambda point: point[1]) == points[:hit] + points[hit + 1 :], bit
        assert sum(gap.end - gap.start for gap in gaps) == len(records[hit]), bit


def test_nothing_wrong_is_read_whatever_is_cut_out_or_overwritten(path: Path) -> None:
    chance = random.Random(5)
    records = [scalar(step, step / 7, wall=1.7e9 + step) for step in range(60)]
    whole = b"".join(records)
    truth = {("train/loss", *point_of(record, path)) for record in records}
    for _ in range(200):
        begin, length = chance.randrange(len(whole)), chance.randrange(1, 300)
        filling = chance.choice([b"", bytes(length), chance.randbytes(length)])
        path.write_bytes(whole[:begin] + filling + whole[begin + length :])
        points_read, _ = everything(path, chance.choice([64, 500, 10**6]))
        assert set(points_read) <= truth and len(points_read) == len(set(points_read))
        assert len(points_read) >= 60 - 2 - length // 48 - 1


def point_of(data: bytes, path: Path) -> tuple:
    path.write_bytes(data)
    [point] = EventTail(path).read().series["train/loss"]
    return point


def test_a_whole_record_that_is_no_event_is_told_and_the_next_one_read(path: Path) -> None:
    path.write_bytes(scalar(1, 0.5) + record(b"\xff\xff\xff") + scalar(3, 0.5))
    points_read, gaps = everything(path)
    assert [step for _, step, _, _ in points_read] == [1, 3]
    assert gaps == [Gap(len(scalar(1, 0.5)), len(scalar(1, 0.5)) + 19)]


@pytest.mark.parametrize("length", range(9, 24))
def test_a_whole_record_that_ends_within_an_event_is_told_and_the_next_one_read(path: Path, length: int) -> None:
    whole = scalar(300, 0.5)
    path.write_bytes(whole + record(whole[12:-4][:length]) + scalar(301, 0.5))
    points_read, _ = everything(path)
    assert [step for _, step, _, _ in points_read] == [300, 301]


def test_behind_garbage_reading_goes_on_also_when_the_next_record_comes_later(path: Path) -> None:
    path.write_bytes(scalar(1, 0.5) + bytes(range(1, 255)) * 2)
    tail = EventTail(path)
    read = tail.read()
    assert len(read.series["train/loss"]) == 1 and not tail.read().series
    with path.open("ab") as file:
        file.write(scalar(2, 0.5))
    assert tail.read().series == {"train/loss": [(2, 0.5, 1.5)]}


def test_zeros_at_the_end_are_waited_for_and_read_when_they_are_filled(path: Path) -> None:
    first, second, third = scalar(1, 0.5), scalar(2, 0.25), scalar(3, 0.125)
    for came in range(len(second)):
        path.write_bytes(first + second[:came] + bytes(len(second) - came + 5000))
        tail = EventTail(path)
        steps = [step for step, _, _ in tail.read().series["train/loss"]]
        again = tail.read()
        if not again.series:
            assert again.awaits_data and not again.gaps
        path.write_bytes(first + second + third + bytes(100))
        while (read := tail.read()).end > read.start:
            steps += [step for step, _, _ in read.series["train/loss"]]
            assert not read.gaps
        assert steps == [1, 2, 3], came


@pytest.mark.parametrize("tail", [bytes(3), bytes(5000), scalar(2, 0.5)[:-1], scalar(2, 0.5)[:5]])
def test_in_the_end_zeros_and_a_torn_record_are_given_up_and_told(path: Path, tail: bytes) -> None:
    path.write_bytes(scalar(1, 0.5) + tail)
    assert everything(path, final=False)[1] == []
    points_read, gaps = everything(path)
    assert len(points_read) == 1
    assert (gaps[0].start, gaps[-1].end) == (len(scalar(1, 0.5)), path.stat().st_size)


def test_a_hole_of_zeros_between_records_is_stepped_over(path: Path) -> None:
    path.write_bytes(scalar(1, 0.5) + bytes(4096) + scalar(2, 0.5))
    points_read, gaps = everything(path, final=False)
    assert [step for _, step, _, _ in points_read] == [1, 2]
    assert gaps == [Gap(len(scalar(1, 0.5)), len(scalar(1, 0.5)) + 4096)]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_wall_time_that_is_no_number_is_a_neighbours_else_the_files(path: Path, odd: float) -> None:
    path.write_bytes(scalar(1, 0.5, wall=odd) + scalar(2, 0.5, wall=7.0) + scalar(3, 0.5, wall=odd))
    tail = EventTail(path)
    assert [wall for _, _, wall in tail.read().series["train/loss"]] == [7.0, 7.0, 7.0]
    with path.open("ab") as file:
        file.write(scalar(4, 0.5, wall=odd))
    assert tail.read().series["train/loss"] == [(4, 0.5, 7.0)]
    path.write_bytes(scalar(1, 0.5, wall=odd))
    os.utime(path, (5, 6))
    assert EventTail(path).read().series["train/loss"] == [(1, 0.5, 6.0)]


@given(garbage=st.binary(max_size=300), offset=st.integers(0, 400))
def test_no_bytes_make_it_raise_or_go_back(
    garbage: bytes, offset: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / NAME
    path.write_bytes(scalar(1, 0.5) + garbage)
    tail = EventTail(path, offset)
    for _ in range(5):
        read = tail.read(max_bytes=64)
        assert read.end >= read.start


def test_a_file_that_is_gone_or_a_link_gives_a_notice(tmp_path: Path, path: Path) -> None:
    assert "No such file" in (EventTail(path).read().notice or "")
    path.symlink_to(tmp_path / "elsewhere")
    assert EventTail(path).read().notice


def test_event_files_are_found_in_the_order_of_their_creation(tmp_path: Path) -> None:
    late = tmp_path / "a" / "events.out.tfevents.1700000009.node.1.0"
    early = tmp_path / "z" / "deep" / "events.out.tfevents.1700000001.node.1.0"
    hidden = tmp_path / ".git" / "events.out.tfevents.1700000000.node.1.0"
    for file in (late, early, hidden):
        file.parent.mkdir(parents=True)
        file.touch()
    (tmp_path / "link").symlink_to(tmp_path / "z")
    assert find_event_files(tmp_path) == [early, late]
    assert main_writer_dir([late, early]) == early.parent
    assert main_writer_dir([]) is None
    assert find_event_files(tmp_path / "nothing") == []


def test_outer_writer_of_one_second_has_the_plain_names() -> None:
    outer = Path("output/run/events.out.tfevents.1795244044.host.7.0")
    of_its_hparams = Path("output/run/1795244044.88/events.out.tfevents.1795244044.host.7.1")
    assert main_writer_dir([of_its_hparams, outer]) == outer.parent


@pytest.mark.parametrize(
    ("writer_dir", "name"),
    [
        ("runs/a", "loss"),
        ("runs/a/loss_train", "loss_train:loss"),
        ("runs/a/1795244044.8812", "hparams:loss"),
        ("runs/a/1795244044.8812/x", "1795244044.8812/x:loss"),
        ("runs/b", "runs/b:loss"),
        ("runs/ab", "runs/ab:loss"),
    ],
)
def test_further_writers_are_told_apart(writer_dir: str, name: str) -> None:
    assert series_name("loss", writer_dir, "runs/a") == name


def test_importing_is_quick_and_silent_and_brings_neither_numpy_nor_torch() -> None:
    code = "import sys, worker.streams.events; print([m for m in ('numpy', 'torch', 'tensorflow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_hundred_thousand_events_take_well_under_a_second(path: Path) -> None:
    path.write_bytes(b"".join(scalar(step, 0.5) for step in range(2000)) * 50)
    assert any(reading_s(path, 100_000) < 2 for _ in range(3))  # of CPU: 0.25 s and less on an idle machine


def reading_s(path: Path, points: int) -> float:
    """The CPU time that a file takes; a machine that stands still may make more of one than it was."""
    tail, count, began = EventTail(path), 0, time.process_time()
    while (read := tail.read()).end > read.start:
        count += sum(map(len, read.series.values()))
    assert count == points
    return time.process_time() - began
