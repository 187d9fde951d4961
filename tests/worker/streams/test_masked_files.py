"""Secrets in logs and event files are masked before they leave the node, at their length and with right checksums."""

from __future__ import annotations

import gzip
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest
from tensorboard.compat.proto import event_pb2

from domain.masking.values import ValueMask
from tests.worker.sendings import done
from tests.worker.streams.event_bytes import record, scalar
from tests.worker.streams.mirroring_node import Node
from worker.streams import masked_files
from worker.streams.events import EventTail
from worker.streams.masked_files import MaskedFile, mask_in_place
from worker.streams.masked_traces import is_trace_masked

EVENTS = "work/events.out.tfevents.1700000000.node.1.0"
TOKEN = "hf_AbCdEfGhIjKlMn"
MASK = ValueMask([TOKEN])
HIDDEN = b"*" * len(TOKEN)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path / "data/runs/abcdefghij/attempts/1/node0")
    node.restart_worker(mask=MASK)
    return node


def step(node: Node) -> None:
    """Let the mirror send what it may."""
    node.now += 1
    done(node.mirror.step(node.now))


def text_event(step: int, text: str) -> bytes:
    event = event_pb2.Event(step=step, wall_time=1.5)
    value = event.summary.value.add(tag=f"note/{text}")
    value.metadata.plugin_data.plugin_name = "text"
    value.tensor.dtype = 7
    value.tensor.string_val.append(text.encode())
    return record(event.SerializeToString())


def test_a_value_split_over_two_writes_is_never_sent(node: Node) -> None:
    node.write("logs/rank0.out", f"token {TOKEN[:9]}".encode())
    step(node)
    assert node.server.text("logs/rank0.out") == b"token "
    node.write("logs/rank0.out", f"{TOKEN[9:]} is it\n".encode())
    node.settle()
    assert node.server.text("logs/rank0.out") == b"token " + HIDDEN + b" is it\n"


def test_live_lines_do_not_wait_for_what_may_follow(node: Node) -> None:
    node.write("logs/rank0.out", b"step 1\n")
    step(node)
    assert node.server.text("logs/rank0.out") == b"step 1\n"


@pytest.mark.parametrize(("end", "sent"), [(TOKEN[:4], TOKEN[:4].encode()), (TOKEN[:12], b"*" * 12)])
def test_the_end_is_sent_when_the_writer_has_ended(node: Node, end: str, sent: bytes) -> None:
    node.write("logs/rank0.out", f"token {end}".encode())
    node.mirror.finish()
    node.settle()
    assert node.server.text("logs/rank0.out") == b"token " + sent


def test_records_keep_their_places_and_have_right_checksums(node: Node) -> None:
    content = scalar(1, 0.5) + text_event(2, f"uses {TOKEN}") + scalar(3, 0.25)
    for at in range(0, len(content), 7):
        node.write(EVENTS, content[at : at + 7])
        step(node)
    node.mirror.finish()
    node.settle()
    expected = scalar(1, 0.5) + text_event(2, f"uses {HIDDEN.decode()}") + scalar(3, 0.25)
    assert node.server.text(EVENTS) == expected


def test_a_restarted_worker_goes_on_inside_a_record(node: Node) -> None:
    content = text_event(1, f"{TOKEN} {'x' * 3_000_000}") + scalar(2, 0.5)
    expected = text_event(1, f"{HIDDEN.decode()} {'x' * 3_000_000}") + scalar(2, 0.5)
    node.write(EVENTS, content)
    node.server.files[EVENTS, 0] += expected[:1_500_000]
    node.settle()
    assert node.server.text(EVENTS) == expected


def test_damaged_bytes_are_masked_and_what_follows_them_is_whole(node: Node, tmp_path: Path) -> None:
    damaged = scalar(1, 0.5) + b"\xff" * 40 + TOKEN.encode() + b"\xff" * 40 + text_event(2, TOKEN) + scalar(3, 0.5)
    node.write(EVENTS, damaged)
    node.mirror.finish()
    node.settle()
    sent = node.server.text(EVENTS)
    assert TOKEN.encode() not in sent and len(sent) == len(damaged)
    mirrored = tmp_path / "mirrored"
    mirrored.write_bytes(sent)
    assert [point[0] for point in EventTail(mirrored).read().series["train/loss"]] == [1, 3]


def test_any_reads_of_a_file_give_the_same_bytes(tmp_path: Path) -> None:
    draw = random.Random(3)
    for number in range(60):
        words = [TOKEN, TOKEN[:8], TOKEN[9:], "hf_hf_", "\n", "x" * draw.randint(0, 50)]
        content = "".join(draw.choice(words) for _ in range(60)).encode()
        (path := tmp_path / str(number)).write_bytes(content)
        with path.open("rb") as file:
            masked, at = MaskedFile(MASK, has_events=False), draw.randint(0, len(content))
            read = b"".join(
                masked.read(file.fileno(), place, 5, final=True) for place in range(at % 5, len(content), 5)
            )
        assert read == MASK.content(content)[at % 5 :]


def test_a_packed_trace_is_masked_once(tmp_path: Path) -> None:
    trace = tmp_path / "trace0.json.gz"
    text = f'{{"name": "load {TOKEN}", "pad": "{"y" * (2 << 20)}{TOKEN}"}}'.encode()
    trace.write_bytes(gzip.compress(text))
    assert is_trace_masked(trace, MASK)
    assert gzip.decompress(trace.read_bytes()) == text.replace(TOKEN.encode(), HIDDEN)
    (broken := tmp_path / "trace1.json.gz").write_bytes(b"not gzip")
    assert not is_trace_masked(broken, MASK)


def test_a_file_masked_in_place_is_what_was_sent(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.node"
    path.write_bytes(scalar(1, 0.5) + text_event(2, f"uses {TOKEN}") + scalar(3, 0.25) + TOKEN[:9].encode())
    mask_in_place(path, MASK)
    assert path.read_bytes() == scalar(1, 0.5) + text_event(2, f"uses {HIDDEN.decode()}") + scalar(3, 0.25) + b"*" * 9


def test_masking_in_place_goes_on_where_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that was half overwritten would not be recognized again."""
    monkeypatch.setattr(masked_files, "BLOCK_BYTES", 64)
    draw, write = random.Random(5), os.pwrite
    for number in range(60):
        content = "".join(draw.choice([TOKEN, "hf_", "\n", "*", "x" * draw.randint(0, 50)]) for _ in range(60)).encode()
        (path := tmp_path / str(number)).write_bytes(content)
        writes_left = draw.randint(0, 8)

        def killed(*what) -> int:
            nonlocal writes_left
            writes_left -= 1
            return write(*what) if writes_left >= 0 else int("killed")

        with monkeypatch.context() as patched, suppress(ValueError):
            patched.setattr(os, "pwrite", killed)
            mask_in_place(path, MASK)
        mask_in_place(path, MASK)
        assert path.read_bytes() == MASK.content(content)


def test_holes_stay_and_links_are_not_followed(tmp_path: Path) -> None:
    (path := tmp_path / "rank0.out").write_bytes(TOKEN.encode())
    os.truncate(path, 1 << 40)
    with path.open("r+b") as file:
        file.seek(1 << 39)
        file.write(TOKEN.encode())
    mask_in_place(path, MASK)
    assert path.stat().st_size == 1 << 40 and path.stat().st_blocks * 512 < 1 << 16
    with path.open("rb") as file:
        assert file.read(len(HIDDEN)) == HIDDEN
        file.seek(1 << 39)
        assert file.read(len(HIDDEN)) == HIDDEN
    (elsewhere := tmp_path / "elsewhere").write_text(TOKEN)
    (link := tmp_path / "rank1.out").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic links"):
        mask_in_place(link, MASK)
    assert elsewhere.read_text() == TOKEN


def test_a_worker_restarted_after_masking_sends_nothing_again(node: Node) -> None:
    log = node.write("logs/rank0.out", f"{TOKEN} first\n{TOKEN}".encode())
    node.mirror.finish()
    node.settle()
    assert TOKEN[:8].encode().hex() not in (node.dir / "worker/mirror.json").read_text()
    mask_in_place(log, MASK)
    node.restart_worker(mask=MASK)
    node.mirror.finish()
    node.settle()
    assert [*node.server.files.items()] == [(("logs/rank0.out", 0), HIDDEN + b" first\n" + HIDDEN)]
    node.restart_worker(mask=MASK)
    node.write("logs/rank0.out", b" more")
    node.mirror.finish()
    node.settle()
    assert node.server.text("logs/rank0.out", 0) == HIDDEN + b" first\n" + HIDDEN + b" more"
