"""The mirror brings every byte to the server once, in turn, whatever happens to the files."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from tests.worker.sendings import answering, done
from tests.worker.streams.mirroring_node import Node
from worker.node.run_files import remember_existing
from worker.streams.mirror import CHUNK_BYTES, FileMirror

EVENTS = "events.out.tfevents.1700000000.node.1.0"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "data/runs/abcdefghij/attempts/1/node0")


def test_logs_and_event_files_arrive_as_they_grow(node: Node) -> None:
    node.write("logs/rank0.out", b"one\n")
    node.write(f"work/tensorboard/{EVENTS}", b"\0\1")
    node.write("work/train.log", b"not mirrored")
    node.write("logs/rank0.txt", b"not mirrored")
    node.settle()
    node.write("logs/rank0.out", b"two\xff\n")
    node.settle()
    assert {path for path, _ in node.server.files} == {"logs/rank0.out", f"work/tensorboard/{EVENTS}"}
    assert node.server.text("logs/rank0.out") == b"one\ntwo\xff\n"
    assert [file.path for file in node.mirror.event_files()] == [f"work/tensorboard/{EVENTS}"]


def test_links_of_the_supervisor_are_followed_and_others_are_not(node: Node, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    node.write("logs/torchrun/attempt_0/0/stdout.log", b"rank 0\n")
    (node.dir / "logs/rank0.out").symlink_to("torchrun/attempt_0/0/stdout.log")
    (node.dir / "logs/rank1.out").symlink_to(secret)
    (node.work / EVENTS).symlink_to(secret)
    os.mkfifo(node.dir / "logs/rank2.out")
    node.settle()
    assert node.server.files == {("logs/rank0.out", 0): b"rank 0\n"}


def test_a_truncated_file_is_a_new_generation(node: Node) -> None:
    log = node.write("logs/rank0.out", b"a long first life\n")
    node.settle()
    log.write_bytes(b"short\n")
    node.settle()
    assert node.server.text("logs/rank0.out", 0) == b"a long first life\n"
    assert node.server.text("logs/rank0.out", 1) == b"short\n"


def test_a_replaced_file_is_a_new_generation_even_with_the_same_inode(node: Node) -> None:
    log = node.write("logs/rank0.out", b"first\n")
    node.settle()
    with log.open("r+b") as file:  # as when a file system gives a freed inode to the next file
        file.write(b"second, and longer\n")
    node.settle()
    fresh = node.write("logs/fresh", b"third, another inode\n")
    fresh.replace(log)
    node.settle()
    assert [node.server.text("logs/rank0.out", life) for life in range(3)] == [
        b"first\n",
        b"second, and longer\n",
        b"third, another inode\n",
    ]


def test_a_restarted_worker_goes_on_where_the_server_is(node: Node) -> None:
    log = node.write("logs/rank0.out", b"first life\n")
    node.settle()
    log.write_bytes(b"2nd\n")
    node.settle()
    node.restart_worker()
    node.write("logs/rank0.out", b"more\n")
    node.settle()
    assert node.server.text("logs/rank0.out", 1) == b"2nd\nmore\n"
    assert ("logs/rank0.out", 2) not in node.server.files
    assert sum(size for _, _, size in node.server.requests) == len(b"first life\n2nd\nmore\n")


def test_a_file_replaced_while_no_worker_ran_is_noticed(node: Node) -> None:
    log = node.write("logs/rank0.out", b"first life\n")
    node.settle()
    log.write_bytes(b"second life, longer\n")
    node.restart_worker()
    node.settle()
    assert node.server.text("logs/rank0.out", 1) == b"second life, longer\n"


def test_without_notes_a_server_with_more_bytes_means_a_new_generation(node: Node) -> None:
    node.write("logs/rank0.out", b"short\n")
    node.server.files["logs/rank0.out", 0] += b"something much longer\n"
    node.settle()
    assert node.server.text("logs/rank0.out", 1) == b"short\n"


def test_bytes_stored_without_an_answer_are_not_sent_twice(node: Node) -> None:
    node.write("logs/rank0.out", b"one\n")
    node.settle()
    node.write("logs/rank0.out", b"two\n")
    node.server.files["logs/rank0.out", 0] += b"two\n"  # its reply got lost
    node.write("logs/rank0.out", b"three\n")
    node.settle()
    assert node.server.text("logs/rank0.out") == b"one\ntwo\nthree\n"


def test_a_lost_server_is_the_callers_matter_and_costs_nothing(node: Node) -> None:
    node.write("logs/rank0.out", b"one\n")
    node.server.away = True
    with pytest.raises(ConnectionError):
        done(node.mirror.step(1.0))
    assert node.mirror.pending_bytes() == 4
    node.server.away = False
    node.settle()
    assert node.server.text("logs/rank0.out") == b"one\n"


def test_a_flood_starves_nobody_and_a_step_is_bounded(node: Node) -> None:
    flood = node.write("logs/rank0.out", b"")
    os.truncate(flood, 100 * CHUNK_BYTES)
    for rank in range(1, 5):
        node.write(f"logs/rank{rank}.out", b"quiet\n")
    sent = done(node.mirror.step(1.0))
    assert sent <= 17 * CHUNK_BYTES
    assert all(node.server.text(f"logs/rank{rank}.out") == b"quiet\n" for rank in range(1, 5))
    assert max(size for _, _, size in node.server.requests) <= CHUNK_BYTES


def test_a_file_the_server_refuses_does_not_block_the_others(node: Node) -> None:
    for rank in range(3):
        node.write(f"logs/rank{rank}.out", b"words\n")
    take = node.server.send

    def send(path: str, generation: int, offset: int, data: bytes) -> int:
        if path == "logs/rank1.out":
            raise ConnectionError
        return take(path, generation, offset, data)

    node.server.send = send  # type: ignore[method-assign]
    node.restart_worker()
    for turn in range(3):
        with pytest.raises(ConnectionError):
            done(node.mirror.step(turn))
    assert node.server.text("logs/rank0.out") == node.server.text("logs/rank2.out") == b"words\n"


def test_memory_stays_flat_with_a_line_of_100_megabytes(node: Node) -> None:
    line = node.write("logs/rank0.out", b"")
    os.truncate(line, 100_000_000)
    received = 0

    def send(_path: str, _generation: int, offset: int, data: bytes) -> int:
        nonlocal received
        received += len(data)
        return offset + len(data)

    mirror = FileMirror(node.dir, [], lambda _path, _generation: 0, answering(send))
    tracemalloc.start()
    while mirror.pending_bytes():
        done(mirror.step(0.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert received == 100_000_000
    assert peak < 8 * CHUNK_BYTES


def test_beyond_the_cap_the_head_is_kept_and_a_line_says_where_the_rest_is(node: Node) -> None:
    log = node.write("logs/rank0.out", b"x" * 100)
    node.restart_worker(cap_bytes=100)
    node.settle()
    assert node.server.text("logs/rank0.out") == b"x" * 100
    node.write("logs/rank0.out", b"y" * 50)
    node.settle()
    text = node.server.text("logs/rank0.out")
    assert text.startswith(b"x" * 100 + b"\n[rankzero] This log is longer than 100 bytes.")
    assert str(log).encode() in text and b"y" not in text[100:].split(b"\n")[-1]
    node.restart_worker(cap_bytes=100)
    node.write("logs/rank0.out", b"z" * 50)
    node.settle()
    assert node.server.text("logs/rank0.out") == text
    assert ("logs/rank0.out", 1) not in node.server.files


def test_a_run_in_place_has_its_own_names_and_only_its_own_files(node: Node, tmp_path: Path) -> None:
    project = tmp_path  # the data directory lies inside the user's project
    old = project / "runs" / "old" / EVENTS
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    node.write(f"work/tensorboard/{EVENTS}", b"another attempt's")
    node.work = project
    existing = remember_existing(project)
    node.restart_worker(ignore=existing)
    old.write_bytes(b"old, and longer")
    new = project / "runs" / "new" / EVENTS
    new.parent.mkdir()
    new.write_bytes(b"new")
    node.settle()
    assert node.server.files == {(f"workdir/runs/new/{EVENTS}", 0): b"new"}


def test_a_file_that_goes_away_is_let_go(node: Node) -> None:
    log = node.write("logs/rank0.out", b"one\n")
    node.server.away = True
    with pytest.raises(ConnectionError):
        done(node.mirror.step(1.0))
    log.unlink()
    node.server.away = False
    node.settle()
    assert node.server.text("logs/rank0.out") == b""


def test_a_file_that_cannot_be_read_keeps_nobody_waiting(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    log = node.write("logs/rank0.out", b"one\n")
    node.write("logs/rank1.out", b"readable\n")
    open_any, forbidden = os.open, {log}

    def open_allowed(path: Path, *arguments: int) -> int:
        if path in forbidden:
            raise PermissionError(13, "Permission denied")
        return open_any(path, *arguments)

    monkeypatch.setattr(os, "open", open_allowed)
    node.settle()
    assert node.server.text("logs/rank1.out") == b"readable\n"
    forbidden.clear()
    node.write("logs/rank0.out", b"two\n")
    node.settle()
    assert node.server.text("logs/rank0.out") == b"one\ntwo\n"
