"""An archive becomes the folder it was made of; what is no such archive leaves nothing behind."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from worker.checkpoints.copies import copy_folder
from worker.checkpoints.folders import Folder, Kind
from worker.launch.unpack import BadArchive, unpack
from worker.node.run_files import file_key


def archive_of(tmp_path: Path, *members: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    path = tmp_path / "step_1.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return path


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def folder_at(path: Path, files: dict[str, bytes]) -> Folder:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    keys = {name: file_key((path / name).stat()) for name in sorted(files)}
    return Folder(path, Kind.SHARDED, keys)


FILES = {
    ".metadata": b"m",
    "__0_0.distcp": b"x" * 100_000,
    "empty": b"",
    "deep/er/model.pt": b"y" * 511,
    "n" * 150 + "/" + "ü" * 60: b"long",
}


def test_a_folder_comes_back_as_it_was(tmp_path: Path) -> None:
    folder, archive = folder_at(tmp_path / "step_1", FILES), tmp_path / "step_1.tar"
    assert copy_folder(folder, archive)
    target = unpack(archive, tmp_path / "resume/step_1", max_bytes=200_000)
    unpacked = {path.relative_to(target).as_posix(): path for path in target.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in unpacked.items()} == FILES
    assert [path.name for path in target.parent.iterdir()] == ["step_1"]


def test_packed_folder_is_an_ordinary_tar_file(tmp_path: Path) -> None:
    folder, archive = folder_at(tmp_path / "step_1", FILES), tmp_path / "step_1.tar"
    assert copy_folder(folder, archive)
    with tarfile.open(archive, "r:") as opened:
        files = {member.name: opened.extractfile(member) for member in opened if member.isreg()}
        assert {name: file.read() for name, file in files.items() if file} == {
            f"step_1/{name}": data for name, data in FILES.items()
        }
        assert {(member.mtime, member.uid, member.uname) for member in opened.getmembers()} == {(0, 0, "")}


@pytest.mark.parametrize(
    "members",
    [
        [special("top/link", tarfile.SYMTYPE, "/etc/passwd")],
        [special("top/link", tarfile.LNKTYPE, "top/other")],
        [special("top/pipe", tarfile.FIFOTYPE)],
        [special("top/device", tarfile.CHRTYPE)],
        [("/etc/absolute", b"x")],
        [("../outside", b"x")],
        [("top/../../outside", b"x")],
        [("top/a", b"1"), ("top/a", b"2")],
        [("top/a", b"1"), ("top/a/b", b"2")],
        [("top/a/b", b"1"), ("top/a", b"2")],
        [("one/a", b"1"), ("two/b", b"2")],
        [("lonely file", b"1")],
        [],
        [("top/large", b"x" * 2000)],
        [(f"top/{n}", b"") for n in range(20)],
    ],
)
def test_other_archives_are_refused(tmp_path: Path, members: list[tarfile.TarInfo | tuple[str, bytes]]) -> None:
    (tmp_path / "resume").mkdir()
    archive = archive_of(tmp_path, *members)
    with pytest.raises(BadArchive):
        unpack(archive, tmp_path / "resume/step_1", max_bytes=1000, max_members=10)
    assert list((tmp_path / "resume").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["resume", "step_1.tar"]


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    members = [special("top/out", tarfile.SYMTYPE, str(tmp_path)), ("top/out/written", b"x")]
    with pytest.raises(BadArchive, match="neither a regular file nor a folder"):
        unpack(archive_of(tmp_path, *members), tmp_path / "resume", max_bytes=1000)
    assert not (tmp_path / "written").exists()


def test_no_cut_of_an_archive_is_taken_for_a_whole_one(tmp_path: Path) -> None:
    whole = archive_of(tmp_path, ("top/a", b"x" * 700), ("top/b", b"y" * 10)).read_bytes()
    cut = tmp_path / "cut.tar"
    for size in [*range(0, 4 * 512, 100), 511, 512, 1024]:
        cut.write_bytes(whole[:size])
        with pytest.raises(BadArchive):
            unpack(cut, tmp_path / "resume", max_bytes=1000)
        assert not (tmp_path / "resume").exists()


def test_bytes_that_are_no_archive_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    path.write_bytes(b"PK\x03\x04" + b"x" * 2000)
    with pytest.raises(BadArchive, match="damaged at byte 0"):
        unpack(path, tmp_path / "resume", max_bytes=1000)


def test_extended_headers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pax.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("top/" + "ü" * 200)
        archive.addfile(info)
    with pytest.raises(BadArchive):
        unpack(path, tmp_path / "resume", max_bytes=1000)


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "resume"
    target.mkdir()
    with pytest.raises(FileExistsError):
        unpack(archive_of(tmp_path, ("top/a", b"x")), target, max_bytes=1000)
    assert list(target.iterdir()) == []
