"""The project's own frame: pinned packages, readable files, no unsafe loading, compose files that parse."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.changed import mirrored

ROOT = Path(__file__).parents[1]
PACKAGES = ("cli", "dashboard", "worker", "db", "domain", "rankzero")
PRODUCT = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
BY_HAND = [path for path in PRODUCT if "versions" not in path.parts]  # migrations are written by Alembic
EXTRAS = ("server", "worker", "watch", "torch", "postgres", "s3", "hub", "wandb")
PIN = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.!]+")


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not PIN.fullmatch(line)] == []
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def installed_below(name: str, extra: str = "") -> Iterator[str]:
    """Every distribution that `name` brings onto this machine."""
    waiting, seen = [(name, extra)], set()
    while waiting:
        name, extra = waiting.pop()
        for text in metadata.requires(name) or []:
            requirement = Requirement(text)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            key = (canonicalize_name(requirement.name), ",".join(requirement.extras))
            if wanted and key not in seen:
                seen.add(key)
                yield key[0]
                waiting += [(key[0], each) for each in requirement.extras or {""}]


def test_constraints_pin_every_package_an_installation_brings() -> None:
    assert pins()["torch"] == "2.13.0"
    assert unpinned(*EXTRAS, "test") == set()


@pytest.mark.long
def test_constraints_pin_every_package_the_frameworks_bring() -> None:
    assert unpinned("frameworks") == set()


def unpinned(*extras: str) -> set[str]:
    """What an installation with these extras brings and constraints.txt leaves open."""
    gpu_only = re.compile(r"(nvidia|cuda|triton)")  # which of them torch brings depends on the machine
    try:
        brought = {name for extra in extras for name in installed_below("rankzero", extra)}
    except metadata.PackageNotFoundError as error:
        pytest.skip(f"needs what `pip install -e '.[{','.join(extras)}]'` brings ({error.name} is not installed)")
    return {name for name in brought if not gpu_only.match(name)} - set(pins())


def test_installed_packages_are_the_pinned_ones() -> None:
    names = {name for extra in ("server", "worker", "torch") for name in installed_below("rankzero", extra)}
    installed = {name: metadata.version(name).partition("+")[0] for name in names}
    pinned = pins()
    other = {name: version for name, version in installed.items() if pinned.get(name, version) != version}
    assert other == {}, "`make setup-test` installs what constraints.txt pins"


def test_every_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *(text for extra in EXTRAS for text in extras[extra])]
    declared = {canonicalize_name(Requirement(text).name) for text in texts}
    providers = metadata.packages_distributions()
    undeclared = {}
    for path in PRODUCT:
        for module in imported_modules(path):
            owners = {canonicalize_name(name) for name in providers.get(module, [])}
            if owners and not owners & (declared | {"rankzero", *comes_with(declared)}):
                undeclared[path.name] = module
    assert undeclared == {}


WATCHING = (
    "cli.commands.anywhere.companion, cli.commands.anywhere.sync, worker.watched.companion, worker.attempt.supervisor"
)


def test_what_watches_commands_imports_nothing_beyond_the_extra_watch() -> None:
    argv = [
        sys.executable,
        "-P",
        "-c",
        f"import sys; own = {{*sys.modules}}; import {WATCHING}; print(*{{*sys.modules}} - own)",
    ]
    modules = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *project["optional-dependencies"]["watch"]]
    named = {canonicalize_name(Requirement(text).name) for text in listed}
    providers = metadata.packages_distributions()
    allowed = {"rankzero", *named, *(below for name in named for below in installed_below(name))}
    owners = {
        name: {canonicalize_name(owner) for owner in providers.get(name.partition(".")[0], ())} for name in modules
    }
    assert {name for name, of in owners.items() if of and not of & allowed} == set()
    assert {"psutil", "pynvml", "httpx2"} <= owners.keys() and not {"uv", "torch", "numpy", "asyncio"} & owners.keys()


def test_every_dependency_says_what_it_is_for() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    lines = [line for line in listed.splitlines() if line.startswith("    ")]
    assert len(lines) > 50
    assert [line for line in lines if not re.fullmatch(r' {4}"[^"]+", # \S.{3,}', line)] == []


def comes_with(declared: set[str]) -> set[str]:
    """Packages that are part of a declared one's own interface."""
    parts = {"fastapi": {"starlette", "anyio"}, "typer": {"click", "rich"}, "streamlit": {"pandas"}}
    parts |= {"tensorboard": {"werkzeug"}}
    return {name for each in declared for name in parts.get(each, ())}


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_product_files_are_short_enough_to_read() -> None:
    faults = {from_root(path): found for path in BY_HAND if (found := list(hard_to_read(path)))}
    assert faults == {}, "divide them by subject; a module opens with one sentence of what it is"


def hard_to_read(path: Path) -> Iterator[str]:
    """What is too long in a file, or missing at its start."""
    text = path.read_text()
    module = ast.parse(text)
    if (lines := len(text.splitlines())) > 600:
        yield f"{lines} lines"
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length(node) > 60:
            yield f"{node.name}() has {length(node)} lines"
    if not ast.get_docstring(module):
        yield "no docstring"


def test_modules_that_may_read_a_clock_do_so() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    clocks = {name.rpartition(".")[2] for name in linter["flake8-tidy-imports"]["banned-api"]} - {"httpx"}
    reads = re.compile(rf"\b(time|threading|asyncio|datetime|date)\.({'|'.join(clocks)})\b")
    modules = [path for path, rules in linter["per-file-ignores"].items() if "TID251" in rules and "*" not in path]
    assert "domain/clock.py" in modules
    assert [path for path in modules if not reads.search((ROOT / path).read_text())] == []


def test_folders_of_javascript_import_in_one_direction() -> None:
    folders = {folder: set(imported_folders(folder)) for folder in (ROOT / "dashboard/components").iterdir()}
    assert folders[ROOT / "dashboard/components/live"], "the imports are found"
    while free := {folder for folder, imported in folders.items() if not imported & set(folders)}:
        folders = {folder: imported for folder, imported in folders.items() if folder not in free}
    assert {folder.name: sorted(other.name for other in imported) for folder, imported in folders.items()} == {}


def imported_folders(folder: Path) -> Iterator[Path]:
    for script in folder.glob("*.js"):
        for name in re.findall(r"""(?:from|import) '\.\./(\w+)/""", script.read_text()):
            yield folder.parent / name


def test_lines_of_javascript_fit_a_window() -> None:
    scripts = [path for folder in ("dashboard", "tests") for path in (ROOT / folder).rglob("*.js")]
    places = [(path, at, line) for path in scripts for at, line in enumerate(path.read_text().splitlines(), 1)]
    assert places
    assert [f"{from_root(path)}:{at}" for path, at, line in places if len(line) > 120] == []


def test_folders_are_small_enough_to_see_at_once() -> None:
    sizes = {from_root(folder): len(list(modules(folder))) for folder in {path.parent for path in BY_HAND}}
    assert {folder: size for folder, size in sizes.items() if size > 20} == {}, "divide them by subject"


def modules(folder: Path) -> Iterator[Path]:
    """What a person reads there."""
    for path in folder.iterdir():
        if path.suffix in (".py", ".js", ".css") and path.name != "__init__.py":
            yield path


def from_root(path: Path) -> str:
    return str(path.relative_to(ROOT))


def length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_files_beside_the_code_are_installed_with_it() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    forgotten = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            inside = path.relative_to(ROOT / package)
            ours = path.is_file() and path.suffix not in (".py", ".pyc") and path.name != "ruff.toml"
            ours = ours and not any(part.endswith("_cache") for part in inside.parts)
            if ours and not any(fnmatch(str(inside), pattern) for pattern in patterns.get(package, [])):
                forgotten.append(str(inside))
    assert forgotten == []


UNSAFE = re.compile(
    r"weights_only\s*=\s*False|allow_pickle\s*=\s*True|\bpickle\.loads?\(|\byaml\.load\(|\bjoblib\b|shell\s*=\s*True"
    r"|enableCORS\s*=\s*false|unsafe_allow_javascript\s*=\s*True"
)


def test_nothing_unpickles_or_starts_a_shell() -> None:
    found = [f"{path.relative_to(ROOT)}: {match[0]}" for path in PRODUCT if (match := UNSAFE.search(path.read_text()))]
    assert found == []


def test_compose_accepts_the_file() -> None:
    if shutil.which("docker-compose") is None:
        pytest.skip("needs docker-compose")
    command = ["docker-compose", "-f", str(ROOT / "docker-compose.yml"), "config"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    services = yaml.safe_load(result.stdout)["services"]
    assert {"dashboard", "worker-1", "worker-2"} <= set(services) <= {*COMPOSED, "worker-gpu"}


COMPOSED = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
WORKERS = [name for name in COMPOSED if name.startswith("worker")]


def test_compose_gives_runs_the_time_they_were_promised() -> None:
    from domain.spec import RunSpec
    from worker.agent.worker import ACKNOWLEDGE_LIMIT_S

    needed_s = RunSpec(target="language_model").stop_grace_s + ACKNOWLEDGE_LIMIT_S
    for worker in WORKERS:
        service = COMPOSED[worker]
        assert float(service["stop_grace_period"].removesuffix("s")) > needed_s, worker
        assert "--stop-runs" in service["command"] and service["init"], worker


def test_composed_workers_are_told_apart_and_everything_has_a_health_check() -> None:
    assert {COMPOSED[name]["hostname"] for name in WORKERS} == set(WORKERS)
    assert {volume for name in WORKERS for volume in COMPOSED[name]["volumes"] if ":/data" in volume} == {
        f"{name}:/data" for name in WORKERS
    }
    assert all(service["healthcheck"]["test"] for service in COMPOSED.values())
    assert all(port.startswith("127.0.0.1:") for port in COMPOSED["dashboard"]["ports"])
    assert [name for name in WORKERS if "profiles" in COMPOSED[name]] == ["worker-gpu"]


def test_make_help_names_every_target() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    result = subprocess.run(["make", "--no-print-directory", "help"], capture_output=True, text=True, cwd=ROOT)
    assert set(re.findall(r"make (\S+)", result.stdout)) == targets


def test_quick_runs_the_tests_that_mirror_what_changed() -> None:
    changed = ["db/metrics/points.py", "tests/db/test_store.py", "README.md", "domain/spec.py"]
    documents = "tests/test_documents.py"
    of_metrics = sorted(f"tests/db/metrics/{path.name}" for path in (ROOT / "tests/db/metrics").glob("test_*.py"))
    assert mirrored(changed) == [*of_metrics, "tests/db/test_store.py", documents]
    assert not [path for path in mirrored(["dashboard/views/runs_page.py"]) if "browser" in path]
    assert "tests/recipes/test_training.py" in mirrored(["worker/recipes/training.py"])


def test_no_test_module_imports_another() -> None:
    imported = [
        f"{from_root(path)}: {match[0]}"
        for path in (ROOT / "tests").rglob("*.py")
        if not from_root(path).startswith("tests/db/")
        for match in re.finditer(r"^(from|import) tests[\w.]*( import.*)?\btest_\w+", path.read_text(), re.MULTILINE)
    ]
    assert imported == [], "move what both need to a module that says what it is"
