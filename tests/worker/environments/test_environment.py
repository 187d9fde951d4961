"""The environment of a lock on one node: built once by the real uv, verified, and refused in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest

from domain.messages import Reason
from tests.packages import write_made_wheel, write_wheel
from tests.worker.environments.making import Node, write_wheels
from worker.environments import folders
from worker.launch.preparation import CannotStart
from worker.node.attempt_files import ENVIRONMENT_FILE
from worker.node.state_files import read_object

TORCH = f"torch=={metadata.version('torch').partition('+')[0]}\n"
PROJECT = """
[project]
name = "mine"
version = "0.3"
requires-python = ">=3.11"
dependencies = ["locked==1.0", "{torch}", "helper"]
[project.optional-dependencies]
two = ["extra==2.0"]
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[tool.setuptools]
packages = ["mine"]
[tool.uv.sources]
helper = {{ path = "libs/helper", editable = true }}
"""
HELPER = '[project]\nname = "helper"\nversion = "0.1"\n[build-system]\nrequires = ["setuptools"]\n'


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_wheels(tmp_path_factory.mktemp("wheels"))
    write_made_wheel(folder, "extra", "2.0", {"extra.py": ""})
    write_wheel(metadata.distribution("setuptools"), folder)
    return folder


@pytest.fixture
def node(tmp_path: Path, wheels: Path) -> Node:
    return Node(tmp_path, wheels)


def run(python: str | None, code: str, packages: str | None = None) -> str:
    assert python is not None
    env = {"PYTHONPATH": packages} if packages else {}
    return subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.strip()


def refused(node: Node, files: dict[str, str], **spec: object) -> CannotStart:
    with pytest.raises(CannotStart) as error:
        node.make(files, **spec)
    assert [name for name in node.environments if "tmp" in name or "log" in name or "out" in name] == []
    return error.value


def test_one_lock_is_built_once_and_shared(node: Node):
    files = {"requirements.txt": f"{TORCH}locked==1.0", "train.py": ""}
    first = node.make(files)
    assert run(first.spec.python, "import locked; print(locked.VERSION)") == "1.0"
    assert first.spec.python == str(node.folder / "envs" / node.environments[0] / "bin" / "python")
    assert [report.state for report in node.reports][-1] == "ready"
    again = node.make(files | {"train.py": "print()"}, attempt="2")
    assert again.spec.python == first.spec.python
    assert "it was there" in node.reports[-1].note
    other = node.make({"requirements.txt": f"{TORCH}locked==2.0"}, attempt="3")
    assert run(other.spec.python, "import locked; print(locked.VERSION)") == "2.0"
    assert len(node.environments) == 2


def test_scripts_name_the_final_folder(node: Node, wheels: Path):
    about = "tool-1.0.dist-info/entry_points.txt"
    write_made_wheel(wheels, "tool", "1.0", {"tool.py": "def main(): print('it runs')", about: SCRIPTS})
    made = node.make({"requirements.txt": f"{TORCH}tool==1.0"})
    assert made.spec.python is not None
    script = Path(made.spec.python).with_name("tool")
    assert script.read_text().startswith(f"#!{made.spec.python}\n")
    assert subprocess.run([script], capture_output=True, text=True, check=True).stdout == "it runs\n"


SCRIPTS = "[console_scripts]\ntool = tool:main\n"


@pytest.mark.long
def test_a_project_is_installed_from_its_code_beside_the_shared_environment(node: Node, tmp_path: Path, wheels: Path):
    project = tmp_path / "project"
    files = {
        "pyproject.toml": PROJECT.format(torch=TORCH.strip()),
        "mine/__init__.py": "import helper; from importlib.metadata import version; VERSION = version('mine')",
        "libs/helper/pyproject.toml": HELPER,
        "libs/helper/helper.py": "",
        "train.py": "",
    }
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    lock = [Path(sys.executable).with_name("uv"), "lock", "--quiet", "--no-index", "--find-links", wheels]
    subprocess.run(lock, cwd=project, check=True)
    files["uv.lock"] = (project / "uv.lock").read_text()
    made = node.make(files)
    facts = read_object(node.attempt("1") / ENVIRONMENT_FILE)
    assert facts["kind"] == "uv.lock"
    assert run(made.spec.python, "import mine, locked; print(mine.VERSION)", facts["packages"]) == "0.3"
    assert len(node.environments) == len(folders.in_use(node.folder)) == 2
    # The project changes, the lock does not: only the project's own packages are built again.
    changed = node.make(files | {"train.py": "print()"}, attempt="2")
    assert changed.spec.python == made.spec.python
    assert len(node.environments) == 3
    extra = node.make(files, "uv.lock[two]", attempt="3")
    assert run(extra.spec.python, "import extra; print(1)") == "1"


def test_pylock_names_wheels_in_the_code(node: Node, wheels: Path):
    torch = next(wheels.glob("torch-*.whl"))
    packages = [f'[[packages]]\nname = "torch"\nwheels = [{{ url = "{torch.as_uri()}", hashes = {{}} }}]\n']
    made = node.make({"pylock.toml": 'lock-version = "1.0"\ncreated-by = "a person"\n' + "".join(packages)})
    assert run(made.spec.python, "import torch.version; print(torch.version.__version__)").startswith(TORCH[7:13])
    elsewhere = '[[packages]]\nname = "mine"\ndirectory = { path = "/nowhere/mine" }\n'
    pylock = "".join(['lock-version = "1.0"\ncreated-by = "a person"\n', *packages, elsewhere])
    assert "/nowhere/mine" in str(refused(node, {"pylock.toml": pylock}, attempt="2"))


def test_two_launches_of_one_lock_build_it_once(node: Node):
    files = {"requirements.txt": f"{TORCH}locked==1.0"}
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(lambda attempt: node.make(files, attempt=attempt), ["1", "2"]))
    notes = sorted(read_object(node.attempt(attempt) / ENVIRONMENT_FILE)["note"] for attempt in ("1", "2"))
    assert made[0].spec.python == made[1].spec.python
    assert "built in" in notes[0]
    assert notes[1] == "requirements.txt: it was there"


def test_a_damaged_environment_is_built_again_unless_a_run_uses_it(node: Node):
    files = {"requirements.txt": f"{TORCH}locked==1.0"}
    made = node.make(files)
    assert made.spec.python is not None
    folder = Path(made.spec.python).parents[1]
    (lost,) = folder.glob("lib/python*/site-packages/locked/__init__.py")
    lost.unlink()
    error = refused(node, files, attempt="2")
    assert f"{folder} was changed since it was built (locked/__init__.py is damaged), and a run uses it" in str(error)
    (node.attempt("1") / "worker" / "reported.json").write_text(json.dumps({"state": "succeeded"}))
    again = node.make(files, attempt="3")
    assert again.spec.python == made.spec.python
    assert lost.exists()


def test_requirements_in_utf_16_are_built_as_they_are_meant(node: Node):
    made = node.make({"requirements.txt": f"{TORCH}locked==1.0\r\n".encode("utf-16"), "train.py": ""})
    assert run(made.spec.python, "import locked; print(locked.VERSION)") == "1.0"


def test_a_repository_that_cannot_be_fetched_is_named_with_a_way_out(node: Node):
    address = "git+file:///nowhere/some-lib.git@1f0c1d0f4a0d1f0c1d0f4a0d1f0c1d0f4a0d1f0c"
    error = refused(node, {"requirements.txt": f"{TORCH}some-lib @ {address}"}, environment="lock")
    assert str(error).startswith("The environment of requirements.txt could not be built on node gpu-2: some-lib: ")
    assert "access to the repository" in str(error.next_step)


def test_failures_name_the_package_and_the_node(node: Node, wheels: Path):
    error = refused(node, {"requirements.txt": f"{TORCH}missing==9.9"})
    assert error.reason == Reason.ENVIRONMENT
    assert str(error).startswith(
        "The environment of requirements.txt could not be built on node gpu-2: missing: No solution found"
    )
    assert error.next_step is not None
    digest = "0" * 64
    error = refused(node, {"requirements.txt": f"{TORCH}locked==1.0 --hash=sha256:{digest}"})
    assert "locked==1.0" in str(error)
    assert "hash" in str(error)
    assert node.reports[-1].state == "failed"


def test_an_index_that_is_not_reached_is_named_without_its_password(node: Node):
    node.env = {"PIP_INDEX_URL": "http://me:hunter22@127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"} | {
        "UV_INDEX_MINE_PASSWORD": "hunter22", "UV_CACHE_DIR": str(node.folder / "cache"),
    }  # fmt: skip
    error = refused(node, {"requirements.txt": f"{TORCH}locked==1.0"})
    assert "127.0.0.1:9" in str(error)
    assert "hunter22" not in str(error) + str(node.reports)
    assert "access to the index" in str(error.next_step)


@pytest.mark.parametrize(
    ("files", "choice", "sentence"),
    [
        ({}, "lock", "There is no uv.lock, pylock.toml or requirements.txt in the run's code"),
        ({"requirements.txt": "torch\nnumpy>=1"}, "lock", "torch, numpy have no version. `rankzero freeze`"),
        ({"requirements.txt": "numpy==1.26.4"}, "lock", "requirements.txt has no torch"),
        (
            {},
            "/nope",
            "There is no environment with a Python at /nope on node gpu-2: choose another with --environment.",
        ),
        ({}, "locks/gpu.txt", "There is no locks/gpu.txt in the run's code"),
        ({"uv.lock": "torch"}, "uv.lock", "uv.lock cannot be read as a lock file"),
    ],
)
def test_a_lock_that_cannot_be_used_is_refused(node: Node, files: dict[str, str], choice: str, sentence: str):
    assert sentence in str(refused(node, files | {"train.py": ""}, environment=choice))


def test_auto_leaves_runs_alone_that_need_no_environment(node: Node):
    for files in ({}, {"requirements.txt": "torch\n"}, {"requirements.txt": "numpy==1.26.4\n"}):
        assert node.make({"train.py": ""} | files).spec.python is None
    assert node.make({"requirements.txt": TORCH}, python=sys.executable).spec.python == sys.executable
    assert node.make({"requirements.txt": TORCH}, "none").spec.python is None
    assert node.reports == []
    assert node.make({}, sys.prefix).spec.python == sys.prefix
    assert (node.reports[-1].kind, node.reports[-1].python) == ("path", f"{sys.prefix}/bin/python")


def test_unused_environments_go_while_space_is_short(node: Node, monkeypatch: pytest.MonkeyPatch):
    used = node.make({"requirements.txt": f"{TORCH}locked==1.0"})
    unused = node.make({"requirements.txt": f"{TORCH}locked==2.0"}, attempt="2")
    (node.attempt("2") / "worker" / "reported.json").write_text(json.dumps({"state": "failed"}))
    (node.folder / "envs" / "0123456789abcdef.tmp").mkdir()
    monkeypatch.setattr(folders, "is_short", lambda *_: False)
    folders.tidy(node.folder)
    assert Path(str(unused.spec.python)).exists()
    monkeypatch.setattr(folders, "is_short", lambda *_: True)
    folders.tidy(node.folder)
    assert Path(str(used.spec.python)).exists()
    assert len(node.environments) == 1


def test_pixi_and_conda_are_the_nodes_own(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = {"environment.yml": "dependencies:\n- pytorch=2.9\n", "pixi.lock": "- pypi: torch\n", "pixi.toml": ""}
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    error = refused(node, files, environment="environment.yml")
    assert "environment.yml is built by conda, which this node does not have: install it there" in str(error)
    assert "built by pixi" in str(refused(node, files, environment="lock"))
    (tmp_path / "bin").mkdir()
    conda = tmp_path / "bin" / "micromamba"
    conda.write_text(CONDA.format(python=sys.executable))
    conda.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    made = node.make(files, "environment.yml")
    assert made.spec.python == str(node.folder / "envs" / node.environments[0] / "bin" / "python")
    assert run(made.spec.python, "print(1)") == "1"
    assert node.make(files, "environment.yml", attempt="2").spec.python == made.spec.python
    assert "it was there" in node.reports[-1].note


CONDA = """#!/bin/sh
test "$1 $2 $3 $5" = "create --yes --prefix --file" && test -f "$6" && exec {python} -m venv --without-pip "$4"
"""


def test_a_stop_ends_the_build(node: Node):
    node.is_stopped = lambda: True
    error = refused(node, {"requirements.txt": f"{TORCH}locked==1.0"})
    assert "stopped" in str(error)
