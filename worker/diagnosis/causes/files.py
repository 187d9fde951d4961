"""A file that is not there: mostly data that a script expects beside itself, and a run does not bring along."""

from __future__ import annotations

import re
from dataclasses import dataclass

from worker.diagnosis.tracebacks.exceptions import PythonFailure

COPY = "holds a copy of the code without what .gitignore ignores"


@dataclass(frozen=True)
class Workplace:
    """Where a run works."""

    folder: str = ""
    """The working directory of its processes."""
    in_place: bool = False
    """It is the user's own folder (--workdir), not one of the run's."""


def missing_file(failure: PythonFailure, node: str, place: Workplace) -> str | None:
    """The next step where a path is missing; None where that is not what happened."""
    if re.search(r"^RuntimeError: Dataset not found", failure.all_text, re.MULTILINE):
        return _bring("data", "The data set", place)
    found = re.search(
        r"(?:No such file or directory|Couldn't find any class folder in"
        r"|Not a directory)[: ]+b?'?(?P<path>[^'\n]+?)'?\.?$",
        failure.all_text,
        re.MULTILINE,
    )
    if found is None:
        return None
    path = found["path"]
    if "_execute_child" in failure.functions:
        return (
            f"Install the command {path} on node {node}, or put its folder on the PATH of the worker there."
        )
    inside = path.removeprefix(f"{place.folder}/") if place.folder else path
    if inside.startswith(("/", "~")):
        return f"{path} is not on node {node}: copy it there, or mount the file system that has it."
    return _bring(inside.removeprefix("./"), inside, place)


def _bring(path: str, what: str, place: Workplace) -> str:
    if place.in_place:
        return (
            f"{what} is looked for in {place.folder}, the working directory: put it there, or pass an "
            "absolute path."
        )
    name = path.partition("/")[0]
    if name in ("", ".", ".."):
        return (
            f"{what} is looked for from the run's working directory, which {COPY}: pass an absolute path, or "
            "start the run in place with --workdir FOLDER."
        )
    return (
        f"{what} is looked for in the run's working directory, which {COPY}: launch it with "
        f"--link {name}=/path/to/{name}, or in place with --workdir FOLDER."
    )
