"""What a browser uploads: unpacked with limits, whatever somebody put into it."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from dashboard.snapshots.git_address import CodeRefused
from dashboard.snapshots.uploads import scripts, unpack

MIB = 1024 * 1024


def zipped(path: Path, *, level: int = zipfile.ZIP_STORED, **files: str | bytes) -> Path:
    with zipfile.ZipFile(path, "w", level) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return path


def tarred(path: Path, *members: tarfile.TarInfo | tuple[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
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


def kept(file: Path, name: str, limit_bytes: int = MIB) -> list[str]:
    _, selection = unpack(file, name, file.with_name("unpacked"), limit_bytes)
    return [item.name for item in selection.items]


def refusal(file: Path, name: str, limit_bytes: int = MIB) -> str:
    with pytest.raises(CodeRefused) as refused:
        kept(file, name, limit_bytes)
    assert str(refused.value).endswith(".")
    return str(refused.value)


def test_a_script_is_a_project_of_one_file(tmp_path):
    (tmp_path / "upload").write_text("print(1)\n")
    own, selection = unpack(tmp_path / "upload", "C:\\work\\my train.py", tmp_path / "code", MIB)
    assert own == "my train.py" and scripts(selection, own) == ["my train.py"]


@pytest.mark.parametrize("name", ["project.zip", "project.tar.gz", "project.tgz", "project.tar"])
def test_an_archive_with_one_folder_is_that_folder(tmp_path, name):
    files = {
        "project/train.py": b"",
        "project/package/x.py": b"",
        "project/.git/config": b"",
        "__MACOSX/x": b"",
    }
    files |= {"project/.gitignore": b"data\n", "project/data/x": b"", "project/venv/pyvenv.cfg": b""}
    if name.endswith(".zip"):
        file = tmp_path / "upload"
        with zipfile.ZipFile(file, "w") as archive:
            for inside, content in files.items():
                archive.writestr(inside, content)
    else:
        mode = "w" if name.endswith(".tar") else "w:gz"
        file = tarred(tmp_path / "upload", *files.items(), mode=mode)
    assert kept(file, name) == [".gitignore", "package/x.py", "train.py"]


def test_likeliest_script_comes_first(tmp_path):
    file = zipped(tmp_path / "upload", a_py="", x__train_py="")
    with zipfile.ZipFile(file, "w") as archive:
        for name in (
            "zoo.py",
            "setup.py",
            "main.py",
            "a/train.py",
            "train_gpt.py",
            "a/__init__.py",
            "notes.md",
        ):
            archive.writestr(name, "")
    _, selection = unpack(file, "p.zip", tmp_path / "code", MIB)
    assert scripts(selection, None) == ["train_gpt.py", "main.py", "zoo.py", "a/train.py"]


@pytest.mark.parametrize("name", ["../x.py", "a/../../x.py", "/etc/x.py", "..\\..\\x.py", "a/" * 40 + "x"])
def test_names_that_lead_out_are_refused(tmp_path, name):
    assert "not a name inside a folder" in refusal(tarred(tmp_path / "t", (name, b"x")), "p.tgz")
    with zipfile.ZipFile(tmp_path / "z", "w") as archive:
        archive.writestr(name, "x")
    (tmp_path / "again").mkdir()
    assert "not a name inside a folder" in refusal((tmp_path / "z").rename(tmp_path / "again" / "z"), "p.zip")
    assert sorted(path.name for path in tmp_path.rglob("x.py")) == []


def test_links_and_devices_stay_in_the_archive(tmp_path):
    members = [special("evil", tarfile.SYMTYPE, "/etc"), special("hard", tarfile.LNKTYPE, "/etc/passwd")]
    members += [special("null", tarfile.CHRTYPE), special("pipe", tarfile.FIFOTYPE)]
    file = tarred(tmp_path / "upload", *members, ("train.py", b"pass"))
    assert kept(file, "p.tar.gz") == ["train.py"]
    assert [path.name for path in (tmp_path / "unpacked").iterdir()] == ["train.py"]


def test_a_file_cannot_be_written_through_another(tmp_path):
    file = tarred(tmp_path / "upload", special("a", tarfile.SYMTYPE, "/tmp"), ("a/x.py", b""), ("a", b""))
    assert "cannot be unpacked" in refusal(file, "p.tgz")
    file = tarred(tmp_path / "upload2", ("x.py", b"1"), ("x.py", b"2"))
    file = file.rename(tmp_path / "unpacked" / "upload2")
    assert "cannot be unpacked" in refusal(file, "p.tgz")


def test_bombs_are_stopped_while_they_unpack(tmp_path):
    bomb = zipped(tmp_path / "bomb", level=zipfile.ZIP_DEFLATED, x=b"\0" * 50 * MIB)
    assert bomb.stat().st_size < MIB
    assert "contains more than 1 MiB" in refusal(bomb, "p.zip")
    assert sum(path.stat().st_size for path in (tmp_path / "unpacked").rglob("*")) <= 2 * MIB


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, b"Z"])
def test_a_small_archive_of_gigabytes_costs_neither_disk_nor_memory(tmp_path, kind):
    """In a file, in a name, in extended headers, in entries that are skipped: 3 MB unpack to 3 GB."""
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 3 * 1024 * MIB
    piece = gzip.compress(bytes(64 * MIB), 6)
    (tmp_path / "bomb").write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT)) + piece * 48)
    assert (tmp_path / "bomb").stat().st_size < 4 * MIB
    tracemalloc.start()
    try:
        words = refusal(tmp_path / "bomb", "p.tgz")
        assert "the limit" in words or "unpack" in words, words
        assert tracemalloc.get_traced_memory()[1] < 150 * MIB
    finally:
        tracemalloc.stop()
    assert sum(path.stat().st_size for path in (tmp_path / "unpacked").rglob("*")) <= 2 * MIB


def test_a_zip_of_a_million_names_is_refused_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("dashboard.snapshots.uploads._MOST_DIRECTORY_BYTES", 500)
    many = zipped(tmp_path / "many", **{f"f{number}": "" for number in range(20)})
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert "more than 10000 files" in refusal(many, "p.zip")


def test_too_many_files_are_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("dashboard.snapshots.uploads.MOST_FILES", 10)
    many = zipped(tmp_path / "many", **{f"f{number}": "" for number in range(11)})
    assert "more than 10 files" in refusal(many, "p.zip")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.zip", b"PK\x03\x04 no zip", "is not a valid archive"),
        ("p.tar.gz", b"no gzip", "is not a valid archive"),
        ("p.tar", b"no tar", "is not a valid archive"),
        ("p.tgz", b"", "is not a valid archive"),
        ("p.rar", b"x", "neither a script nor an archive"),
        ("train.sh", b"x", "neither a script nor an archive"),
        (".", b"x", "neither a script nor an archive"),
        ("train.py", b"\x7fELF\0", "is not a Python script"),
        ("x" * 300 + ".py", b"x", "neither a script nor an archive"),
    ],
)
def test_upload_without_code_is_refused_in_a_sentence(tmp_path, name, content, words):
    (tmp_path / "upload").write_bytes(content)
    assert words in refusal(tmp_path / "upload", name)


def test_an_archive_cut_short_is_refused(tmp_path):
    file = tarred(tmp_path / "upload", ("train.py", bytes(range(256)) * 4000))
    file.write_bytes(file.read_bytes()[:-2000])
    assert "p.tgz" in refusal(file, "p.tgz")


def test_an_encrypted_zip_is_refused(tmp_path):
    file = zipped(tmp_path / "upload", x="secret")
    content = bytearray(file.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    content[content.index(b"PK\x03\x04") + 6] |= 1
    file.write_bytes(content)
    assert "cannot be unpacked" in refusal(file, "p.zip")
