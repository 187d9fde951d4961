"""The Python that trains: which one a name means, and what it has, asked once and without importing torch."""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from worker.launch import interpreter_question

LIMIT_S = 30.0
"""An interpreter on a network disk may take seconds to start; one that takes longer will not train."""
OLDEST_TORCH = (2, 4)
MOST_BYTES = 1024 * 1024
QUESTION = str(interpreter_question.__file__)
MARK = interpreter_question.MARK.encode()
Fingerprint = tuple[tuple[int, int] | None, ...]


class Unusable(Exception):
    """Why nothing can be trained with an interpreter: a sentence without its end, and how to mend it."""

    def __init__(self, what: str, *, is_missing: bool = False, mend: str = "", last_words: str = "") -> None:
        super().__init__(what)
        self.is_missing = is_missing
        """There is no such program, or it may not be executed."""
        self._mend, self._last_words = mend, last_words

    def on(self, node: str) -> str:
        """The whole sentence, for people: what, where, what to do."""
        mend = (
            f"{self._mend}, or choose another with --python" if self._mend else "choose another with --python"
        )
        return f"{self} on {node}: {mend}." + (f" It said: {self._last_words}" if self._last_words else "")


@dataclass(frozen=True)
class Interpreter:
    """What one Python has; None where it has none."""

    path: str
    python: str
    torch: str | None
    cuda: str | None
    nccl: str | None
    rocm: str | None
    prefix: str
    platform: str

    @property
    def facts(self) -> dict[str, Any]:
        """For reports."""
        return asdict(self)


@dataclass(frozen=True)
class _Answer:
    interpreter: Interpreter
    watched: tuple[str, ...]
    fingerprint: Fingerprint


_answers: dict[tuple[str, frozenset[tuple[str, str]]], _Answer] = {}
_asking = threading.Lock()


def find(name: str) -> str:
    """The program a choice means: a path, a folder with bin/python in it, or a name on PATH. Raises Unusable."""
    if "/" not in name:
        if (found := shutil.which(name)) is not None:
            return found
        raise Unusable(f"There is no interpreter {name} on PATH", is_missing=True)
    try:
        return _program(Path(name).expanduser())
    except (OSError, RuntimeError) as error:  # no right to look, a name too long, no such user
        why = error.strerror if isinstance(error, OSError) else error
        raise Unusable(f"The interpreter {name} cannot be looked up ({why})", is_missing=True) from error


def ask(path: str, env: Mapping[str, str], limit_s: float = LIMIT_S) -> Interpreter:
    """What this Python has, as trainings with this environment see it. Raises Unusable.

    It is asked again only when the program, or what is installed for it, has changed."""
    key = (path, frozenset((name, env[name]) for name in env if name.startswith("PYTHON")))
    with _asking:
        known = _answers.get(key)
    if known is None or known.fingerprint != _fingerprint((path, *known.watched)):
        answer = _read(path, _asked(path, env, limit_s))
        watched = tuple(answer.pop("watched"))
        known = _Answer(Interpreter(path=path, **answer), watched, _fingerprint((path, *watched)))
        with _asking:
            _answers[key] = known
    return known.interpreter


def check(interpreter: Interpreter) -> None:
    """Raises Unusable unless it has a torch that trainings can use."""
    if interpreter.torch is None:
        raise Unusable(f"The Python {interpreter.path} has no torch", mend="install torch in it")
    numbers = tuple(int(number) for number in re.findall(r"\d+", interpreter.torch)[:2])
    if len(numbers) == 2 and numbers < OLDEST_TORCH:
        rule = "older than the {}.{} that trainings need,".format(*OLDEST_TORCH)
        what = f"The torch of {interpreter.path} is {interpreter.torch}, {rule}"
        raise Unusable(what, mend="install a newer one")


def describe(name: str, where: str, env: Mapping[str, str]) -> dict[str, Any]:
    """What an interpreter has, for people; with the sentence of its `problem` where it cannot train."""
    facts: dict[str, Any] = {"path": name}
    try:
        found = ask(find(name), env)
        facts = found.facts
        check(found)
    except Unusable as error:
        facts["problem"] = error.on(where)
    return facts


def torchrun_of(python: str) -> str | None:
    """The torchrun that belongs to this very interpreter: another's beside it would train with another."""
    script = Path(python).with_name("torchrun")
    try:
        with script.open("rb") as file:
            first = os.fsdecode(file.readline(4096)).strip()
        started_by = Path(first.removeprefix("#!").strip())
        is_its_own = started_by.parent == script.parent and started_by.samefile(python)
        return str(script) if first.startswith("#!") and is_its_own and os.access(script, os.X_OK) else None
    except (OSError, ValueError):
        return None


def _program(path: Path) -> str:
    what = f"The interpreter {path}"
    if not path.is_absolute():
        raise Unusable(f"{what} is neither an absolute path nor a name on PATH", is_missing=True)
    if path.is_dir():
        for program in (path / "bin" / "python", path / "bin" / "python3"):
            if program.is_file() and os.access(program, os.X_OK):
                return str(program)
        raise Unusable(f"{what} is a folder without bin/python", is_missing=True)
    if not path.exists():
        leads_to = f" (it leads to {path.resolve()})" if path.is_symlink() else ""
        raise Unusable(f"{what} does not exist{leads_to}", is_missing=True)
    if not os.access(path, os.X_OK):
        raise Unusable(f"{what} may not be executed", is_missing=True)
    return str(path)


def _asked(path: str, env: Mapping[str, str], limit_s: float) -> bytes:
    """What it prints when it is asked. The question is an error in the language of any shell."""
    question = f"exec(compile(open({QUESTION!r}).read(), {QUESTION!r}, 'exec'), {{'__name__': '__main__'}})"
    try:
        process = subprocess.Popen(
            [path, "-c", question],
            env=dict(env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Unusable(f"The interpreter {path} cannot be started ({why})") from error
    try:
        said = _output(process, limit_s)
        if said is None:
            raise Unusable(f"The interpreter {path} did not answer within {limit_s:g} s")
        if len(said) >= MOST_BYTES:
            raise Unusable(f"{path} is not a Python that can train (it prints without end)")
        if MARK not in said:
            raise _no_answer(path, process.wait(limit_s), said)
        return said
    except subprocess.TimeoutExpired:
        raise Unusable(f"The interpreter {path} did not end within {limit_s:g} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _output(process: subprocess.Popen[bytes], limit_s: float) -> bytes | None:
    """All it prints until it ends (or until the answer is there), but no more than is sensible; None: too slow."""
    assert process.stdout is not None
    deadline, said = time.monotonic() + limit_s, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(said) < MOST_BYTES:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not selector.select(left_s):
                return None
            piece = os.read(process.stdout.fileno(), 65536)
            said += piece
            if not piece or b"\n" in said.partition(MARK)[2]:
                break
    return said


def _read(path: str, said: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(said.partition(MARK)[2].splitlines()[0])
    except (ValueError, IndexError) as error:
        raise Unusable(f"The interpreter {path} gave no sensible answer") from error
    if not isinstance(answer, dict):
        raise Unusable(f"The interpreter {path} gave no sensible answer")
    return answer


def _no_answer(path: str, code: int, said: bytes) -> Unusable:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1][:300] if lines and QUESTION not in lines[-1] else ""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return Unusable(f"The interpreter {path} crashed with {name}", last_words=last)
    return Unusable(f"{path} is not a Python that can train (exit code {code})", last_words=last)


def _fingerprint(paths: Sequence[str]) -> Fingerprint:
    """Which files these are now, and when they changed last."""
    marks: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            status = Path(path).stat()
            marks.append((status.st_ino, status.st_mtime_ns))
        except (OSError, ValueError):
            marks.append(None)
    return tuple(marks)
