"""Recognise a script whose main part runs again in the processes that it starts (spawn, forkserver). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from worker.diagnosis.causes.tracebacks import TracebackBlock, TracebackFrame, blocks, clean_lines, shorten

GUARD = 'if __name__ == "__main__":'
JOINS, TRAINS = "init_process_group", "train"
"""What the probe sees such a process do, where no exception ends it."""
_IMPORTERS = frozenset({"_fixup_main_from_name", "_fixup_main_from_path"})
"""The functions of `multiprocessing.spawn` that import the script."""
_STARTS_PROCESSES = "An attempt has been made to start a new process before"
_CERTAIN = re.compile(rf"^(?:{JOINS}|{TRAINS})$|^SystemExit|{_STARTS_PROCESSES}|context has already been set")
"""What only a main part does; another exception may come of an import that fails there alone."""
_CHILD_LOST = re.compile(
    r"DataLoader worker|process \d+ terminated with|BrokenProcessPool|process pool was terminated|TerminatedWorkerError"
    r"|\bEOFError\b|BrokenPipeError|Connection(?:Reset|Refused)Error|queue\.Empty|TimeoutError|has abruptly died"
    rf"|{_STARTS_PROCESSES}|context has already been set"
)
"""Errors of a process whose child did not do its work."""


@dataclass(frozen=True)
class Rerun:
    """The first time that the script's main part ran again in a process that a rank started."""

    file: str
    line: int
    """In the script: where the guard is missing."""
    sign: str
    """`init_process_group`, `train`, or the exception that ended the import."""
    rank: int = 0
    at: float = 0.0
    has_guard: bool = True
    """Whether the script has the guard somewhere; assumed unless it is known that it has none."""
    imported: tuple[str, int] | None = None
    """File and line of the module that the script was importing there, if it was one."""

    @property
    def is_certain(self) -> bool:
        """Whether it is the main part that runs there, not an import that fails."""
        return not self.has_guard or _CERTAIN.search(self.sign) is not None

    @property
    def sentence(self) -> str:
        """The clause that says what happens, for a message: without its capital letter and full stop."""
        outside = f"line {self.line} is not below `{GUARD}`"
        why = outside if self.has_guard else f"it has no `{GUARD}`"
        place = f"{_name(self.file)} line {self.line}"
        if self._working_import:
            place = "{} line {}".format(*self._working_import)
            why = f"{_name(self.file)} line {self.line} imports what starts processes or trains"
        return f"the script runs again in every process that it starts, because {why} ({place}: {self._again})"

    @property
    def fix(self) -> str:
        """The change to make in the script, with the line to add."""
        name = _name(self.file)
        if self._working_import:
            module, line = self._working_import
            return (
                f"Move line {line} of {module} and all else there that trains or starts processes into a function, and "
                f"call it in {name} below the line `{GUARD}`."
            )
        return (
            f"Add the line `{GUARD}` to {name}, and move below it line {self.line} and all else that trains or "
            "starts processes; imports, functions and classes stay above it."
        )

    @property
    def _working_import(self) -> tuple[str, int] | None:
        """Name and line of an imported module that does there what belongs into the main part."""
        if self.imported is None or _CERTAIN.search(self.sign) is None:
            return None
        return _name(self.imported[0]), self.imported[1]

    @property
    def _again(self) -> str:
        if self.sign == JOINS:
            return "the process joins the process group again"
        if self.sign == TRAINS:
            return "the process trains as well"
        if _STARTS_PROCESSES in self.sign:
            return "the process may not start further ones"
        return f"the process ends with {shorten(self.sign, 120)}"


def _name(file: str) -> str:
    return file.rpartition("/")[2]


def is_lost_child(text: str) -> bool:
    """Whether an exception's text says that a child process is gone or did not do its work."""
    return _CHILD_LOST.search(text) is not None


def find_rerun(text: str, rank: int) -> Rerun | None:
    """Find the first traceback of a process that was importing the script, in the output of a rank."""
    for block in blocks(clean_lines(text)):
        if (rerun := _of_block(block, rank)) is not None:
            return rerun
    return None


def first(reruns: Sequence[Rerun]) -> Rerun | None:
    """Return the earliest one that is certain."""
    return min((rerun for rerun in reruns if rerun.is_certain), key=lambda rerun: (rerun.at, rerun.rank), default=None)


def _of_block(block: TracebackBlock, rank: int) -> Rerun | None:
    functions = [frame.function for frame in block.frames]
    importer = next((number for number, name in enumerate(functions) if name in _IMPORTERS), None)
    if importer is None:
        return None
    modules = list(_importing(block.frames[importer + 1 :]))
    if not modules:
        return None
    imported = modules[-1] if len(modules) > 1 else None
    return Rerun(*modules[0], " ".join(block.message.split()), rank, imported=imported)


def _importing(frames: Sequence[TracebackFrame]) -> Iterator[tuple[str, int]]:
    """File and line of the script and of each module that is being imported for it, in turn."""
    has_begun = False
    for frame in frames:
        if frame.function == "<module>" and not frame.file.startswith("<"):
            has_begun = True
            yield frame.file, frame.line
        elif has_begun and not frame.file.startswith("<frozen importlib"):
            return
