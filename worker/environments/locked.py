"""Reads a lock file into the packages it fixes, and writes them as the pylock.toml that uv installs."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from domain.environments.locks import BadLock, Lock, kind_of, lock_text, required_hashes
from domain.environments.requirements import decoded

Package = dict[str, Any]
RunUv = Callable[..., str]
"""(arguments, folder): run uv in a folder and return what it printed. Raises ProgramFailed, Stopped."""
_FILES = ("url", "path")
_SOURCES = ("vcs", "directory", "archive", "sdist")


def resolved(lock: Lock, source: Path, python: str, uv: RunUv) -> list[Package]:
    """Return the packages that a lock file fixes for all platforms, as PEP 751 describes them.

    `source` is the top of the code. A requirements file is resolved with its versions, for packages that it does not
    name. Raises BadLock, ProgramFailed, Stopped, OSError."""
    path = source / lock.path
    if lock.kind == "pylock.toml":
        return packages_of(path.read_text(), lock.path)
    if lock.kind == "uv.lock":
        extras = [argument for extra in lock.extras for argument in ("--extra", extra)]
        arguments = ["export", "--frozen", "--format", "pylock.toml", "--no-header", "--python", python, *extras]
    else:
        arguments = ["pip", "compile", "--format", "pylock.toml", "--no-header", "--python", python, path.name]
    packages = packages_of(uv([*arguments, "--quiet"], path.parent), lock.path)
    if lock.kind == "requirements.txt":
        _check_hashes(packages, required_hashes(lock, partial(read_text, source)), lock.path)
    return packages


def packages_of(text: str, name: str = "pylock.toml") -> list[Package]:
    """Return the packages of a pylock.toml. Raises BadLock."""
    try:
        packages = tomllib.loads(text).get("packages", [])
        return [dict(package) for package in packages]
    except (tomllib.TOMLDecodeError, TypeError, ValueError) as error:
        raise BadLock(f"{name} cannot be read as a lock file ({error}): make it again.") from error


def local_folders(packages: Iterable[Package]) -> list[str]:
    """Return the folders of the packages whose source is part of the code, as seen from the lock's folder."""
    return [package["directory"]["path"] for package in packages if "directory" in package]


def third_party(packages: Iterable[Package], beside: Path) -> list[Package]:
    """Return the other packages, their files named by absolute paths: by what they are known to all runs."""
    return [_placed(package, beside) for package in packages if "directory" not in package]


def identity(packages: Iterable[Package]) -> list[list[Any]]:
    """Return what distinguishes the packages from others: where two indexes have the same file it is the same."""
    return sorted([p["name"], p.get("version", ""), p.get("marker", ""), sorted(_origins(p))] for p in packages)


def lock_identity(lock: Lock, source: Path) -> str:
    """Return the text from which the packages of a requirements file follow."""
    return lock_text(lock, lambda path: read_text(source, path))


def read_text(source: Path, path: str) -> str | None:
    """Return the text of a file of the code; None where there is none, or where it leads out of the code."""
    file = Path(os.path.normpath(source / path))
    if not file.is_relative_to(source) or not file.is_file():
        return None
    return decoded(file.read_bytes())


def as_utf8(folder: Path, paths: Iterable[str]) -> None:
    """Write requirements files in UTF-16 of unpacked code as UTF-8, which alone uv reads."""
    for path in paths:
        if kind_of(path) == "requirements.txt" and b"\0" in (content := (folder / path).read_bytes())[:64]:
            (folder / path).write_text(decoded(content))


def _check_hashes(packages: Sequence[Package], hashes: Mapping[str, set[str]], name: str) -> None:
    """Leave only the files with the hashes that the requirements give. Raises BadLock where none of a package has."""
    for package in packages:
        if not (allowed := hashes.get(package["name"])):
            continue
        package["wheels"] = [wheel for wheel in package.get("wheels", []) if _sha256(wheel) in allowed]
        if package.get("sdist") and _sha256(package["sdist"]) not in allowed:
            del package["sdist"]
        if not package["wheels"] and "sdist" not in package:
            subject = (
                f"no file of {package['name']}=={package.get('version')} in the index has a hash that {name} gives"
            )
            raise BadLock(f"{subject}: it was replaced, or the lock is for another index")


def pylock_text(packages: Iterable[Package]) -> str:
    """Return the packages as pylock.toml."""
    lines = ['lock-version = "1.0"', 'created-by = "rankzero"', ""]
    for package in packages:
        lines += ["[[packages]]", *(f"{key} = {_toml(value)}" for key, value in package.items()), ""]
    return "\n".join(lines)


def _placed(package: Package, beside: Path) -> Package:
    """Name the files of a package that lie in the code by their absolute paths."""
    placed = {key: value for key, value in package.items() if key not in ("attestation-identities", "tool")}
    for key in ("sdist", "archive"):
        if key in placed:
            placed[key] = _absolute(placed[key], beside)
    if "wheels" in placed:
        placed["wheels"] = [_absolute(wheel, beside) for wheel in placed["wheels"]]
    return placed


def _absolute(file: Mapping[str, Any], beside: Path) -> dict[str, Any]:
    fields = {key: value for key, value in file.items() if key != "upload-time"}
    return fields | ({"path": str(beside / fields["path"])} if "path" in fields else {})


def _origins(package: Package) -> list[str]:
    files = [*package.get("wheels", []), *(package[key] for key in _SOURCES if key in package)]
    return [_sha256(file) or json.dumps(file, sort_keys=True, default=str) for file in files]


def _sha256(file: Mapping[str, Any]) -> str:
    return str((file.get("hashes") or {}).get("sha256", ""))


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | int | float) else str(value)
