"""A connection to one host by the person's own `ssh`: their agent, keys, jumps, `known_hosts` and configuration."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.fleet.host_list import Destination, Machine

CONNECT_LIMIT_S = 30.0
ASKED_LIMIT_S = 300.0
"""How long a person may take to compare a fingerprint or type a password."""
SSH = ("ssh",)
SSH_FAILED = 255
"""The exit code of `ssh` where it has not connected; any other is that of the command."""
PIECE_BYTES = 256 * 1024


class HostTrouble(Exception):
    """What keeps a host from being added, in one sentence."""


class NeedsPerson(HostTrouble):
    """`ssh` has something to ask: whether a host key is right, or a password."""


@dataclass(frozen=True)
class SshOptions:
    """How all hosts of a command are connected."""

    sockets: Path
    """A private folder with a short path, for one socket a host."""
    accept_new: bool = False
    """Accept the host keys of hosts that are not in known_hosts."""
    terminal: asyncio.Lock | None = None
    """Held while `ssh` asks on the terminal; None where there is none."""


@dataclass(frozen=True)
class Answer:
    """What a script on a host answered."""

    code: int
    values: dict[str, Any]
    """By name, what the script said in lines that begin with its mark; whatever else printed there is left out."""
    errors: str = field(repr=False)

    @property
    def last_error(self) -> str:
        """The last line that was printed to its standard error."""
        return last_line(self.errors)


class Connection:
    """One authenticated connection, which every command to the host shares."""

    def __init__(self, machine: Machine, options: SshOptions, number: int) -> None:
        self.machine, self.host, self._options = machine, machine.host, options
        self._socket = options.sockets / str(number)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Connection]:
        """Connect, asking on the terminal where `ssh` has to; disconnects at the end. Raises HostTrouble."""
        async with AsyncExitStack() as stack:
            try:
                master = await self._connect(batch=True)
            except NeedsPerson as question:
                if self._options.terminal is None:
                    raise
                async with self._options.terminal:
                    print(f"{self.host}: {question}", file=sys.stderr, flush=True)
                    master = await self._connect(batch=False)
            stack.push_async_callback(_end, master)
            yield self

    async def run(self, script: str, *data: bytes | Path, limit_s: float = 60.0) -> Answer:
        """Run a script of sh with `data` (bytes, or the content of files) on its standard input. Raises HostTrouble."""
        mark = f"rankzero-{secrets.token_hex(4)}"
        argv = [*SSH, "-S", str(self._socket), "-o", "BatchMode=yes", *PLAIN, *self._destination(), REMOTE]
        process = await _start(argv)
        whole = f"echo\nmark={mark}\n{SAY}{script}".encode()  # a profile may not end its line
        try:
            async with asyncio.timeout(limit_s):
                reading = asyncio.gather(_read(process.stdout), _read(process.stderr))
                await _feed(process, BLANK + b"%d\n%s" % (len(whole), whole), *data)
                output, errors = await reading
                code = await process.wait()
        except TimeoutError:
            raise HostTrouble(f"it has not answered within {limit_s:g} s.") from None
        finally:
            await _end(process)
        if code == SSH_FAILED and not _values_in(output, mark):
            raise HostTrouble(trouble(errors, self.host).args[0])
        return Answer(code, _values_in(output, mark), errors)

    async def _connect(self, batch: bool) -> asyncio.subprocess.Process:
        """Start the connection that the others use; it ends with its standard input, so also when we are killed."""
        mark = secrets.token_hex(8)
        options = ["-M", "-S", str(self._socket), "-o", f"BatchMode={'yes' if batch else 'no'}", *KEEP]
        options += ["-o", "StrictHostKeyChecking=accept-new"] if self._options.accept_new else []
        options += ["-v"] if batch else []
        argv = [*SSH, *options, *PLAIN, *self._destination(), f"echo {mark}; exec cat"]
        process = await _start(argv, may_ask=not batch)
        errors = asyncio.ensure_future(_read(process.stderr))
        limit_s = CONNECT_LIMIT_S if batch else ASKED_LIMIT_S
        try:
            async with asyncio.timeout(limit_s):
                assert process.stdout is not None and process.stdin is not None
                process.stdin.write(BLANK)
                printed = ""
                while line := await process.stdout.readline():
                    if mark in line.decode(errors="replace"):
                        return process
                    printed += line.decode(errors="replace")
                if await process.wait() == SSH_FAILED:
                    raise trouble(await errors, self.host)
                last_printed = last_line(printed) or "nothing"
                raise HostTrouble(f"its login shell ended before a command could run; it printed: {last_printed}.")
        except TimeoutError:
            await _end(process)
            raise HostTrouble(f"ssh has not connected within {limit_s:g} s.") from None
        except BaseException:
            await _end(process)
            raise

    def _destination(self) -> list[str]:
        host, jump = self.host, self.machine.jump
        named = [*(["-l", host.user] if host.user else []), *(["-p", str(host.port)] if host.port else [])]
        return [*(["-J", jump] if jump else []), *named, "--", host.name]


PLAIN = ("-T", "-o", "RemoteCommand=none", "-o", "ForwardX11=no", "-o", "ClearAllForwardings=yes")
"""Whatever the person's configuration lets `ssh` do with a terminal."""
BLANK = b"\n" * 4
"""For a shell profile that reads from standard input; the script begins behind it."""
KEEP = (
    "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4",
    "-o", "ControlPersist=no",
)  # fmt: skip
REMOTE = (
    "exec /bin/sh -c 'n=; while [ -z $n ]; do IFS= read -r n || exit 9; done; eval \"$(dd bs=1 count=$n 2>/dev/null)\"'"
)
"""Understood by every login shell: runs the script on standard input, and leaves to it what follows there."""
SAY = 'say() { printf "%s %s %s\\n" "$mark" "$1" "$2"; }\n'


async def _start(argv: Sequence[str], may_ask: bool = False) -> asyncio.subprocess.Process:
    """Start `ssh`: without the terminal, unless it may ask. `-J` starts another that BatchMode does not reach."""
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=pipe,
            stdout=pipe,
            stderr=None if may_ask else pipe,
            limit=PIECE_BYTES,
            start_new_session=not may_ask,
            env=None if may_ask else {**os.environ, "SSH_ASKPASS_REQUIRE": "never"},
        )
    except FileNotFoundError:
        raise HostTrouble("there is no `ssh` program on this machine: install OpenSSH's client.") from None


async def _feed(process: asyncio.subprocess.Process, *data: bytes | Path) -> None:
    """Write to a program; one that has ended has said why."""
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        for content in data:
            if isinstance(content, Path):
                with content.open("rb") as file:
                    while piece := file.read(PIECE_BYTES):
                        process.stdin.write(piece)
                        await process.stdin.drain()
            else:
                process.stdin.write(content)
                await process.stdin.drain()
    process.stdin.close()


async def _read(stream: asyncio.StreamReader | None) -> str:
    return (await stream.read()).decode(errors="replace") if stream is not None else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program of ours, by its standard input first."""
    if process.returncode is None:
        assert process.stdin is not None
        process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await process.wait()
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        with suppress(TimeoutError):  # what it started may hold its output open
            async with asyncio.timeout(1.0):
                await process.wait()


def _values_in(output: str, mark: str) -> dict[str, Any]:
    """Return what a script said, by name; a value that begins like JSON is read as such."""
    values: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith(f"{mark} "):
            _, name, *value = line.split(" ", 2)
            values[name] = _value(value[0]) if value else ""
    return values


def _value(text: str) -> Any:
    if text.startswith(("{", "[")):
        with suppress(ValueError):
            return json.loads(text)
    return text


# What `ssh` says, as one sentence.

_FINGERPRINT = re.compile(r"debug1: Server host key: (\S+ \S+)")
_NOISE = (
    "debug1:",
    "debug2:",
    "OpenSSH_",
    "Warning: Permanently added",
    "Authenticated to",
    "Transferred:",
    "Bytes per",
)


def trouble(errors: str, host: Destination) -> HostTrouble:
    """Return why `ssh` did not connect, from what it printed."""
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith(_NOISE)]
    text, key = "\n".join(lines), _FINGERPRINT.search(errors)
    if "HOST IDENTIFICATION HAS CHANGED" in text or "differs from the key" in text:
        return HostTrouble(
            f"its host key is not the one in known_hosts{f' (now {key[1]})' if key else ''}: if the machine was "
            f"reinstalled, remove the old key by `ssh-keygen -R {host.name}`; else the connection may be intercepted."
        )
    if "key verification failed" in text or "host key is known" in text:
        return NeedsPerson(
            f"its host key is not known here yet{f' ({key[1]})' if key else ''}: compare it with the machine's own, "
            f"then connect once by hand (`ssh {host.name}`), or accept it as it is with --accept-new."
        )
    if "Permission denied" in text or "Too many authentication failures" in text:
        return NeedsPerson(
            f"ssh is refused there ({last_line(text)}): load the key (`ssh-add`) or name the user (--user), so that "
            f"`ssh {host.name}` works without a password, or run this in a terminal, where ssh can ask for it."
        )
    reason = last_line(text).removeprefix("ssh: ")
    return HostTrouble(f"ssh cannot connect: {reason or 'it gives no reason'}.")


_TELLING = re.compile(
    r"(?i)os error|no space|quota|denied|no wheels|no matching distribution|its proxy|dns error|unreachable"
)


def telling_line(text: str) -> str:
    """Return the line of a program's errors that says most: a cause that a person knows, else the last one."""
    lines = [line.strip(" │╰─▶×├\t\r").removeprefix("ERROR: ") for line in text.splitlines()]
    causes = [line for line in lines if _TELLING.search(line)]
    return (causes or [line for line in lines if line] or [""])[-1].rstrip(".")[:400]


def last_line(text: str) -> str:
    """Return the last line that is not blank, without its full stop."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".")[:500] if lines else ""
