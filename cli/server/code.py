"""The code and the interpreter of a launch: selected here, packed, and uploaded unless the dashboard has it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.server.client import ServerClient
from cli.terminal import CommandFailed, warn
from dashboard.snapshots.git_address import CodeRefused, is_git_address
from domain.choices import RECIPES
from domain.environments.locks import CHOICES, named_lock
from domain.environments.sources import OTHERWISE
from domain.spec import PASSED

if TYPE_CHECKING:  # imported lazily: only a launch needs it
    from dashboard.snapshots.code_packing import CodeRequest, PackedCode
import os

from dashboard.planning import interpreters

Spec = dict[str, Any]


def with_code(server: ServerClient, spec: Spec) -> Spec:
    """Return the spec with a snapshot of its code, uploaded where this machine has the code.

    Raises CommandFailed for code that cannot be packed."""
    from dashboard.planning.environments import of_archive
    from dashboard.snapshots.code_packing import pack_code

    request = _code_request(spec)
    if request is None:
        return spec
    with tempfile.TemporaryDirectory(prefix="rankzero-") as folder:
        try:
            packed_code = pack_code(request, Path(folder) / "archive", _limit_bytes(server))
        except CodeRefused as error:
            raise CommandFailed(str(error)) from None
        _print_notes(packed_code.origin.notes)
        sentence = _environment(spec, lambda choice: of_archive(packed_code.packed.path, packed_code.entry, choice))
        _print_notes(sentence)
        _send(server, packed_code)
    return spec | {"snapshot": packed_code.packed.sha256} | ({"entry": packed_code.entry} if packed_code.entry else {})


def preview(server: ServerClient, spec: Spec) -> Any:
    """Return the dashboard's preview of the launch, without cloning, packing or sending code.

    Raises CommandFailed for code that could not be packed."""
    from dashboard.planning.environments import of_selection
    from dashboard.snapshots.code_packing import survey

    request = _code_request(spec)
    if request is None:
        return server.post("/api/preview", spec)
    try:
        choice = survey(request, _limit_bytes(server))
    except CodeRefused as error:
        raise CommandFailed(str(error)) from None
    notes = ["The repository is cloned at launch, and its commit is stored."]
    if choice:
        sentence = _environment(spec, lambda environment: of_selection(choice.selection, choice.entry, environment))
        notes = [*choice.origin.notes, *sentence]
    answer = server.post("/api/preview?code_is_sent=true", spec)
    return answer | {"warnings": [*answer["warnings"], *notes]}


def _code_request(spec: Spec) -> CodeRequest | None:
    """Return the code to pack; None for recipes, runs in place and paths of other machines. Raises CommandFailed."""
    from dashboard.planning.environments import of_recipe
    from dashboard.snapshots.code_packing import CodeRequest

    target = spec["target"]
    if target in RECIPES:
        _environment(spec, of_recipe)
        return None
    if spec.get("workdir"):
        if is_git_address(target):
            raise CommandFailed("workdir: a git address cannot run in place; remove --workdir.", 2)
        _print_notes([f"The run works in place in {spec['workdir']}: its code is not stored."])
        return None
    if not is_git_address(target) and not Path(target).exists():
        return None
    links = frozenset(spec.get("links", ()))
    return CodeRequest(target, spec.get("entry"), spec.get("module"), spec.get("ref"), links)


def _environment(spec: Spec, sentence_on: Callable[[str], str]) -> list[str]:
    """Return the sentence on the environment that each node builds, if there is one. Raises CommandFailed."""
    choice = spec.get("environment", "auto")
    try:
        sentence = "" if choice == "auto" and "python" in spec else sentence_on(choice)
    except CodeRefused as error:
        raise CommandFailed(str(error), 2) from None
    return [sentence] if sentence else []


def _limit_bytes(server: ServerClient) -> int:
    return int(server.get("/api/info")["snapshot_limit_bytes"])


def _send(server: ServerClient, packed_code: PackedCode) -> None:
    path = f"/api/snapshots/{packed_code.packed.sha256}"
    if not server.has(path):
        server.put_file(path, packed_code.packed.path)
    server.put(f"{path}/origin", packed_code.origin.model_dump(mode="json"))


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        warn(f"Note: {note}")


def tell_of_staged_paths(server: ServerClient, spec: Spec) -> None:
    """Say of data named by a path on this machine that each node looks for it there, unless all nodes are here."""
    paths = [source for source in spec.get("stage", {}).values() if source.startswith("/") and Path(source).exists()]
    if not paths or interpreters.all_here(node["hostname"] for node in server.get("/api/nodes")):
        return
    _print_notes([f"{path} is here, but each node looks for it locally; else stage {OTHERWISE}." for path in paths])


def tell_what_is_not_passed(server: ServerClient, spec: Spec) -> None:
    """Say which values of the launch do not arrive at its script, before it starts."""
    if spec.keys() & {*PASSED, "resume"} and spec["target"] not in RECIPES:
        _print_notes(server.post("/api/preview?code_is_sent=true", spec).get("not_passed", []))


# Choose the interpreter of a launch: the one named, or the project's own.


def named_interpreter(python: str | None) -> str | None:
    """Return an absolute path for a path or environment folder; a plain name is left for the node's PATH."""
    if python and (os.sep in python or (Path(python) / "bin" / "python").exists()):
        # Not resolved: an environment's `python` is a link, and would lead out of it.
        return os.path.abspath(Path(python).expanduser())  # noqa: PTH100
    return python


def named_environment(choice: str | None, target: str) -> str | None:
    """Return a lock file as its path in the code, and an environment on this machine as its absolute path.

    Raises CommandFailed for a lock file outside of the code."""
    if choice is None or choice in CHOICES:
        return choice
    lock, code = named_lock(choice.removeprefix("/")), Path(target).expanduser().absolute()
    code = code if code.is_dir() else code.parent
    if lock is None:
        return os.path.abspath(Path(choice).expanduser()) if Path(choice).expanduser().exists() else choice  # noqa: PTH100
    path = Path(os.path.normpath(Path("/" + lock.path) if choice.startswith("/") else Path(lock.path).absolute()))
    if (code / lock.path).is_file() or not path.is_file():
        return choice
    if not path.is_relative_to(code):
        raise CommandFailed(f"environment: {path} must lie in the code of the run, {code}.", 2)
    return str(path.relative_to(code)) + lock.label.removeprefix(lock.path)


def with_project_python(server: ServerClient, spec: dict[str, Any], *, is_launch: bool) -> dict[str, Any]:
    """Return the spec with the project's Python, if none is named and all nodes are on this machine."""
    is_open = "python" not in spec and spec.get("environment", "auto") == "auto"
    python = None if not is_open else interpreters.project_python(spec["target"], spec.get("entry"))
    if python is None:
        return spec
    nodes = server.get("/api/nodes")
    if not interpreters.all_here(node["hostname"] for node in nodes if node["state"] != "lost"):
        return spec
    if is_launch:
        warn(f"Note: The run uses {python}, found in the project; choose another with --python.")
    return spec | {"python": str(python)}
