"""Clone one commit of a git repository into an empty folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dashboard.snapshots import walking
from dashboard.snapshots.git_hosts import pinned
from dashboard.snapshots.programs import GitTooLarge, GitTooSlow, Outcome, git, has_git
from dashboard.snapshots.refusal import CodeRefused
from domain.text.formats import size

MIB = 1024 * 1024
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
