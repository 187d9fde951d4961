"""What of this machine the dashboard reads for others than the owner: files for everybody, where they really lie."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.paths import is_public, open_if
from dashboard.script_reader import targets
from dashboard.script_reader.source import UnreadableScript
from dashboard.snapshots.archive import pack
from dashboard.snapshots.selection import select
from db import acting
from domain.people.rights import Rights
from domain.people.roles import Role

MEMBER = Rights("mia", everywhere=Role.MEMBER)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody on this machine may list; tmp_path is private."""
    folder = Path(tempfile.mkdtemp(prefix="rankzero-public-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def written(path: Path, content: str = "print(1)\n", mode: int = 0o644) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_devices_and_pipes_are_no_code_of_anybody(public: Path, mode: int) -> None:
    os.mkfifo(pipe := public / "pipe.py")
    pipe.chmod(mode)
    for path in (Path("/dev/zero"), Path("/dev/null"), pipe):
        assert not is_public(path) and open_if(Path.exists, path) is None
        with acting.acting(MEMBER), pytest.raises(UnreadableScript):
            targets.read_target(str(path))


def test_a_name_that_leads_elsewhere_once_it_is_opened_opens_nothing(public: Path, tmp_path: Path) -> None:
    hidden, name = written(tmp_path / "hidden.py"), public / "train.py"
    written(public / "open.py")
    assert tmp_path.stat().st_mode & 0o001 == 0 or tmp_path.parent.stat().st_mode & 0o001 == 0

    def turning(path: Path) -> bool:
        answer = is_public(path)
        if path == name:  # the link is turned between the look and the opening
            name.unlink()
            name.symlink_to(hidden)
        return answer

    name.symlink_to(public / "open.py")
    assert open_if(turning, name) is None
    name.unlink()
    name.symlink_to(public / "open.py")
    with open_if(is_public, name) or pytest.fail("it is for everybody") as file:
        assert file.read() == b"print(1)\n"


def test_a_folder_that_became_a_link_is_not_packed(public: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    written(tmp_path / "private" / "key.py", "SECRET = 1\n")
    (public / "code").mkdir(mode=0o755)
    written(public / "code" / "key.py", "PUBLIC = 1\n")
    written(public / "train.py")
    selection = select(public, ask_git=False).public_part()
    shutil.rmtree(public / "code")
    (public / "code").symlink_to(tmp_path / "private")
    pack(selection, tmp_path / "packed.tar", 10**6)
    with tarfile.open(tmp_path / "packed.tar") as archive:
        assert archive.getnames() == ["train.py"]
