"""The program of a command is found as a shell finds it, and the Python that it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.watched.command import UnusableCommand, interpreter_of, located


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "second").mkdir()
    for name, text in {
        "bin/python3.12": "",
        "bin/torchrun": f"#!{tmp_path}/bin/python3.12 -E\nimport sys\n",
        "bin/accelerate": "#!/usr/bin/env python3.12\n",
        "bin/train.sh": "#!/bin/sh\npython3.12 train.py\n",
        "bin/binary": "\x7fELF\0\1",
        "second/tool": "",
        "local": "",
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "bin/tool").write_text("not executable")
    return tmp_path


def search_path(folder) -> str:
    return f"{folder}/bin:{folder}/second"


def test_the_first_executable_of_the_path_is_taken(folder):
    assert located("tool", search_path(folder)) == f"{folder}/second/tool"
    assert located("./local", search_path(folder)) == "./local"
    assert Path(located("local", f"{folder}/bin:")).samefile(folder / "local")  # an empty folder is the current one


@pytest.mark.parametrize(
    ("program", "message", "code"),
    [
        ("no-such", "no-such: command not found", 127),
        ("./no-such", "./no-such: No such file or directory", 127),
        ("bin/tool", "bin/tool: Permission denied", 126),
        ("./bin", "./bin: Is a directory", 126),
    ],
)
def test_what_cannot_be_started_is_named_as_a_shell_names_it(folder, program, message, code):
    with pytest.raises(UnusableCommand) as caught:
        located(program, search_path(folder))
    assert (str(caught.value), caught.value.exit_code) == (message, code)


@pytest.mark.parametrize("program", ["python3.12", "torchrun", "accelerate", "bin/torchrun"])
def test_the_python_of_a_command_is_known(folder, program):
    assert interpreter_of(program, search_path(folder)) == f"{folder}/bin/python3.12"


@pytest.mark.parametrize("program", ["train.sh", "binary", "no-such"])
def test_a_command_that_names_no_python_has_none(folder, program):
    assert interpreter_of(program, search_path(folder)) is None
