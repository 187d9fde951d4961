"""Finds and inspects the Python that trains; it is queried once, without importing torch."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from domain.clock import SYSTEM_CLOCK
from domain.text.json_values import parse_json
from worker.launch import interpreter_question

LIMIT_S = 30.0
"""An interpreter on a network disk may take seconds to start; a slower one is unusable."""
OLDEST_TORCH = (2, 4)
MAX_OUTPUT_BYTES = 1024 * 1024
QUERY_FILE = str(interpreter_question.__file__)
MARK = interpreter_question.MARK.encode()
Fingerprint = tuple[tuple[int, int] | None, ...]


class Unusable(Exception):
    """The interpreter cannot train: the problem, as a sentence without its end, and the fix."""

    def __init__(self, problem: str, *, is_missing: bool = False, fix: str = "", last_line: str = "") -> None:
        super().__init__(problem)
        self.is_missing = is_missing
        """The program does not exist or may not be executed."""
        self._fix, self._last_line = fix, last_line

    def on(self, node: str) -> str:
        """The complete message: the problem, the node, and the fix."""
        fix = f"{self._fix}, or choose another with --python" if self._fix else "choose another with --python"
        return f"{self} on {node}: {fix}." + (f" Its last output: {self._last_line}" if self._last_line else "")


@dataclass(frozen=True)
class Interpreter:
    """The versions in one Python; None for a library it lacks."""

    path: str
    python: str
    torch: str | None
    cuda: str | None
    nccl: str | None
    rocm: str | None
    prefix: str
    platform: str
    packages: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The versions of all installed packages by name."""

    @property
    def facts(self) -> dict[str, Any]:
        """The fields but for the packages as a JSON object, for reports about nodes."""
        return {name: value for name, value in asdict(self).items() if name != "packages"}


@dataclass(frozen=True)
class _Answer:
    interpreter: Interpreter
    watched: tuple[str, ...]
    fingerprint: Fingerprint


_answers: dict[tuple[str, frozenset[tuple[str, str]]], _Answer] = {}
_answers_lock = threading.Lock()


def find(name: str) -> str:
    """Resolve a path, a folder that contains bin/python, or a name on PATH to a program. Raises Unusable."""
    if "/" not in name:
        if (program := shutil.which(name)) is not None:
            return program
        raise Unusable(f"There is no interpreter {name} on PATH", is_missing=True)
    try:
        return _program(Path(name).expanduser())
    except (OSError, RuntimeError) as error:  # no permission, a name too long, no such user
        cause = error.strerror if isinstance(error, OSError) else error
        raise Unusable(f"The interpreter {name} cannot be looked up ({cause})", is_missing=True) from error


def ask(path: str, env: Mapping[str, str], limit_s: float | None = None) -> Interpreter:
    """Inspect this Python as trainings with this environment see it; `limit_s`: instead of `LIMIT_S`. Raises Unusable.

    The answer is cached until the program or the packages installed for it change."""
    key = _key(path, env)
    with _answers_lock:
        answer = _answers.get(key)
    if answer is None or answer.fingerprint != fingerprint((path, *answer.watched)):
        fields = _parse(path, _query(path, env, LIMIT_S if limit_s is None else limit_s))
        watched_paths = tuple(fields.pop("watched"))
        answer = _Answer(Interpreter(path=path, **fields), watched_paths, fingerprint((path, *watched_paths)))
        with _answers_lock:
            _answers[key] = answer
    return answer.interpreter


def watched_paths(path: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """The program, and the paths that change when its packages do. Raises Unusable."""
    ask(path, env)
    with _answers_lock:
        return (path, *_answers[_key(path, env)].watched)


def fingerprint(paths: Sequence[str]) -> Fingerprint:
    """The inode and modification time of each path; None for a missing one."""
    marks: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            status = Path(path).stat()
            marks.append((status.st_ino, status.st_mtime_ns))
        except (OSError, ValueError):
            marks.append(None)
    return tuple(marks)


def check(interpreter: Interpreter) -> None:
    """Check that trainings can use the interpreter's torch. Raises Unusable."""
    if interpreter.torch is None:
        fix = "install torch in it, add a lock file with torch to the code"
        raise Unusable(f"The Python {interpreter.path} has no torch", fix=fix)
    numbers = tuple(int(number) for number in re.findall(r"\d+", interpreter.torch)[:2])
    if len(numbers) == 2 and numbers < OLDEST_TORCH:
        rule = "older than the {}.{} that trainings need,".format(*OLDEST_TORCH)
        problem = f"The torch of {interpreter.path} is {interpreter.torch}, {rule}"
        raise Unusable(problem, fix="install a newer one")


def describe(name: str, where: str, env: Mapping[str, str]) -> dict[str, Any]:
    """The facts of an interpreter, with the sentence `problem` if it cannot train."""
    facts: dict[str, Any] = {"path": name}
    try:
        interpreter = ask(find(name), env)
        facts = interpreter.facts
        check(interpreter)
    except Unusable as error:
        facts["problem"] = error.on(where)
    return facts


def torchrun_of(python: str) -> str | None:
    """The torchrun of exactly this interpreter, because another one would train with another Python; None without."""
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
    subject = f"The interpreter {path}"
    if not path.is_absolute():
        raise Unusable(f"{subject} is neither an absolute path nor a name on PATH", is_missing=True)
    if path.is_dir():
        for program in (path / "bin" / "python", path / "bin" / "python3"):
            if program.is_file() and os.access(program, os.X_OK):
                return str(program)
        raise Unusable(f"{subject} is a folder without bin/python", is_missing=True)
    if not path.exists():
        leads_to = f" (it leads to {path.resolve()})" if path.is_symlink() else ""
        raise Unusable(f"{subject} does not exist{leads_to}", is_missing=True)
    if not os.access(path, os.X_OK):
        raise Unusable(f"{subject} is not executable", is_missing=True)
    return str(path)


def _key(path: str, env: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    return path, frozenset((name, env[name]) for name in env if name.startswith("PYTHON"))


def _query(path: str, env: Mapping[str, str], limit_s: float) -> bytes:
    """Run the query in the interpreter and return its output. The query is a syntax error in any shell."""
    query = f"exec(compile(open({QUERY_FILE!r}).read(), {QUERY_FILE!r}, 'exec'), {{'__name__': '__main__'}})"
    try:
        process = subprocess.Popen(
            [path, "-c", query],
            env=dict(env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Unusable(f"The interpreter {path} cannot be started ({cause})") from error
    try:
        output = _output(process, limit_s)
        if output is None:
            raise Unusable(f"The interpreter {path} did not answer within {limit_s:g} s")
        if len(output) >= MAX_OUTPUT_BYTES:
            raise Unusable(f"{path} is not a Python that can train (it prints endlessly)")
        if MARK not in output:
            raise _no_answer(path, process.wait(limit_s), output)
        return output
    except subprocess.TimeoutExpired:
        raise Unusable(f"The interpreter {path} did not end within {limit_s:g} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _output(process: subprocess.Popen[bytes], limit_s: float) -> bytes | None:
    """The output until the process ends or has answered, at most MAX_OUTPUT_BYTES; None on a timeout."""
    assert process.stdout is not None
    deadline, output = SYSTEM_CLOCK.now() + limit_s, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while len(output) < MAX_OUTPUT_BYTES:
            left_s = deadline - SYSTEM_CLOCK.now()
            if left_s <= 0 or not selector.select(left_s):
                return None
            chunk = os.read(process.stdout.fileno(), 65536)
            output += chunk
            if not chunk or b"\n" in output.partition(MARK)[2]:
                break
    return output


def _parse(path: str, output: bytes) -> dict[str, Any]:
    try:
        answer = parse_json(output.partition(MARK)[2].splitlines()[0])
    except (ValueError, IndexError) as error:
        raise Unusable(f"The interpreter {path} gave no valid answer") from error
    if not isinstance(answer, dict):
        raise Unusable(f"The interpreter {path} gave no valid answer")
    return answer


def _no_answer(path: str, code: int, output: bytes) -> Unusable:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    last = lines[-1][:300] if lines and QUERY_FILE not in lines[-1] else ""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return Unusable(f"The interpreter {path} crashed with {name}", last_line=last)
    return Unusable(f"{path} is not a Python that can train (exit code {code})", last_line=last)
