"""Code on a node: fetched once, checked, kept within limits, unpacked without leaving its folder."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from dashboard.snapshots.archive import pack
from dashboard.snapshots.selection import select
from worker.launch.preparation import install, unpack_code
from worker.launch.unpack import BadArchive

MIB = 1024 * 1024


class Shop:
    """Where archives are fetched, and how often."""

    def __init__(self) -> None:
        self.archives: dict[str, bytes] = {}
        self.fetched: list[str] = []

    def add(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        self.archives[sha256] = content
        return sha256

    def fetch(self, sha256: str, target: Path) -> None:
        self.fetched.append(sha256)
        target.write_bytes(self.archives[sha256])


@pytest.fixture
def shop() -> Shop:
    return Shop()


def tar_of(*members: tuple[str, bytes, bytes | str]) -> bytes:
    """An archive of (name, type, content or link's target)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if isinstance(content, str):
                info.linkname = content
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return buffer.getvalue()


FILE, LINK, FOLDER = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE


def test_packed_folder_is_unpacked(tmp_path):
    code = tmp_path / "code"
    long = "long" * 30
    (code / "package" / long).mkdir(parents=True)
    (code / "empty").mkdir()
    (code / "package" / long / f"{long}.py").write_bytes(b"x" * 100_000)
    odd = os.fsdecode(b"\xff odd\n.py")
    (code / odd).touch()
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "run.sh").chmod(0o755)
    (code / "package" / "here").symlink_to(f"{long}/{long}.py")
    (code / "top").symlink_to(".")
    packed = pack(select(code), tmp_path / "archive", MIB)
    with packed.path.open("rb") as file:
        (tmp_path / "work").mkdir()
        unpack_code(file, tmp_path / "work")
    work = tmp_path / "work"
    assert (work / "package" / "here").read_bytes() == b"x" * 100_000
    assert (work / "top").readlink() == Path() and (work / odd).is_file() and (work / "empty").is_dir()
    assert (work / "run.sh").stat().st_mode & 0o777 == 0o700
    assert (work / "package" / long / f"{long}.py").stat().st_mode & 0o777 == 0o600
    assert pack(select(work), tmp_path / "again", MIB).sha256 == packed.sha256


@pytest.mark.parametrize(
    "members",
    [
        [("/x", FILE, b"")],
        [("../x", FILE, b"")],
        [("a/../../x", FILE, b"")],
        [("x", LINK, "/etc/passwd")],
        [("x", LINK, "../y")],
        [("a/x", LINK, "../../y")],
        [("a/x", LINK, "b/../../y")],
        [("x", LINK, "")],
        [("x", tarfile.LNKTYPE, "y")],
        [("x", tarfile.CHRTYPE, b"")],
        [("x", tarfile.FIFOTYPE, b"")],
    ],
)
def test_nothing_leaves_the_folder(tmp_path, shop, members):
    sha256 = shop.add(tar_of(*members))
    (tmp_path / "run").mkdir()
    with pytest.raises(BadArchive):
        install(sha256, tmp_path / "cache", tmp_path / "run" / "work", shop.fetch)
    assert list((tmp_path / "run").iterdir()) == []


def test_nothing_is_written_through_a_link(tmp_path, shop):
    (tmp_path / "run").mkdir()
    (tmp_path / "outside").mkdir()
    content = tar_of(("a", LINK, "b"), ("b/x", FILE, b"1"), ("a/y", FILE, b"2"))
    with pytest.raises(FileExistsError):
        install(shop.add(content), tmp_path / "cache", tmp_path / "run" / "work", shop.fetch)
    assert list((tmp_path / "run").iterdir()) == []


def test_it_is_fetched_once_and_a_damaged_copy_again(tmp_path, shop):
    sha256 = shop.add(tar_of(("train.py", FILE, b"1")))
    for number in range(3):
        install(sha256, tmp_path / "cache", tmp_path / f"work{number}", shop.fetch)
        assert (tmp_path / f"work{number}" / "train.py").read_bytes() == b"1"
    assert shop.fetched == [sha256]
    (copy,) = (tmp_path / "cache").iterdir()
    copy.write_bytes(b"damaged")
    install(sha256, tmp_path / "cache", tmp_path / "again", shop.fetch)
    assert shop.fetched == [sha256] * 2 and (tmp_path / "again" / "train.py").exists()


def test_least_recently_used_snapshot_makes_room(tmp_path, shop):
    first, second, third = (shop.add(tar_of(("x", FILE, bytes([n]) * 20_000))) for n in range(3))
    for number, sha256 in enumerate((first, second)):
        install(sha256, tmp_path / "cache", tmp_path / f"work{number}", shop.fetch, 70_000)
    os.utime(tmp_path / "cache" / f"{second}.tar", (1, 1))
    install(third, tmp_path / "cache", tmp_path / "work2", shop.fetch, 70_000)
    kept = {path.name for path in (tmp_path / "cache").iterdir()}
    assert kept == {f"{first}.tar", f"{third}.tar"}


def test_an_interrupted_start_begins_with_a_fresh_folder(tmp_path, shop):
    sha256 = shop.add(tar_of(("train.py", FILE, b"1")))
    left = tmp_path / ".work.partial"
    left.mkdir()
    (left / "half").touch()
    install(sha256, tmp_path / "cache", tmp_path / "work", shop.fetch)
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["train.py"] and not left.exists()


def test_a_failed_fetch_leaves_nothing_behind(tmp_path, shop):
    def broken(sha256: str, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        install("0" * 64, tmp_path / "cache", tmp_path / "work", broken)
    assert list((tmp_path / "cache").iterdir()) == [] and not (tmp_path / "work").exists()
