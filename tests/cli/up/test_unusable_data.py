"""A data folder that cannot be written is named in a sentence, without a number and without a traceback."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.terminal import CommandFailed
from cli.up import parent
from dashboard import private_files
from dashboard.app import server
from dashboard.settings import Settings


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """The dashboard makes a whole process its own; that of the tests stays as it is."""
    umask, handlers = os.umask(0o022), logging.root.handlers.copy()
    os.umask(umask)
    yield
    os.umask(umask)
    logging.root.handlers[:] = handlers


@contextmanager
def refuse(path: Path) -> Iterator[None]:
    """As a read-only disk does."""
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
    yield


def test_a_read_only_folder_is_told_by_up_and_by_the_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parent, "hold_lock", refuse)
    monkeypatch.setattr(private_files, "hold_lock", refuse)
    with (
        pytest.raises(CommandFailed, match=r"cannot be used: Read-only file system\. Make it"),
        parent.only_one(tmp_path),
    ):
        pass
    assert server.serve(Settings(data=tmp_path)) == 1
    printed = capsys.readouterr().err
    assert "cannot be used: Read-only file system (" in printed and "choose another with --data." in printed
    assert "Errno" not in printed and "Traceback" not in printed


def test_a_file_is_no_data_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert server.serve(Settings(data=tmp_path / "file")) == 1
    printed = capsys.readouterr().err
    assert f"{tmp_path / 'file'} cannot be used: File exists" in printed and "Errno" not in printed
