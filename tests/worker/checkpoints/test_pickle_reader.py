"""The opcode reader neither runs, nor loops, nor grows, whatever it is given; and it reads names as torch does."""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import sys
import tempfile
import time
import tracemalloc
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.checkpoints.keys import prefix_in, prefix_of, tensors
from worker.checkpoints.layout import Region, read_layout
from worker.checkpoints.pickle_reader import AT_A_GLANCE, THOROUGH, BadPickle, Mapping, describe
from worker.checkpoints.pieces import CannotRewrite, write
from worker.checkpoints.rewrite import rewriting_of

torch = pytest.importorskip("torch")
OPERATIONS = [operation.code.encode("latin-1") for operation in pickletools.opcodes]
BRIEFLY = replace(THOROUGH, operations=2000, seconds=5.0)

arguments = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(
        [b"\x01a", b"os\nsystem\n", b"\xff\xff\xff\xff", b"\x04\x00\x00\x00name", b"9" * 50 + b"\n"]
    ),
)
programs = st.lists(st.tuples(st.sampled_from(OPERATIONS), arguments), max_size=40).map(
    lambda pairs: b"".join(code + argument for code, argument in pairs)
)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.binary(max_size=200), programs))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    known = set(sys.modules)
    for pickled in (data, b"\x80\x02" + data + b"."):
        try:
            described = describe(pickled, BRIEFLY)
        except BadPickle:
            continue
        assert described.size_bytes <= len(pickled)
        list(described.state_dicts())
    assert {name for name in set(sys.modules) - known if not name.startswith("encodings.")} == set()


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.text(max_size=12), st.integers(0, 3), max_size=6),
    st.sampled_from(["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."]),
    st.sampled_from([2, 3, 4, 5]),
    st.booleans(),
)
def test_names_are_read_and_shortened_as_torch_reads_them(
    names: dict[str, int], prefix: str, protocol: int, old: bool
) -> None:
    state = {prefix + name: torch.full((size,), float(size)) for name, size in names.items()}
    source = io.BytesIO()
    torch.save(
        {"model": state, "note": "module.stays"}, source,
        pickle_protocol=protocol, _use_new_zipfile_serialization=not old,
    )  # fmt: skip
    loaded = torch.load(io.BytesIO(rewritten(source.getvalue())), weights_only=protocol == 2)
    found = prefix_in(state)
    assert found.startswith(prefix) or not state
    assert list(loaded["model"]) == [name[len(found) :] for name in state]
    assert all(torch.equal(loaded["model"][name[len(found) :]], value) for name, value in state.items())
    assert loaded["note"] == "module.stays"


def rewritten(content: bytes, *, safetensors: bool = False) -> bytes:
    """As the program would write it. Raises CannotRewrite, ValueError."""
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as target:
        source.write(content)
        source.flush()
        rewriting = rewriting_of(Region.of(source.fileno()), strip=True, safetensors=safetensors)
        write(rewriting.pieces, target.fileno())
        target.seek(0)
        return target.read()


@settings(max_examples=150, deadline=None)
@given(st.data(), st.booleans())
def test_a_damaged_checkpoint_is_rewritten_within_bounds_or_refused(data: st.DataObject, old: bool) -> None:
    buffer = io.BytesIO()
    state = {"module.a": torch.ones(3, 2).t(), "module.b": torch.ones(2)}
    torch.save(state, buffer, _use_new_zipfile_serialization=not old)
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + 2] = data.draw(st.binary(min_size=2, max_size=2))
    for safetensors in (False, True):
        try:
            found = rewritten(bytes(content), safetensors=safetensors)
        except (CannotRewrite, ValueError):
            continue
        assert len(found) <= 2 * len(content) + 1024 * 1024


def timed(data: bytes) -> tuple[float, int]:
    """How long a look at it takes, and how much memory."""
    tracemalloc.start()
    began = time.monotonic()
    try:
        with pytest.raises(BadPickle):
            describe(data, replace(AT_A_GLANCE, operations=100_000))
        return time.monotonic() - began, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"}" * 2_000_000,
        b"\x8c\x01a" * 2_000_000,
        b"(" * 1_000_000 + b"t" * 1_000_000,
        b"]" + b"2" * 1_000_000,
        b"}\x94" + b"h\x00" * 1_000_000,
        b")" + b"\x85" * 1_000_000,
        b"N" + b"\x94h\x00\x86" * 300_000,
    ],
    ids=["dictionaries", "texts", "marks", "copies", "memo", "nested", "doubled"],
)
def test_small_bombs_stay_small(data: bytes) -> None:
    seconds, memory = timed(b"\x80\x04" + data + b".")
    assert seconds < 20 and memory < 200 * 1024 * 1024


@pytest.mark.parametrize(
    "data",
    [
        b"\x8d" + struct.pack("<Q", 2**62) + b"x",
        b"\x8e" + struct.pack("<Q", 2**40) + b"x",
        b"\x8b" + struct.pack("<i", 2**31 - 1),
        b"\x95" + struct.pack("<Q", 2**60) + b".",
        b"L" + b"9" * 1_000_000 + b"L\n.",
        b"I" + b"9" * 1_000_000 + b"\n.",
        b"r\xff\xff\xff\xff.",
        b"j\xff\xff\xff\xff.",
    ],
)
def test_lengths_that_are_not_there_cost_nothing(data: bytes) -> None:
    seconds, memory = timed(b"\x80\x04" + data)
    assert seconds < 10 and memory < 50 * 1024 * 1024


# -- crafted zip files -------------------------------------------------------------------------


def checkpoint(*, names: int = 1) -> bytes:
    buffer = io.BytesIO()
    storage = torch.ones(250_000)
    torch.save({f"module.w{number}": storage for number in range(names)}, buffer)
    return buffer.getvalue()


def crafted(change: Any) -> bytes:
    """A checkpoint whose list of members was changed: (zip file's bytes, where each entry is)."""
    content = bytearray(checkpoint())
    found, at = [], content.find(b"PK\x01\x02")
    while at >= 0:
        found.append(at)
        at = content.find(b"PK\x01\x02", at + 4)
    change(content, found)
    return bytes(content)


def all_at_the_pickle(content: bytearray, entries: list[int]) -> None:
    for at in entries:
        content[at + 42 : at + 46] = bytes(4)


def endless(content: bytearray, entries: list[int]) -> None:
    for at in entries:
        content[at + 20 : at + 28] = b"\xfe\xff\xff\xff" * 2


def beyond(content: bytearray, entries: list[int]) -> None:
    for at in entries:
        content[at + 42 : at + 46] = b"\xfe\xff\xff\x7f"


def compressed(content: bytearray, entries: list[int]) -> None:
    for at in entries:
        content[at + 10 : at + 12] = b"\x08\x00"


def twice(content: bytearray, entries: list[int]) -> None:
    name = content[entries[1] + 46 : entries[1] + 46 + 10]
    content[entries[0] + 46 : entries[0] + 46 + 10] = name


@pytest.mark.parametrize("change", [all_at_the_pickle, endless, beyond, compressed, twice])
@pytest.mark.parametrize("safetensors", [False, True])
def test_a_crafted_list_of_members_is_refused_or_harmless(change: Any, safetensors: bool) -> None:
    content = crafted(change)
    try:
        found = rewritten(content, safetensors=safetensors)
    except (CannotRewrite, ValueError):
        return
    assert len(found) <= 2 * len(content)


def test_an_end_that_speaks_of_a_huge_list_is_refused(tmp_path: Path) -> None:
    content = bytearray(checkpoint())
    at = content.rfind(b"PK\x06\x06")
    content[at + 40 : at + 48] = struct.pack("<Q", 2**40)
    (tmp_path / "a.pt").write_bytes(content)
    assert prefix_of(tmp_path / "a.pt") is None
    with pytest.raises(ValueError, match="list of members is too long"):
        rewritten(bytes(content))


def test_one_storage_under_very_many_names_does_not_fill_the_disk() -> None:
    with pytest.raises(CannotRewrite, match="more than twice as large"):
        rewritten(checkpoint(names=40), safetensors=True)
    assert len(rewritten(checkpoint(names=2), safetensors=True)) > 2_000_000


def test_the_rewritten_pickles_checksum_is_right_everywhere() -> None:
    found = rewritten(checkpoint())
    with zipfile.ZipFile(io.BytesIO(found)) as archive:
        assert archive.testzip() is None
        pickled = next(info for info in archive.infolist() if info.filename.endswith("data.pkl"))
        assert zlib.crc32(archive.read(pickled)) == pickled.CRC


def test_a_checkpoint_written_without_checksums_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(torch.serialization, "set_crc32_options"):
        pytest.skip("needs a torch that can leave them out")
    torch.serialization.set_crc32_options(False)
    try:
        content = checkpoint()
    finally:
        torch.serialization.set_crc32_options(True)
    assert list(torch.load(io.BytesIO(rewritten(content)), weights_only=True)) == ["w0"]


def test_what_unpickling_would_give_is_described(tmp_path: Path) -> None:
    described = describe(pickle.dumps({"a": {"b": 1}, "c": [2]}, 2))
    assert isinstance(described.root, Mapping)
    assert [key.value for key, _ in described.root.entries] == ["a", "c"]
    (tmp_path / "a.pt").write_bytes(checkpoint())
    with (tmp_path / "a.pt").open("rb") as file:
        layout = read_layout(Region.of(file.fileno()))
    assert set(tensors(layout.description.root)) == {"module.w0"}  # type: ignore[union-attr]
