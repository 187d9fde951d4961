"""Explain missing files: mostly data that a script expects beside itself and that is not copied into a run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from domain.checkpoints.lfs_pointers import WHAT, pointers_in_words
from worker.diagnosis.causes.tracebacks import PythonFailure

COPY = "contains a copy of the code without the files that .gitignore excludes"


@dataclass(frozen=True)
class Workplace:
    """Working directory of a run."""

    folder: str = ""
    """The working directory of its processes."""
    in_place: bool = False
    """Whether it is the user's own folder (--workdir), not one of the run's."""
    lfs_pointers: tuple[str, ...] = ()
    """Paths in it of Git LFS pointers."""


def missing_file(failure: PythonFailure, node: str, workplace: Workplace) -> str | None:
    """Return the next step if a path is missing, else None."""
    if re.search(r"^RuntimeError: Dataset not found", failure.all_text, re.MULTILINE):
        return _advise_data("data", "The data set", workplace)
    match = re.search(
        r"(?:No such file or directory|Couldn't find any class folder in"
        r"|Not a directory)[: ]+b?'?(?P<path>[^'\n]+?)'?\.?$",
        failure.all_text,
        re.MULTILINE,
    )
    if match is None:
        return None
    path = match["path"]
    if "_execute_child" in failure.functions:
        return f"Install the command {path} on node {node}, or put its folder on the PATH of the worker there."
    inside = path.removeprefix(f"{workplace.folder}/") if workplace.folder else path
    if inside.startswith(("/", "~")):
        return f"{path} is not on node {node}: copy it there, or mount the file system that has it."
    return _advise_data(inside.removeprefix("./"), inside, workplace)


def pointer(failure: PythonFailure, workplace: Workplace) -> str | None:
    """Return the next step if a file could not be read because it is a Git LFS pointer, else None."""
    if workplace.lfs_pointers and re.search(_UNREADABLE, failure.all_text):
        return f"{pointers_in_words(workplace.lfs_pointers)}: {_PULL}"
    if re.search(r"invalid load key, 'v'|git-lfs\.github\.com", failure.all_text):
        return f"The file that it loads begins like {WHAT}: {_PULL}"
    return None


_PULL = "run `git lfs pull` in its checkout, then launch it again."
_UNREADABLE = (
    r"invalid load key|git-lfs\.github\.com|HeaderTooLarge|header too large|deserializing header|"
    r"cannot identify image file|Expecting value: line 1 column 1|pickled data|not a zip file|PytorchStreamReader|"
    r"signature not found|[Mm]agic bytes|Not a gzipped file|could not be opened successfully|UnpicklingError"
)
"""What libraries say about a file that is not of its format."""


def _advise_data(path: str, subject: str, workplace: Workplace) -> str:
    if workplace.in_place:
        return (
            f"{subject} is looked up in {workplace.folder}, the working directory: put it there, or pass an "
            "absolute path."
        )
    name = path.partition("/")[0]
    if name in ("", ".", ".."):
        return (
            f"{subject} is looked up from the run's working directory, which {COPY}: pass an absolute path, or "
            "start the run in place with --workdir FOLDER."
        )
    return (
        f"{subject} is looked up in the run's working directory, which {COPY}: launch it with "
        f"--link {name}=/path/to/{name}, or in place with --workdir FOLDER."
    )
