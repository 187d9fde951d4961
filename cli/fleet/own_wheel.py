"""The wheel of the Rankzero that runs here, made of its files, and the versions of what it needs."""

from __future__ import annotations

import hashlib
import re
import tempfile
import zipfile
from collections.abc import Collection
from importlib import metadata, util
from pathlib import Path

from cli.extras import packages_of

PACKAGES = ("cli", "dashboard", "db", "domain", "rankzero", "worker")
EXTRA = "worker"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of all files, so that the same files are the same wheel."""


def write_wheel(folder: Path, without: Collection[str] = ()) -> Path:
    """Write the wheel into a folder; it does not ask for the packages in `without`. Raises OSError."""
    distribution = metadata.distribution("rankzero")
    about = f"rankzero-{distribution.version}.dist-info"
    path = folder / f"rankzero-{distribution.version}-py3-none-any.whl"
    content = {str(name): file.read_bytes() for name, file in _files()}
    copied = {name: distribution.read_text(name) for name in _COPIED}
    content |= {f"{about}/{name}": text.encode() for name, text in copied.items() if text}
    asking = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""  # of an egg-info
    content[f"{about}/METADATA"] = _metadata(asking, without).encode()
    content[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: rankzero\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    content[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in (*content, f"{about}/RECORD")).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, written in content.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), written, zipfile.ZIP_DEFLATED)
    return path


def version_of(*files: Path) -> str:
    """Return what names an installation from these files: the version, and a digest of their content."""
    digest = hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files))
    return f"{metadata.version('rankzero')}-{digest.hexdigest()[:10]}"


def write_package(folder: Path) -> tuple[Path, str]:
    """Write the wheel and the versions of what it needs; returns the wheel, and what names an installation of both."""
    wheel, pins = write_wheel(folder), folder / "constraints.txt"
    pins.write_text(constraints())
    return wheel, version_of(wheel, pins)


def own_version() -> str:
    """Return what names an installation of the Rankzero that runs here."""
    with tempfile.TemporaryDirectory(prefix="rankzero-") as folder:
        return write_package(Path(folder))[1]


def constraints(extras: tuple[str, ...] = (EXTRA,), without: Collection[str] = ()) -> str:
    """Return the versions, as installed here, of what these extras need; what is not installed here is left out."""
    versions: dict[str, str] = {}
    waiting = packages_of(extras) + _requirements("rankzero")
    while waiting:
        name = waiting.pop()
        if name not in versions and name not in without:
            try:
                versions[name] = metadata.version(name).partition("+")[0]
            except metadata.PackageNotFoundError:
                continue
            waiting += _requirements(name)
    return "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


_COPIED = ("entry_points.txt", "top_level.txt", "licenses/LICENSE")
"""What the wheel has unchanged from the installation."""


def _files() -> list[tuple[Path, Path]]:
    """Return the files of our packages, each with its path in the wheel."""
    files = []
    for package in PACKAGES:
        spec = util.find_spec(package)
        assert spec is not None and spec.origin is not None
        root = Path(spec.origin).parent
        files += [(path.relative_to(root.parent), path) for path in root.rglob("*") if _belongs(path)]
    return sorted(files)


def _belongs(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"


def _metadata(text: str, without: Collection[str]) -> str:
    """Leave out the lines that ask for a package."""
    lines = text.splitlines(keepends=True)
    requirement = re.compile(rf"Requires-Dist: ({'|'.join(map(re.escape, without))})\b")
    return "".join(line for line in lines if not (without and requirement.match(line)))


def _requirements(name: str) -> list[str]:
    """Return the names of what a distribution needs on any machine, without its extras."""
    lines = metadata.requires(name) or ()
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines if "extra ==" not in line]
    return [re.sub(r"[-_.]+", "-", name).lower() for name in names]
