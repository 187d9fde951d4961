"""Copies what a command writes to where it would have written itself, and into the attempt's logs.

A terminal stays the command's controlling terminal: keys, signals, `fg` and passwords work as without us, and nothing
has to be restored, whatever kills us. The command only writes to a pseudo-terminal of the same size, which changes no
byte. What is no terminal becomes a pipe; where both streams go to one place they stay one, in their order.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import termios
import threading
from contextlib import suppress
from queue import SimpleQueue

CHUNK_BYTES = 64 * 1024
REST_BYTES = 1024 * 1024
"""More than a pipe holds: after reading so many bytes, all that the command wrote before its end is out."""
MOST_WAITING_BYTES = 16 * 1024 * 1024
"""What may wait for the disk of the logs; what is written beyond that is missing there."""
DISK_LIMIT_S = 2.0
OUT, ERR = 1, 2


def is_one_place(out: int = OUT, err: int = ERR) -> bool:
    """Whether both streams go to the same file, pipe or terminal, in which their order counts."""
    one, other = os.fstat(out), os.fstat(err)
    is_null = stat.S_ISCHR(one.st_mode) and not os.isatty(out)
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino) and not is_null


class Output:
    """Both streams of one command."""

    def __init__(self, out_log: int, err_log: int, out: int = OUT, err: int = ERR) -> None:
        """`out_log`, `err_log`: descriptors of the logs, which may fill up; `out`, `err`: where the bytes go."""
        self._ended_read, self._ended_write = os.pipe()
        self._logs = LogWriter()
        self.out = Stream(out, os.dup(out_log), self._logs, self._ended_read)
        is_one = is_one_place(out, err)
        self.err = self.out if is_one else Stream(err, os.dup(err_log), self._logs, self._ended_read)
        self._streams = [self.out] if self.err is self.out else [self.out, self.err]

    def start(self) -> None:
        """Copy from now on: the command has its ends."""
        self._logs.start()
        for stream in self._streams:
            stream.start()

    def resize(self) -> None:
        """Give the command's terminal the size of ours."""
        for stream in self._streams:
            stream.resize()

    def end(self) -> bool:
        """Return whether all that the command wrote before its end is out; call it again until then."""
        if self._ended_write != -1:
            os.close(self._ended_write)
            self._ended_write = -1
        if not all(stream.has_ended(0.05) for stream in self._streams):
            return False
        self._logs.close(DISK_LIMIT_S)
        return True

    def leave_to_descendants(self) -> None:
        """Go on copying in a process of its own where something in the background still writes."""
        open_streams = [stream for stream in self._streams if stream.is_open and stream.has_ended(0.0)]
        if not open_streams or not _fork():
            return
        with suppress(BaseException):
            while open_streams:
                select.select([stream.source for stream in open_streams], [], [])
                open_streams = [stream for stream in open_streams if not stream.is_readable() or stream.copy_some()]
        os._exit(0)


class Stream:
    """One stream of the command; its thread copies as soon as something comes."""

    def __init__(self, target: int, log: int, logs: LogWriter, ended: int) -> None:
        """`ended`: the descriptor that is at its end once the command has ended."""
        self._target, self._log, self._logs, self._ended = target, log, logs, ended
        self._is_terminal = os.isatty(target)
        self.source, self.command_end = _terminal_like(target) if self._is_terminal else os.pipe()
        self.is_open = True
        self._thread = threading.Thread(target=self._copy, name="output", daemon=True)

    def start(self) -> None:
        """Start to copy."""
        os.close(self.command_end)
        self._thread.start()

    def has_ended(self, limit_s: float) -> bool:
        """Whether nothing more is copied."""
        self._thread.join(limit_s)
        return not self._thread.is_alive()

    def resize(self) -> None:
        """Take over the size of our terminal."""
        if self._is_terminal and self.is_open:
            with suppress(OSError):
                _copy_size(self._target, self.source)

    def is_readable(self, timeout_s: float = 0.0) -> bool:
        """Whether something was written, or nobody can write any more."""
        return bool(select.select([self.source], [], [], timeout_s)[0])

    def copy_some(self) -> int:
        """Copy what is there and return its bytes; 0 at the end, also where nobody reads: the writer is told so."""
        data = self._read()
        try:
            _write_all(self._target, data)
        except OSError:  # `| head` has enough
            data = b""
        self._logs.write(self._log, data)
        if not data:
            self.is_open = False
            os.close(self.source)
        return len(data)

    def _copy(self) -> None:
        while self._ended not in (ready := select.select([self.source, self._ended], [], [])[0]):
            if ready and not self.copy_some():
                return
        left = REST_BYTES
        while left > 0 and self.is_readable():
            if not (copied := self.copy_some()):
                return
            left -= copied

    def _read(self) -> bytes:
        try:
            return os.read(self.source, CHUNK_BYTES)
        except OSError:  # nobody has the terminal any more
            return b""


class LogWriter:
    """Writes the logs in a thread of its own: a disk that is full or hangs holds up no command."""

    def __init__(self) -> None:
        self._pending: SimpleQueue[tuple[int, bytes] | threading.Event] = SimpleQueue()
        self._waiting_bytes, self._lock = 0, threading.Lock()
        self._is_closed = False

    def start(self) -> None:
        """Start its thread."""
        threading.Thread(target=self._run, name="logs", daemon=True).start()

    def write(self, log: int, data: bytes) -> None:
        """Write this soon; it is left out where too much waits already."""
        with self._lock:
            if self._is_closed or self._waiting_bytes + len(data) > MOST_WAITING_BYTES:
                return
            self._waiting_bytes += len(data)
        self._pending.put((log, data))

    def close(self, limit_s: float) -> None:
        """Wait until everything is written, and take no more."""
        if not self._is_closed:
            self._is_closed, is_written = True, threading.Event()
            self._pending.put(is_written)
            is_written.wait(limit_s)

    def _run(self) -> None:
        while not isinstance(due := self._pending.get(), threading.Event):
            log, data = due
            with suppress(OSError):
                os.write(log, data)
            with self._lock:
                self._waiting_bytes -= len(data)
        due.set()


def _write_all(target: int, data: bytes) -> None:
    """Write everything, however slowly it is read. Raises OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:  # somebody else made it non-blocking
            select.select([], [target], [])


def _terminal_like(target: int) -> tuple[int, int]:
    """Open a pseudo-terminal of this size that passes each byte on as it is; returns its two ends."""
    ours, commands = os.openpty()
    attributes = termios.tcgetattr(commands)
    attributes[1] &= ~termios.OPOST  # our own terminal ends lines
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(commands, termios.TCSANOW, attributes)
    _copy_size(target, ours)
    return ours, commands


def _copy_size(from_terminal: int, to_terminal: int) -> None:
    size = fcntl.ioctl(from_terminal, termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(to_terminal, termios.TIOCSWINSZ, size)


def _fork() -> bool:
    """Whether this is now the new process."""
    try:
        return os.fork() == 0
    except OSError:
        return False
