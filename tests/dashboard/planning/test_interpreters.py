"""Which Python trains where nobody names one."""

from __future__ import annotations

import os
import shlex
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.up.parent import Parent, Plan
from dashboard.planning.interpreters import programs, project_python, python_to_use, remark
from domain.spec import RunSpec


def environment(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (folder / "bin" / "python").symlink_to("/usr/bin/python3")
    return folder / "bin" / "python"


def script(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text("")
    return str(folder / "train.py")


def here(state: str = "alive", hostname: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(state=state, hostname=hostname or socket.gethostname())


@pytest.mark.parametrize("name", [".venv", "venv"])
def test_an_environment_beside_the_script(tmp_path: Path, name: str) -> None:
    python = environment(tmp_path / name)
    assert project_python(script(tmp_path)) == python
    assert project_python(str(tmp_path), "train.py") == python
    assert project_python(str(tmp_path)) == python  # a module of the folder


def test_the_hidden_one_is_uvs_and_goes_first(tmp_path: Path) -> None:
    environment(tmp_path / "venv")
    python = environment(tmp_path / ".venv")
    assert project_python(script(tmp_path)) == python


@pytest.mark.parametrize("mark", [".git", "pyproject.toml", "uv.lock"])
def test_an_environment_at_the_projects_root(tmp_path: Path, mark: str) -> None:
    python = environment(tmp_path / "project/.venv")
    target = script(tmp_path / "project/src/deep")
    assert project_python(target) is None  # nothing says that the folders above belong to it
    (tmp_path / "project" / mark).write_text("")
    assert project_python(target) == python
    nearer = environment(tmp_path / "project/src/.venv")
    assert project_python(target) == nearer


def test_a_checkout_goes_beyond_a_package_in_it(tmp_path: Path) -> None:
    python = environment(tmp_path / ".venv")
    (tmp_path / ".git").mkdir()
    target = script(tmp_path / "packages/one")
    (tmp_path / "packages/one/pyproject.toml").write_text("")
    assert project_python(target) == python


def test_a_folder_is_looked_through_from_the_entry_up(tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    script(tmp_path / "scripts/deep")
    assert project_python(str(tmp_path), "scripts/deep/train.py") == python


def test_folder_that_is_no_environment_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to("/usr/bin/python3")
    assert project_python(script(tmp_path)) is None


def test_a_broken_environment_is_taken_so_that_somebody_is_told(tmp_path: Path) -> None:
    python = environment(tmp_path / ".venv")
    python.unlink()
    python.symlink_to("/removed/python3")
    assert project_python(script(tmp_path)) == python


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give folders away")
def test_an_environment_of_somebody_else_is_not_taken(tmp_path: Path) -> None:
    environment(tmp_path / ".venv")
    os.chown(tmp_path / ".venv", 12345, 12345)
    assert project_python(script(tmp_path)) is None
    os.chown(tmp_path, 12345, 12345)  # it is the project's owner's after all
    assert project_python(script(tmp_path)) is not None


@pytest.mark.parametrize(
    "target",
    ["image_classifier", "https://example.org/a.git", "/nowhere/train.py", "/" + "x" * 5000, "train.py"],
)
def test_targets_without_a_project_here(target: str) -> None:
    assert project_python(target) is None


def test_it_is_taken_only_where_every_node_is_this_machine(tmp_path: Path) -> None:
    python = environment(tmp_path / ".venv")
    spec = RunSpec(target=script(tmp_path))
    assert python_to_use(spec, [here()]) == python
    assert python_to_use(spec, [here(), here("lost", "gone")]) == python
    assert python_to_use(spec, [here(), here(hostname="gpu-2")]) is None


def test_named_interpreter_stays(tmp_path: Path) -> None:
    environment(tmp_path / ".venv")
    spec = RunSpec(target=script(tmp_path), python="/usr/bin/python3")
    assert python_to_use(spec, [here()]) is None
    assert remark(spec) is None


def test_code_that_was_sent_was_looked_at_where_it_came_from(tmp_path: Path) -> None:
    environment(tmp_path / ".venv")
    spec = RunSpec(target=script(tmp_path), snapshot="0" * 64)
    assert python_to_use(spec, [here()]) is None


def test_the_history_says_where_it_was_found(tmp_path: Path) -> None:
    python = environment(tmp_path / ".venv")
    spec = RunSpec(target=script(tmp_path), python=str(python))
    assert remark(spec) == f"uses {python}, found in the project"


def test_programs_as_a_plan_shows_them(tmp_path: Path) -> None:
    environment(tmp_path / "env")
    assert programs(None) == ("python", "torchrun")
    assert programs("python3.12") == ("python3.12", None)
    assert programs("~/env/bin/python") == ("~/env/bin/python", "~/env/bin/torchrun")
    assert programs(f"{tmp_path}/env") == (f"{tmp_path}/env/bin/python", f"{tmp_path}/env/bin/torchrun")


def worker_options(*options: str) -> list[str]:
    """The options with which a systemd unit starts the worker."""
    result = CliRunner().invoke(app, ["worker", "--print-unit", "--server", "http://x", *options])
    assert result.exit_code == 0
    return shlex.split(result.stdout.partition("ExecStart=")[2].partition("\n")[0])


@pytest.mark.parametrize("named", ["env", "env/bin/python", "./env/bin/python"])
def test_a_path_on_the_command_line_is_seen_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    environment(tmp_path / "env")
    monkeypatch.chdir(tmp_path)
    path = worker_options("--python", named)[-1]
    assert path == str(tmp_path / named)  # an environment's Python is a link, which is not followed


def test_a_nodes_default_comes_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--python" not in worker_options()
    monkeypatch.setenv("RANKZERO_PYTHON", "python3.12")
    assert worker_options()[-2:] == ["--python", "python3.12"]


def test_up_hands_its_python_to_its_worker(tmp_path: Path) -> None:
    parent = Parent(Plan(data=tmp_path, python="/opt/env/bin/python"), 1)
    assert parent._worker_options()[-2:] == ["--python", "/opt/env/bin/python"]
