"""The reader of names neither runs, nor loops, nor grows, whatever it is given; and damaged files are refused."""

from __future__ import annotations

import io
import pickletools
import struct
import sys
import tempfile
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.checkpoints.conversion import CannotConvert, PlannedConversion
from worker.checkpoints.convert import conversion_of
from worker.checkpoints.names import PickleNames, prefix_in, prefix_of

torch = pytest.importorskip("torch")
OPERATIONS = [operation.code.encode("latin-1") for operation in pickletools.opcodes]

arguments = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([b"\x01a", b"os\nsystem\n", b"\xff\xff\xff\xff", b"\x04\x00\x00\x00name", b"9" * 50 + b"\n"]),
)
programs = st.lists(st.tuples(st.sampled_from(OPERATIONS), arguments), max_size=40).map(
    lambda pairs: b"".join(code + argument for code, argument in pairs)
)


@settings(max_examples=4 * settings.default.max_examples)
@given(st.one_of(st.binary(max_size=200), programs))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    known = set(sys.modules)
    for pickled in (data, b"\x80\x02" + data + b"."):
        with suppress(ValueError):
            PickleNames(io.BytesIO(pickled), time.thread_time() + 5)
    assert {name for name in set(sys.modules) - known if not name.startswith("encodings.")} == set()


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
    prefix_found = prefix_in(state)
    assert prefix_found.startswith(prefix) or not state
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        file.write(source.getvalue())
        file.flush()
        assert prefix_of(Path(file.name)) == (prefix_found or None)
    if protocol == 2:
        loaded = torch.load(io.BytesIO(converted(source.getvalue())), weights_only=True)
        assert set(loaded["model"]) == {name[len(prefix_found) :] for name in state}
        assert all(torch.equal(loaded["model"][name[len(prefix_found) :]], value) for name, value in state.items())
        assert loaded["note"] == "module.stays"


def converted(content: bytes, *, safetensors: bool = False) -> bytes:
    """The copy as it would be written. Raises CannotConvert."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        source.write_bytes(content)
        conversion = conversion_of(source, strip=True, safetensors=safetensors)
        if not isinstance(conversion, PlannedConversion):
            return content
        try:
            conversion.write(target)
        except Exception as error:  # torch's own of damaged hooks and the like, which the program answers, too
            raise CannotConvert(str(error)) from error
        return target.read_bytes()


@given(st.data(), st.booleans())
def test_a_damaged_checkpoint_is_converted_within_bounds_or_refused(data: st.DataObject, old: bool) -> None:
    buffer = io.BytesIO()
    state = {"module.a": torch.ones(3, 2).t(), "module.b": torch.ones(2)}
    torch.save(state, buffer, _use_new_zipfile_serialization=not old)
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + 2] = data.draw(st.binary(min_size=2, max_size=2))
    for safetensors in (False, True):
        try:
            copy = converted(bytes(content), safetensors=safetensors)
        except CannotConvert:
            continue
        assert len(copy) <= 2 * len(content) + 1024 * 1024


def test_a_place_before_the_files_beginning_is_damage() -> None:
    buffer = io.BytesIO()
    torch.save({"module.a": torch.ones(2)}, buffer)
    content = bytearray(buffer.getvalue())
    end = content.rindex(b"PK\x06\x06")
    content[end + 48 : end + 56] = (10**6).to_bytes(8, "little")  # where the directory is said to begin
    with pytest.raises(CannotConvert, match="damaged"):
        converted(bytes(content), safetensors=True)


def memory_of(data: bytes) -> int:
    """Bytes of memory that reading its names takes."""
    tracemalloc.start()
    try:
        with suppress(ValueError):
            PickleNames(io.BytesIO(data), time.thread_time() + 3)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"}" * 2_000_000, id="dictionaries", marks=pytest.mark.long),
        pytest.param(b"\x8c\x01a" * 2_000_000, id="texts", marks=pytest.mark.long),
        pytest.param(b"(" * 1_000_000 + b"t" * 1_000_000, id="marks", marks=pytest.mark.long),
        pytest.param(b"]" + b"2" * 1_000_000, id="copies", marks=pytest.mark.long),
        pytest.param(b"}\x94" + b"h\x00" * 1_000_000, id="memo", marks=pytest.mark.long),
        pytest.param(b")" + b"\x85" * 1_000_000, id="nested"),
        pytest.param(b"N" + b"\x94h\x00\x86" * 300_000, id="doubled"),
    ],
)
def test_small_bombs_stay_small(data: bytes) -> None:
    assert memory_of(b"\x80\x04" + data + b".") < 200 * 1024 * 1024


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
    assert memory_of(b"\x80\x04" + data) < 50 * 1024 * 1024


# -- crafted zip files -------------------------------------------------------------------------


def checkpoint() -> bytes:
    buffer = io.BytesIO()
    torch.save({"module.w0": torch.ones(250_000)}, buffer)
    return buffer.getvalue()


def crafted(change: Any) -> bytes:
    """A checkpoint whose list of members was changed: (zip file's bytes, where each entry is)."""
    content = bytearray(checkpoint())
    places, at = [], content.find(b"PK\x01\x02")
    while at >= 0:
        places.append(at)
        at = content.find(b"PK\x01\x02", at + 4)
    change(content, places)
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
        copy = converted(content, safetensors=safetensors)
    except CannotConvert:
        return
    assert len(copy) <= 2 * len(content)


def test_an_end_that_speaks_of_a_huge_list_is_refused() -> None:
    content = bytearray(checkpoint())
    at = content.rfind(b"PK\x06\x06")
    content[at + 40 : at + 48] = struct.pack("<Q", 2**40)
    with pytest.raises(CannotConvert, match="it is damaged"):
        converted(bytes(content))


def test_a_checkpoint_written_without_checksums_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(torch.serialization, "set_crc32_options"):
        pytest.skip("needs a torch that can leave them out")
    torch.serialization.set_crc32_options(False)
    try:
        content = checkpoint()
    finally:
        torch.serialization.set_crc32_options(True)
    assert list(torch.load(io.BytesIO(converted(content)), weights_only=True)) == ["w0"]
