"""The hosts that a command line names: `[user@]name[:port]`, ranges, patterns of `~/.ssh/config`, files. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product

from cli.terminal import CommandFailed

MOST_HOSTS = 4096
DEFAULT_FOLDER = "~/.local/share/rankzero-node"


@dataclass(frozen=True)
class Destination:
    """A machine as `ssh` is asked for it; None where the person's configuration decides."""

    name: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name and self.port else self.name
        return (f"{self.user}@" if self.user else "") + name + (f":{self.port}" if self.port else "")


@dataclass(frozen=True)
class Machine:
    """A host, how it is reached, and where the installation is on it."""

    host: Destination
    jump: str | None = None
    """The host to connect through."""
    folder: str = DEFAULT_FOLDER


def hosts_of(words: Iterable[str], user: str | None, port: int | None, ssh_config: str = "") -> list[Destination]:
    """Return the hosts that words name, each once, in their order; `user` and `port` hold where a word names none.

    Raises CommandFailed."""
    hosts: dict[Destination, None] = {}
    for pattern in words:
        for name in _expanded(pattern, ssh_config):
            hosts[parse(name, user, port)] = None
            if len(hosts) > MOST_HOSTS:
                raise CommandFailed(f"At most {MOST_HOSTS:,} hosts can be added at once.", 2)
    return list(hosts)


def parse(text: str, user: str | None = None, port: int | None = None) -> Destination:
    """Return the host of one word: `gpu-1`, `me@10.0.0.4:2222`, `me@[fe80::1]:22`. Raises CommandFailed."""
    match = _WORD.fullmatch(text)
    named_port = int(match["port"]) if match and match["port"] else port
    if match is None or (named_port is not None and not 0 < named_port < 65_536):
        raise CommandFailed(f"{text!r} is not a host: write [user@]name[:port], for example me@gpu-1:22.", 2)
    return Destination(match["address"] or match["name"], match["user"] or user, named_port)


def words_in(text: str) -> list[str]:
    """Return the hosts listed in a file: separated by blanks or lines, `#` begins a comment."""
    return [entry for line in text.splitlines() for entry in line.partition("#")[0].split()]


_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.\-]+)?"
"""Begins with no minus, which `ssh` would take for an option; an IPv6 address needs brackets before a port."""
_WORD = re.compile(
    rf"(?:(?P<user>[A-Za-z0-9_][\w.\-@\\]*)@)?"
    rf"(?:\[(?P<address>[0-9A-Fa-f:.]+(?:%[\w.\-]+)?)\]|(?P<name>{_NAME}))(?::(?P<port>\d{{1,5}}))?",
    re.ASCII,
)
_RANGE = re.compile(r"\[([\d,\-]+)\]", re.ASCII)


def _expanded(pattern: str, ssh_config: str) -> Iterator[str]:
    """Yield the words that a word with ranges or `*` and `?` matches. Raises CommandFailed."""
    if "*" in pattern or "?" in pattern:
        names = [name for name in names_in(ssh_config) if fnmatchcase(name, pattern)]
        if not names:
            raise CommandFailed(f"No Host of ~/.ssh/config matches {pattern!r}.", 2)
        yield from names
        return
    pieces = _RANGE.split(pattern)
    numbers = [_numbers(piece, pattern) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    for parts in product(*numbers):
        yield "".join(parts)


def _numbers(text: str, pattern: str) -> list[str]:
    """Return the numbers of `1-3,8`, as wide as they are written: `08-10` is 08, 09, 10. Raises CommandFailed."""
    numbers: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdigit() and last.isdigit()) or int(first) > int(last) or int(last) - int(first) >= MOST_HOSTS:
            raise CommandFailed(f"{pattern!r} has a wrong range: write gpu-[1-8], gpu-[01-16] or gpu-[1,3,5-7].", 2)
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers


def names_in(ssh_config: str) -> list[str]:
    """Return the names of a configuration's `Host` lines that are no patterns."""
    names: list[str] = []
    for line in ssh_config.splitlines():
        keyword, _, patterns = line.strip().replace("=", " ", 1).partition(" ")
        if keyword.lower() == "host":
            names += [name.strip('"') for name in patterns.split() if not set(name) & set("*?!")]
    return names
