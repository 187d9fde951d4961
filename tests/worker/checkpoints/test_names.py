"""The reader of names neither runs, nor loops, nor grows, whatever it is given."""

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

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
def test_names_are_read_as_torch_wrote_them(names: dict[str, int], prefix: str, protocol: int, old: bool) -> None:
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
