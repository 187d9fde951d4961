"""The front of `rankzero watch`: runs a command in the user's terminal as without us, under a supervisor.

All that takes time or the network is done by its companion, a program beside it. Whatever fails here is one line on
stderr: the command starts and continues. Only the standard library is imported, so that it starts at once.
"""

from __future__ import annotations

import getpass
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import worker.probe
from domain.clock import SYSTEM_CLOCK
from domain.watching import commands
from domain.watching.joins import Join, joined_by
from worker.attempt.supervisor import AttemptDirectory, Supervisor
from worker.node import processes
from worker.node.attempt_files import LAUNCH_FILE, LOCK_FILE
from worker.watched import folder as folders
from worker.watched.command import SIGNALS, CommandKernel, UnusableCommand, execute, interpreter_of, located
from worker.watched.companion_process import CompanionProcess, Launch, launch_companion
from worker.watched.folder import ATTEMPT, Watched
from worker.watched.output import is_one_place

PROBE_VARIABLE = "RANKZERO_PROBE_DIR"


@dataclass(frozen=True)
class WatchOptions:
    """The command line of `rankzero watch`."""

    argv: Sequence[str]
    name: str = ""
    project: str = "default"
    tags: Sequence[str] = ()
    key: str | None = None
    look_only: bool = False


def watch(options: WatchOptions, data: Path, launch_companion: Launch = launch_companion) -> int:
    """Run the command and return its exit code, negative for the signal that ended it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends us as any program, until there is a command
    _open_closed_streams()
    try:
        if _is_watched_already(os.environ):
            say("this run is watched already; the command runs in it")
            execute(options.argv, os.environ)
        located(options.argv[0], os.environ.get("PATH", os.defpath))
        try:
            attempt = _prepare(options, data)
        except Exception as error:  # also a bug of ours
            say(f"not watched: {_in_words(error)}; the command runs without that")
            execute(options.argv, os.environ)
        return _run(*attempt, launch_companion)
    except UnusableCommand as error:
        say(str(error))
        return error.exit_code


def say(sentence: str) -> None:
    """Write one line to stderr."""
    with suppress(OSError):
        os.write(2, f"rankzero: {sentence}\n".encode(errors="backslashreplace"))


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"


def _run(directory: AttemptDirectory, launch: Mapping[str, Any], is_last: bool, launch_companion: Launch) -> int:
    """Run the command under its supervisor; `is_last`: its companion ends with us. Raises UnusableCommand."""
    folder = directory.folder.parent
    companion = CompanionProcess(folder, say, launch_companion)
    kernel = CommandKernel(companion.look)
    env = launch["env"]
    try:
        supervisor = Supervisor(directory, env[processes.RUN_VARIABLE], int(env[processes.ATTEMPT_VARIABLE]), kernel)
        supervisor.run()
        if supervisor.state["launch_error"]:
            say(f"not watched: {supervisor.state['launch_error']}")
    except Exception as error:  # a bug of ours must not end a training
        say(f"not watched any more: {_in_words(error)}")
        kernel.follow()
    directory.close()
    if kernel.exit_code is None:
        return _run_without(folder, launch, kernel)
    try:
        kernel.end()
        companion.wait_until_delivered(is_last, _is_interrupted)
    except Exception as error:
        say(f"what is recorded stays in {folder}: {_in_words(error)}")
    return kernel.exit_code


def _run_without(folder: Path, launch: Mapping[str, Any], kernel: CommandKernel) -> NoReturn:
    """Become the command, which could not be started under a supervisor. Raises UnusableCommand."""
    _remove(folder)
    kernel.release_signals()
    execute(launch["argv"], os.environ)


def _prepare(options: WatchOptions, data: Path) -> tuple[AttemptDirectory, dict[str, Any], bool]:
    """Make the folder of the command with all that its supervisor and companion need, or nothing. Raises OSError."""
    host = os.uname().nodename
    join = joined_by(os.environ, options.argv, options.key, host)
    watched = described(options, join, host)
    try:
        attempt = folders.make(data, watched) / ATTEMPT
        launch = launch_document(attempt, watched, join) | {"argv": list(options.argv)}
        _write_launch(attempt, launch)
        return AttemptDirectory(attempt), launch, _companion_ends_with_us(join)
    except Exception:
        _remove(folders.folder_of(data, watched))
        raise


def _write_launch(attempt: Path, launch: Mapping[str, Any]) -> None:
    (attempt / "worker").mkdir()
    (attempt / LAUNCH_FILE).write_text(json.dumps(launch))
    for stream in ("out", "err"):  # they exist already where the disk is full later
        (attempt / "logs" / f"{launch['output']}.{stream}").touch()


def _remove(folder: Path) -> None:
    from shutil import rmtree  # imports compressors, for which no command should wait

    rmtree(folder, ignore_errors=True)


def described(options: WatchOptions, join: Join, host: str) -> Watched:
    """Return the description of what this process watches: a command, or itself where it has none."""
    return Watched(
        watch_id=folders.new_id(),
        run_id=folders.new_id(),
        argv=[argument.encode(errors="backslashreplace").decode() for argument in options.argv],
        cwd=os.getcwd(),  # noqa: PTH109
        host=host,
        account=_account(),
        pid=os.getpid(),
        started_at=SYSTEM_CLOCK.wall(),
        name=options.name,
        project=options.project,
        tags=list(options.tags),
        key=join.key,
        is_lasting=join.is_lasting,
        process=join.process,
        processes=join.processes,
        ranks_here=join.ranks_here,
        world_size=join.world_size,
        scheduler=join.scheduler,
        python=interpreter_of(options.argv[0], os.environ.get("PATH", os.defpath)) if options.argv else None,
        look_only=options.look_only,
    )


def launch_document(attempt: Path, watched: Watched, join: Join) -> dict[str, Any]:
    """Return the contents of launch.json, as `worker.launch.preparation` writes it for what we launch."""
    ranks = join.ranks_here or 1
    shares_output = commands.shares_output(watched.argv, os.environ)
    first_rank = join.rank if join.rank is not None else (join.process or 0) * ranks
    return {
        "argv": watched.argv,
        "env": {
            processes.RUN_VARIABLE: watched.run_id,
            processes.ATTEMPT_VARIABLE: str(join.restart + 1),
            processes.NODE_RANK_VARIABLE: str(join.process or 0),
            PROBE_VARIABLE: str(attempt / "probe"),
            "PYTHONPATH": str(Path(worker.probe.__path__[0])),
            **_of_ranks(attempt, watched.argv, shares_output),
        },
        "secrets": [],
        "cwd": watched.cwd,
        "grace_s": watched.stop_grace_s,
        "launcher": "torchrun" if commands.is_torchrun(watched.argv) else "python",
        "launcher_restarts": 0,
        "first_rank": first_rank,
        "output": "launcher" if shares_output else f"rank{first_rank}",
        "processes": ranks,
        "master_port": None,
        "watched": True,
        "look_only": watched.look_only,
        "is_merged": is_one_place(),
    }


def _of_ranks(attempt: Path, argv: Sequence[str], shares_output: bool) -> dict[str, str]:
    """Return the variables by which ranks have logs of their own and say why they fail, unless they have such."""
    chosen = dict[str, str]()
    if shares_output:
        chosen["RANKZERO_RANK_LOGS"] = str(attempt / "logs")
    if commands.is_torchrun(argv):
        chosen["TORCHELASTIC_ERROR_FILE"] = str(attempt / "error.json")
    return {name: value for name, value in chosen.items() if name not in os.environ}


def _is_watched_already(env: Mapping[str, str]) -> bool:
    """Whether this is a process of a live attempt, which somebody's probe sees already."""
    probe = env.get(PROBE_VARIABLE)
    return processes.RUN_VARIABLE in env and bool(probe) and processes.is_locked(Path(probe or "").parent / LOCK_FILE)


def _companion_ends_with_us(join: Join) -> bool:
    """Whether everything of ours is killed when we end: in a scheduler's step, a container, a service."""
    return join.scheduler is not None or os.getpid() == 1 or (os.getppid() in (0, 1) and not os.isatty(0))


def _is_interrupted(seconds: float) -> bool:
    """Wait, and return whether somebody wants us to end now."""
    received = signal.sigtimedwait(SIGNALS - {signal.SIGCHLD, signal.SIGWINCH, signal.SIGCONT}, seconds)
    return received is not None


def _open_closed_streams() -> None:
    """Open what was closed (`>&-`): else files of ours would become the command's output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user without a name
        return str(os.getuid())
