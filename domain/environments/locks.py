"""The lock file from which a run's environment is built on each node: which one, and what it holds. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

from domain.environments.requirements import Read, lines_of, requirement_in, trouble_in

CHOICES = ("auto", "lock", "none")
"""What `environment` of a spec may say, beside a path: a lock if the code has a usable one, that or an error, none."""
_FILE_NAMES = {
    "uv.lock": r"uv\.lock",
    "pylock.toml": r"pylock(\.[^/]+)?\.toml",
    "requirements.txt": r"[^/]*\.txt",
    "pixi.lock": r"pixi\.lock",
    "environment.yml": r"[^/]*\.ya?ml",
}
"""The kinds of lock and the names of their files; the order in which one folder's are tried."""
KINDS = tuple(_FILE_NAMES)
BUILT_BY_UV = ("uv.lock", "pylock.toml", "requirements.txt")
"""Kinds that need no program of the node's own."""
_NAMED = re.compile(r"(?P<path>.+?)(?:\[(?P<extras>[\w.,\s-]+)\])?")


class BadLock(Exception):
    """A lock file cannot be used; the message is a sentence that says why and what to do."""


@dataclass(frozen=True)
class Lock:
    """A lock file in the code of a run."""

    path: str
    """Relative to the top of the code."""
    kind: str
    extras: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """uv.lock, or libs/a/uv.lock[gpu]"""
        return self.path + (f"[{','.join(self.extras)}]" if self.extras else "")


@dataclass(frozen=True)
class Contents:
    """What a lock file names."""

    packages: int
    torch: str | None
    """The version of torch; None where it names none, "" where it does not say."""
    unpinned: tuple[str, ...] = ()
    """Requirements without a version."""
    trouble: str = ""
    """Why nothing can be installed from it as it is, as a sentence with the line."""
    from_git: tuple[str, ...] = ()
    """Packages that each node would fetch from a repository, with their lines."""


def kind_of(path: str) -> str | None:
    """Return the kind of lock that a file's name says; None for any other file."""
    name = PurePosixPath(path).name
    return next((kind for kind, pattern in _FILE_NAMES.items() if re.fullmatch(pattern, name)), None)


def named_lock(choice: str) -> Lock | None:
    """Return the lock file that a choice names, as `requirements/gpu.txt` or `uv.lock[cu128]`; None for others."""
    match = _NAMED.fullmatch(choice)
    kind = kind_of(match["path"]) if match and choice not in CHOICES and not choice.startswith("/") else None
    if match is None or kind is None:
        return None
    extras = tuple(name.strip() for name in (match["extras"] or "").split(",") if name.strip())
    return Lock(match["path"], kind, extras)


def checked_choice(choice: str) -> str:
    """Return a spec's environment unchanged. Raises ValueError."""
    lock = named_lock(choice)
    if choice in CHOICES or (choice.startswith("/") and "\0" not in choice):
        return choice
    if lock is None:
        rule = (
            "auto, lock, none, the path of a lock file in the code, or the absolute path of an environment on the nodes"
        )
        raise ValueError(f"must be {rule}; got {choice[:100]!r}")
    if ".." in PurePosixPath(lock.path).parts:
        raise ValueError(f"{lock.path!r} must lie inside the code")
    return choice


def candidates(paths: Collection[str], entry: str | None) -> list[Lock]:
    """Return the lock files beside the script or above it, the nearest first, as they are looked for by themselves."""
    folder = PurePosixPath(entry or "x").parent
    names = [*(kind for kind in KINDS if kind != "environment.yml"), "environment.yml", "environment.yaml"]
    locks = []
    for place in (folder, *folder.parents):
        at_hand = {name: str(place / name) for name in names if str(place / name) in paths}
        locks += [Lock(path, "environment.yml" if "environment" in name else name) for name, path in at_hand.items()]
    return locks


def contents(lock: Lock, read: Read) -> Contents:
    """Return what a lock file names. Raises BadLock for one that cannot be read."""
    text = read(lock.path)
    if text is None:
        raise BadLock(f"There is no {lock.path} in the run's code.")
    if lock.kind == "requirements.txt":
        return _requirements(lock, read)
    if lock.kind in BUILT_BY_UV:
        return _toml(lock, text)
    version = re.search(r"\b(?:py)?torch-?(?:gpu|cpu)?\s*[=:-]+\s*(\d[\w.]*)", text)
    torch = (version[1] if version else "") if re.search(r"\b(py)?torch\b", text) else None
    return Contents(len(re.findall(r"(?m)^\s*- \S", text)), torch)


def choose(paths: Collection[str], entry: str | None, read: Read) -> tuple[Lock | None, str]:
    """Return the lock that `auto` builds, and a sentence on why it is none or not another.

    It has to be one that uv builds, with every version fixed and with torch: else nothing could train in it."""
    remark = ""
    for lock in candidates(paths, entry):
        try:
            names = contents(lock, read)
        except BadLock as error:
            remark = remark or str(error)
            continue
        trouble = unusable(lock, names)
        if not trouble:
            return lock, remark
        remark = remark or trouble
    return None, remark


def required(choice: str, paths: Collection[str], entry: str | None, read: Read) -> tuple[Lock, Contents]:
    """Return the lock that `lock` or a path in the code means, and what it names.

    Raises BadLock for one from which nothing can be built to train in."""
    if (lock := named_lock(choice)) is None:
        locks = candidates(paths, entry)
        if not locks:
            raise BadLock(
                "There is no uv.lock, pylock.toml or requirements.txt in the run's code: `rankzero freeze` makes one."
            )
        lock = next((candidate for candidate in locks if not unusable(candidate, contents(candidate, read))), locks[0])
    names = contents(lock, read)
    if names.trouble and choice == "lock":  # a file that is named is tried as it stands: an index of the node may help
        raise BadLock(names.trouble)
    if names.unpinned or (names.torch is None and lock.kind in BUILT_BY_UV):
        raise BadLock(unusable(lock, names))
    return lock, names


def unusable(lock: Lock, names: Contents) -> str:
    """Return why `auto` leaves a lock file out, as a sentence; empty where it takes it."""
    if lock.kind not in BUILT_BY_UV:
        tool = "pixi" if lock.kind == "pixi.lock" else "conda"
        return f"{lock.path} needs the nodes' own {tool}: choose `lock` for it."
    if names.trouble:
        return names.trouble
    if names.unpinned:
        shown = ", ".join(names.unpinned[:3]) + (" …" if len(names.unpinned) > 3 else "")
        verb = "has" if len(names.unpinned) == 1 else "have"
        return f"{lock.path} is no lock: {shown} {verb} no version. `rankzero freeze` writes one with all versions."
    if names.torch is None:
        return f"{lock.path} has no torch: it does not say what to train with."
    if names.from_git:
        return f"{names.from_git[0]} is in a git repository, which each node fetches: choose `lock` for it."
    return ""


def lock_text(lock: Lock, read: Read) -> str:
    """Return all that the packages of a requirements file follow from, its included files as well."""
    return "\n".join(line.text for line in lines_of(lock.path, read))


def required_hashes(lock: Lock, read: Read) -> dict[str, set[str]]:
    """Return the SHA-256 digests that a requirements file allows for the files of a package, by its name."""
    allowed: dict[str, set[str]] = {}
    for line in lines_of(lock.path, read):
        digests = set(re.findall(r"--hash[= ]sha256:([0-9a-f]{64})", line.text))
        if digests and (requirement := requirement_in(line)):
            allowed.setdefault(_normal(requirement.name), set()).update(digests)
    return allowed


def environment_hash(*parts: object) -> str:
    """Return the name of the environment that follows from these: what is installed, the Python, the platform."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]


def _toml(lock: Lock, text: str) -> Contents:
    try:
        document = tomllib.loads(text)
        packages = document["package" if lock.kind == "uv.lock" else "packages"]
        versions = {str(package["name"]): str(package.get("version", "")) for package in packages}
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise BadLock(f"{lock.path} cannot be read as a lock file ({error}): make it again.") from error
    return Contents(len(versions), versions.get("torch"))


def _requirements(lock: Lock, read: Read) -> Contents:
    lines = list(lines_of(lock.path, read))
    placed = [(line, requirement) for line in lines if (requirement := requirement_in(line))]
    named = [requirement for _, requirement in placed]
    trouble = trouble_in(lines)
    if not named and not trouble:
        raise BadLock(f"{lock.path} names no package.")
    versions = {_normal(requirement.name): requirement.version or "" for requirement in named}
    unpinned = tuple(requirement.name for requirement in named if requirement.version is None)
    from_git = tuple(f"{line.place}: {package.name}" for line, package in placed if package.is_from_git)
    return Contents(len(versions), versions.get("torch"), unpinned, trouble, from_git)


def _normal(name: str) -> str:
    """Return a package's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()
