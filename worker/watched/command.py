"""The watched command: found as a shell finds it, started as without us, with its signals and its end."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from domain.clock import SYSTEM_CLOCK, Clock
from worker.attempt.kernel import Kernel
from worker.node import processes
from worker.watched.output import Output
from worker.watched.witness import Witness

FORWARDED = {
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT,
}  # fmt: skip
SIGNALS = FORWARDED | {signal.SIGCHLD, signal.SIGWINCH}
FROM_KERNEL = 0x80
"""`si_code` of what the terminal sends to its whole foreground group."""
AGAIN_S = 0.02
"""`timeout` sends a signal to us, and at once to our whole group."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126


class UnusableCommand(Exception):
    """The command cannot be started; carries a shell's sentence and exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def located(program: str, search_path: str) -> str:
    """Return the file that a shell would start. Raises UnusableCommand."""
    folders = [""] if "/" in program else search_path.split(":")
    candidates = [os.path.join(folder, program) for folder in folders]  # noqa: PTH118  (an empty folder is the current)
    existing = [path for path in candidates if os.path.exists(path)]  # noqa: PTH110
    for path in existing:
        if os.access(path, os.X_OK) and not Path(path).is_dir():
            return path
    if existing:
        problem = "Is a directory" if Path(existing[0]).is_dir() else "Permission denied"
        raise UnusableCommand(f"{program}: {problem}", NOT_EXECUTABLE)
    problem = "No such file or directory" if "/" in program else "command not found"
    raise UnusableCommand(f"{program}: {problem}", NOT_FOUND)


def interpreter_of(program: str, search_path: str) -> str | None:
    """Return the Python that a command runs, where it is one, or a script such as torchrun names it; else None."""
    with suppress(OSError, UnusableCommand):
        path = os.path.abspath(located(program, search_path))  # noqa: PTH100
        if _is_python(path):
            return path
        with open(path, "rb") as file:  # noqa: PTH123
            words = os.fsdecode(file.read(512).partition(b"\n")[0]).removeprefix("#!").split()
        if words[:1] == ["/usr/bin/env"]:
            words = words[1:]
        if words and _is_python(words[0]):
            return located(words[0], search_path)
    return None


def _is_python(path: str) -> bool:
    return Path(path).name.startswith(("python", "pypy"))


class CommandKernel(Kernel):
    """The kernel for the supervisor of a watched command: it passes on signals instead of acting on them."""

    def __init__(self, beside: Callable[[], None], clock: Clock = SYSTEM_CLOCK) -> None:
        """`beside`: what is done now and then while the command runs."""
        self.pid = os.getpid()
        self._beside, self._clock = beside, clock
        self._command: CommandProcess | None = None
        self._witness: Witness | None = None
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it was ignored, nobody's end could be seen
        self.given_mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def start(self, launch: Mapping[str, Any], env: Mapping[str, str], out: BinaryIO, err: BinaryIO) -> CommandProcess:
        """Start the command in our process group, with our input and descriptors. Raises OSError."""
        self._witness = Witness(self._clock)  # before the command, which gets what is sent to all from its start on
        self._command = CommandProcess(launch["argv"], env, Output(out.fileno(), err.fileno()), self.given_mask)
        return self._command

    def wait(self, seconds: float) -> None:
        """Wait until a signal comes or the time is over; whatever comes is the command's, so nothing is returned."""
        received = signal.sigtimedwait(SIGNALS, seconds)
        # A wait that a stop of this process outlasts returns a signal that was never sent.
        if received is not None and received.si_signo in SIGNALS and self._command is not None:
            self._pass_on(received.si_signo, received.si_code, self._command)
        self._beside()

    @property
    def exit_code(self) -> int | None:
        """How the command ended, negative for a signal; None where it could not be started."""
        return self._command.returncode if self._command else None

    def follow(self) -> None:
        """Wait for the end of the command, where nothing else is done about it any more."""
        self._beside = lambda: None
        while self._command is not None and self._command.poll() is None:
            with suppress(Exception):  # a bug of ours must not end it
                self.wait(1.0)

    def release_signals(self) -> None:
        """Get signals as this process got them before."""
        self._end_witness()
        signal.pthread_sigmask(signal.SIG_SETMASK, self.given_mask)

    def end(self) -> None:
        """Leave what the command has left in the background."""
        self._end_witness()
        if self._command is not None:
            self._command.output.leave_to_descendants()

    def _end_witness(self) -> None:
        if self._witness is not None:
            self._witness.end()

    def _pass_on(self, number: int, code: int, command: CommandProcess) -> None:
        if number == signal.SIGCHLD:
            return
        if number == signal.SIGWINCH:
            command.output.resize()
            command.send(number)  # it may have asked for the size before
            return
        if self._have_all(number, code):
            signal.sigtimedwait({number}, AGAIN_S)
        else:
            command.send(number)
        if number != signal.SIGCONT:
            command.give_up_output()

    def _have_all(self, number: int, code: int) -> bool:
        """Whether the command has the signal already: it was sent to all of a group, a step or a terminal."""
        was_seen = self._witness is not None and self._witness.has(number)
        return was_seen or code == FROM_KERNEL


class CommandProcess:
    """The started command, as a supervisor sees its launcher: it has ended once all its output is out."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], output: Output, mask: set[int | signal.Signals]
    ) -> None:
        """Start it. Raises OSError."""
        self.output, self.returncode = output, None
        self._is_given_up = False

        def prepare() -> None:
            """Give it the signals that we got, and let it end if we are killed; runs in the child before exec."""
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            with suppress(OSError):  # a sandbox forbids it
                processes.die_with_parent(signal.SIGTERM)

        def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
            out, err = output.out.command_end, output.err.command_end
            return subprocess.Popen(words, env=env, stdout=out, stderr=err, close_fds=False, preexec_fn=prepare)

        try:
            self._process = start(argv)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            self._process = start(["/bin/sh", located(argv[0], env.get("PATH", os.defpath)), *argv[1:]])
        self.pid = self._process.pid
        output.start()

    returncode: int | None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs or its output is not out."""
        if self.returncode is None and self._process.poll() is not None and (self._is_given_up or self.output.end()):
            self.returncode = self._process.returncode
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM unless it has ended."""
        self._process.terminate()

    def send(self, number: int) -> None:
        """Send a signal unless it has ended."""
        self._process.send_signal(number)

    def give_up_output(self) -> None:
        """Wait no longer for a reader of its last output: somebody wants an end."""
        self._is_given_up = self._process.poll() is not None


def execute(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Become the command, unwatched. Raises UnusableCommand."""
    path = located(argv[0], env.get("PATH", os.defpath))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores both, and the command would too
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execve(path, [*argv], env)
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            os.execve("/bin/sh", ["/bin/sh", path, *argv[1:]], env)
        raise UnusableCommand(f"{argv[0]}: {error.strerror}", NOT_EXECUTABLE) from None


def leave(exit_code: int) -> NoReturn:
    """End this process as the command ended: with its exit code, or by its signal, without a core of ours."""
    if exit_code < 0:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-exit_code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.kill(os.getpid(), -exit_code)
    os._exit(exit_code if exit_code >= 0 else 128 - exit_code)  # process 1 of a container ends by no signal
