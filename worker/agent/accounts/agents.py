"""The process that works for one account, as the worker sees it: started through root or sudo, and asked to end."""

from __future__ import annotations

import logging
import os
import pwd
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from domain.clock import Clock
from domain.masking.log_lines import one_line
from worker.agent.accounts.messages import (
    LONGEST_ANSWER_BYTES,
    AgentCheck,
    AgentLine,
    AgentSettings,
    Answered,
    Order,
    Status,
)
from worker.node.run_as import Account, NoAccount

log = logging.getLogger("worker")
CHECK_LIMIT_S = 60.0
LONGEST_LOG_LINE = 2000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class AgentProcess:
    """One run of an account's agent. Raises NoAccount, OSError."""

    def __init__(
        self, account: Account, data: Path, settings: AgentSettings, on_answer: Callable[[Answered], object]
    ) -> None:
        """`on_answer` is called with each result of a preflight, in a thread that reads nothing else meanwhile."""
        self.account, self._on_answer = account, on_answer
        self.status = Status()
        self.has_answered = threading.Event()
        """Set once it has said what it found, or has ended."""
        self._sent = 0
        self._orders: list[Order] = []
        self._condition = threading.Condition()
        self._is_closed = False
        self._process = start(account, data)
        self._begin("write", lambda: self._write(settings))
        self._begin("read", self._read)
        self._begin("log", self._log)

    @property
    def is_running(self) -> bool:
        """Whether its process exists."""
        return self._process.poll() is None

    @property
    def is_current(self) -> bool:
        """Whether its status is that after all orders."""
        return self.status.seen >= self._sent

    def order(self, order: Order) -> None:
        """Pass this on; returns at once. A newer order replaces an older one of its kind."""
        with self._condition:
            self._sent += 1
            kind = order.desired is None
            self._orders = [one for one in self._orders if (one.desired is None) != kind]
            self._orders.append(order.model_copy(update={"number": self._sent}))
            self._condition.notify()

    def close(self) -> None:
        """Let it end; its trainings continue."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()

    def wait(self, limit_s: float) -> None:
        """Wait for its end, but not longer than that."""
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            log.warning("the agent of %s has not ended within %g s", self.account.name, limit_s)

    def _begin(self, name: str, loop: Callable[[], None]) -> None:
        threading.Thread(target=loop, name=f"{self.account.name}, {name}", daemon=True).start()

    def _write(self, settings: AgentSettings) -> None:
        pipe = _pipe(self._process.stdin)
        try:
            pipe.write(settings.model_dump_json().encode() + b"\n")
            pipe.flush()
            while True:
                with self._condition:
                    self._condition.wait_for(lambda: bool(self._orders) or self._is_closed)
                    orders, self._orders = self._orders, []
                    if not orders:
                        break
                for order in orders:
                    pipe.write(order.model_dump_json().encode() + b"\n")
                pipe.flush()
            pipe.close()
        except OSError:
            log.debug("the agent of %s has ended", self.account.name)

    def _read(self) -> None:
        """Take up what it says; a process that trainings can tamper with may say anything."""
        while text := _pipe(self._process.stdout).readline(LONGEST_ANSWER_BYTES):
            try:
                line = AgentLine.model_validate_json(text)
            except ValidationError:
                log.warning("the agent of %s sent an unreadable message", self.account.name)
                continue
            if line.status is not None:
                self.status = line.status
                self.has_answered.set()
            if line.answered is not None:
                self._on_answer(line.answered)
        self.has_answered.set()

    def _log(self) -> None:
        while line := _pipe(self._process.stderr).readline(LONGEST_LOG_LINE):
            log.info("%s: %s", self.account.name, one_line(line.decode(errors="replace").strip()))


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def command(data: Path) -> list[str]:
    """The command line of an agent, which is the same for all accounts."""
    return [sys.executable, "-P", "-m", "worker.agent.accounts.agent", "--data", str(data)]


def start(account: Account, data: Path) -> subprocess.Popen[bytes]:
    """Start an account's agent. Raises NoAccount, OSError."""
    is_root = os.getuid() == 0
    become = [] if is_root else ["sudo", "-n", "-H", "-u", account.name, "--"]
    try:
        return subprocess.Popen(
            [*become, *command(data)],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={"PATH": PATH, **account.variables} if is_root else {"PATH": PATH},
            user=account.uid if is_root else None,
            group=account.gid if is_root else None,
            extra_groups=account.groups if is_root else None,
        )
    except PermissionError:
        raise NoAccount(
            f"{account.name} cannot execute {sys.executable}: install Rankzero where this account may read it, "
            "such as /opt/rankzero."
        ) from None
    except FileNotFoundError:
        raise NoAccount("This worker is not root, so --run-as needs sudo: install sudo, or run it as root.") from None


def check(account: Account, data: Path, settings: AgentSettings, all_accounts: Sequence[str]) -> None:
    """Find out whether trainings can run under this account. Raises NoAccount."""
    question = settings.model_copy(update={"only_checks": True}).model_dump_json().encode() + b"\n"
    process = start(account, data)
    try:
        answer, errors = process.communicate(question, timeout=CHECK_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise NoAccount(f"The agent of {account.name} has not answered within {CHECK_LIMIT_S:g} s.") from None
    try:
        problem = AgentCheck.model_validate_json(answer).problem
    except ValidationError:
        problem = _unanswered(account, data, errors.decode(errors="replace"), all_accounts)
    if problem:
        raise NoAccount(problem)


def _unanswered(account: Account, data: Path, errors: str, all_accounts: Sequence[str]) -> str:
    """Why an agent gave no answer, in a sentence."""
    last = one_line((errors.strip().splitlines() or ["it said nothing"])[-1])[:300]
    if os.getuid() != 0 and "sudo:" in errors:
        rule = f"{_own_name()} ALL=({','.join(all_accounts)}) NOPASSWD: {_for_sudoers(command(data))}"
        return f"This worker may not start anything as {account.name} ({last}). Add to /etc/sudoers.d/rankzero: {rule}"
    return f"The agent of {account.name} could not be started: {last}"


def _for_sudoers(arguments: Sequence[str]) -> str:
    """A command line as a rule of sudoers(5), which allows these very arguments."""
    return " ".join(re.sub(r"([\\,:= *?!\[\]#\"'])", r"\\\1", argument) for argument in arguments)


def _own_name() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def wait_for(agents: Sequence[AgentProcess], limit_s: float, clock: Clock) -> None:
    """Wait until each has said what it found, but not longer than that."""
    deadline = clock.now() + limit_s
    for agent in agents:
        clock.wait(deadline, agent.has_answered)
