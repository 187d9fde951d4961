"""Git repositories: clone one commit, and run git in a controlled environment with limits."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO
from urllib.parse import urlsplit

from dashboard.snapshots import walking
from dashboard.snapshots.git_address import CodeRefused
from domain.clock import SYSTEM_CLOCK
from domain.network.ip_addresses import serves_credentials
from domain.text.formats import MIB, size


def clone(url: str, ref: str | None, folder: Path, limits: GitLimits) -> Checkout:
    """Fetch and check out a ref (default: the remote's HEAD) into `folder`. Raises CodeRefused."""
    if not has_git():
        raise CodeRefused("target", "git is not installed on the machine that clones; install it there.")
    commands = _CloneCommands(folder, url, limits)
    folder.mkdir(parents=True)
    commands.local("init", "--quiet", "--template=")
    commit = commands.fetch(ref)
    commands.local("checkout", "--quiet", "--detach", commit)
    return Checkout(folder, commit)


def git(
    folder: Path,
    *arguments: str,
    options: Sequence[str] = (),
    protocols: str = "",
    limit_s: float = 20.0,
    is_too_large: Callable[[], bool] = lambda: False,
    env: Mapping[str, str] = MappingProxyType({}),
    stdin: IO[bytes] | None = None,
    out: IO[bytes] | None = None,
) -> Outcome:
    """Run a git command in a folder; `protocols` are the allowed ones. `out` keeps its output beyond an error.

    Raises GitTooSlow, GitTooLarge."""
    command = ["git", *SAFE_OPTIONS, *options, *arguments]
    with nullcontext(out) if out else tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, cwd=folder, env={**_environment(protocols), **env}, stdin=stdin or subprocess.DEVNULL, stdout=out,
            stderr=err, start_new_session=True,  # without a terminal, nothing can ask for a password
        )  # fmt: skip
        try:
            _wait(process, limit_s, is_too_large)
        finally:
            _end(process)
        out.seek(0)
        err.seek(0)
        return Outcome(process.returncode, out.read(), err.read(65_536).decode(errors="replace"))


@dataclass(frozen=True)
class Outcome:
    """The result of a git command."""

    code: int
    out: bytes
    err: str

    @property
    def complaint(self) -> str:
        """Git's error message, on one line."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        fatal = next((i for i, line in enumerate(lines) if line.startswith(("fatal:", "error:"))), None)
        if fatal is None:
            return lines[-1] if lines else "it printed no message"
        if fatal and "Could not read from remote" in lines[fatal]:
            return lines[fatal - 1]  # ssh's own words
        return lines[fatal].partition(": ")[2]


POLL_S = 0.05
KEPT_VARIABLES = frozenset(
    "GIT_SSH GIT_SSH_COMMAND GIT_SSL_CAINFO GIT_SSL_CAPATH GIT_SSL_NO_VERIFY GIT_ASKPASS".split()
)
SAFE_OPTIONS = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false",
    "-c", "filter.lfs.smudge=", "-c", "filter.lfs.process=", "-c", "filter.lfs.required=false",
)  # fmt: skip


class GitTooSlow(Exception):
    """Git was killed because it exceeded its time limit."""


class GitTooLarge(Exception):
    """Git was killed because it fetched more than the limit."""


def has_git() -> bool:
    """Whether git is installed."""
    return shutil.which("git") is not None


def ask(folder: Path, *arguments: str) -> Outcome:
    """Run a git query on a local checkout; a query that takes too long returns code -1."""
    try:
        return git(folder, *arguments)
    except GitTooSlow:
        return Outcome(-1, b"", "it took too long")


def _wait(process: subprocess.Popen[bytes], limit_s: float, is_too_large: Callable[[], bool]) -> None:
    ends_at = SYSTEM_CLOCK.now() + limit_s
    pause_s = 0.002
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause_s)
            return
        if SYSTEM_CLOCK.now() > ends_at:
            raise GitTooSlow
        if is_too_large():
            raise GitTooLarge
        pause_s = min(0.5, pause_s * 2)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(protocols: str) -> dict[str, str]:
    own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k in KEPT_VARIABLES}
    return {"GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=15"} | own | {
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }  # fmt: skip


# The hosts that git may ask: none that hands out a machine's credentials, whatever its name resolves to.

HTTPS_PORT = 443
Resolve = Callable[[str], Sequence[str]]
"""The addresses of a host name or number; empty where it has none."""


def addresses(host: str) -> list[str]:
    """Return the addresses of a host as the system's resolver does, which also reads 2852039166 and 0xa9fea9fe."""
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []  # git says so, or a proxy or ssh's own configuration knows it
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def pinned(url: str, resolve: Resolve = addresses) -> list[str]:
    """Return git's options for asking only the addresses that were checked here. Raises CodeRefused.

    Names are resolved once: a name whose address changes in between leads nowhere else."""
    host = _host(url)
    resolved = resolve(host)
    if any(map(serves_credentials, resolved)):
        raise CodeRefused(
            "target",
            f"{host} is an address of a machine's own network (link-local), where clouds keep its credentials; "
            "git asks no repository there. Name the repository's real host.",
        )
    if not resolved or ":" in host or not url.startswith("https://"):
        return []
    port = urlsplit(url).port or HTTPS_PORT
    shown = ",".join(f"[{address}]" if ":" in address else address for address in resolved)
    return ["-c", f"http.curloptResolve={host}:{port}:{shown}"]


def _host(url: str) -> str:
    """Return the host of a checked address; `git@host:path` has no scheme."""
    return urlsplit(url).hostname or url.partition("@")[2].partition(":")[0]


# Clone one commit of a git repository into an empty folder.

_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_UNKNOWN_REF = ("couldn't find remote ref", "unadvertised object", "not our ref", "no such ref")


@dataclass(frozen=True)
class GitLimits:
    """The limits of a clone: protocols, time and size."""

    protocols: tuple[str, ...] = ("https", "ssh")
    limit_s: float = 120.0
    limit_bytes: int = 1024 * MIB


@dataclass(frozen=True)
class Checkout:
    """A checked-out commit."""

    folder: Path
    commit: str


class _CloneCommands:
    """The git commands of one clone."""

    def __init__(self, folder: Path, url: str, limits: GitLimits) -> None:
        self._folder, self._url, self._limits = folder, url, limits
        self._pinned = pinned(url) if not url.startswith("file:") else []

    def fetch(self, ref: str | None) -> str:
        """Fetch a ref and return its commit, from all branches and tags where the server does not serve commits.

        Raises CodeRefused."""
        outcome = self._remote("--depth=1", "--no-tags", "--", self._url, ref or "HEAD")
        if outcome.code == 0:
            return self._commit("FETCH_HEAD")
        if ref and _COMMIT.fullmatch(ref):
            full_fetch = self._remote(
                "--no-tags", "--", self._url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"
            )
            resolved = self._run(lambda: git(self._folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"))
            if full_fetch.code == 0 and resolved.code == 0:
                return resolved.out.decode().strip()
            outcome = full_fetch if full_fetch.code else outcome
        raise self._fetch_error(outcome, ref)

    def local(self, *arguments: str) -> None:
        """Run a git command without network access. Raises CodeRefused."""
        limit_s = self._limits.limit_s
        outcome = self._run(lambda: git(self._folder, *arguments, limit_s=limit_s))
        if outcome.code != 0:
            raise CodeRefused("target", f"git could not check out {self._url}: {outcome.complaint}.")

    def _remote(self, *arguments: str) -> Outcome:
        protocols = self._limits.protocols
        allowed = [option for name in protocols for option in ("-c", f"protocol.{name}.allow=always")]
        options = ["-c", "protocol.allow=never", *allowed, "-c", "http.followRedirects=false"]
        options += ["-c", "fetch.recurseSubmodules=false", "-c", "transfer.fsckObjects=true"]
        options += ["-c", "gc.auto=0", "-c", "transfer.bundleURI=false", *self._pinned]
        return self._run(
            lambda: git(
                self._folder, "fetch", "--quiet", *arguments, options=options, protocols=":".join(protocols),
                limit_s=self._limits.limit_s, is_too_large=self._is_too_large,
            )
        )  # fmt: skip

    def _run(self, command: Callable[[], Outcome]) -> Outcome:
        try:
            return command()
        except GitTooSlow:
            limit = f"{self._limits.limit_s:.0f} s"
            raise CodeRefused("target", f"git did not fetch {self._url} within {limit}; try again.") from None
        except GitTooLarge:
            raise CodeRefused(
                "target",
                f"{self._url} is larger than {size(self._limits.limit_bytes)}; clone it yourself and name the folder.",
            ) from None

    def _is_too_large(self) -> bool:
        return walking.size_of(self._folder, 100_000)[0] > self._limits.limit_bytes

    def _commit(self, name: str) -> str:
        outcome = self._run(lambda: git(self._folder, "rev-parse", "--verify", f"{name}^{{commit}}"))
        if outcome.code != 0:
            raise CodeRefused("ref", f"the ref in {self._url} is not a commit.")
        return outcome.out.decode().strip()

    def _fetch_error(self, outcome: Outcome, ref: str | None) -> CodeRefused:
        if ref and any(phrase in outcome.err for phrase in _UNKNOWN_REF):
            return CodeRefused("ref", f"{self._url} has no branch, tag or commit {ref!r}.")
        if ref is None and "find remote ref HEAD" in outcome.err:
            return CodeRefused("target", f"{self._url} is empty: it has no commit yet.")
        return CodeRefused("target", f"git could not fetch {self._url}: {outcome.complaint.rstrip('.')}.")
