"""The compressed form of a file: every range is that of the content, and damage is no content."""

from __future__ import annotations

import gzip
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.storage import compressed
from dashboard.storage.compressed import compressed_path, content_bytes, pack, read, unpack, verify

CONTENT = b"".join(b"step %d loss %.7f\n" % (step, 1 / (step + 1)) for step in range(15_000))
"""Several blocks, the last one not full."""
EDGES = st.sampled_from([n * compressed.BLOCK_BYTES + d for n in range(7) for d in (-1, 0, 1)])
OFFSETS = (st.integers(0, len(CONTENT) + 10) | EDGES).filter(lambda offset: offset >= 0)


def packed(path: Path, content: bytes) -> Path:
    """A file in its compressed form only; returns its plain path."""
    path.write_bytes(content + b"not in the store yet")
    with path.open("rb") as source, compressed_path(path).open("w+b") as target:
        assert sum(pack(source, target, len(content))) == len(content)
        assert sum(verify(source, target, len(content))) == len(content)
    path.unlink()
    return path


@cache
def packed_once() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    """The content compressed; its folder lives as long as the tests."""
    folder = tempfile.TemporaryDirectory()
    return folder, packed(Path(folder.name, "7"), CONTENT)


@given(OFFSETS, OFFSETS)
def test_every_range_is_that_of_the_content(offset: int, limit: int) -> None:
    _, path = packed_once()
    assert read(path, offset, limit) == CONTENT[offset : offset + limit]


def test_any_gzip_program_reads_it(tmp_path: Path) -> None:
    path = packed(tmp_path / "7", CONTENT)
    assert gzip.decompress(compressed_path(path).read_bytes()) == CONTENT
    assert compressed_path(path).stat().st_size < len(CONTENT) / 2
    assert content_bytes(path) == len(CONTENT)


def test_a_large_file_has_larger_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "MOST_BLOCKS", 2)
    path = packed(tmp_path / "7", CONTENT)
    assert read(path, 0, len(CONTENT)) == CONTENT
    assert read(path, len(CONTENT) - 5, 100) == CONTENT[-5:]


def test_a_file_in_both_forms_is_read_as_it_came(tmp_path: Path) -> None:
    path = packed(tmp_path / "7", CONTENT)
    path.write_bytes(b"newer")
    assert (read(path, 0, 100), content_bytes(path)) == (b"newer", 5)
    assert (read(tmp_path / "8", 0, 100), content_bytes(tmp_path / "8")) == (b"", 0)


def test_it_is_unpacked_whole(tmp_path: Path) -> None:
    path = packed(tmp_path / "7", CONTENT)
    unpack(path, tmp_path / "other", tmp_path / "partial")
    assert (tmp_path / "other").read_bytes() == CONTENT
    assert {file.name for file in tmp_path.iterdir()} == {"7.gz", "other"}


@pytest.mark.parametrize("left_bytes", [0, 10, 5000, -1])
def test_one_that_was_cut_off_has_no_content(tmp_path: Path, left_bytes: int) -> None:
    path = packed(tmp_path / "7", CONTENT)
    whole = compressed_path(path).read_bytes()
    compressed_path(path).write_bytes(whole[:left_bytes])
    assert content_bytes(path) == 0
    with pytest.raises(OSError, match="damaged"):
        read(path, 0, 10)


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = packed(tmp_path / "7", CONTENT)
    content = bytearray(compressed_path(path).read_bytes())
    content[len(content) // 2] ^= 1
    compressed_path(path).write_bytes(content)
    with pytest.raises(OSError, match=r"damaged|CRC"):
        read(path, 0, len(CONTENT))
    plain = tmp_path / "plain"
    plain.write_bytes(CONTENT)
    with plain.open("rb") as source, compressed_path(path).open("rb") as target, pytest.raises(OSError):
        list(verify(source, target, len(CONTENT)))
