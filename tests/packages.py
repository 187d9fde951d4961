"""Wheels of the packages installed here, made again from their files: an index for tests that must not ask one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PARTS = ("cli", "dashboard", "db", "domain", "rankzero", "worker")


def write_own_wheel(folder: Path) -> None:
    """Build the wheel of this checkout, from a copy: a build leaves files beside the source."""
    source = folder / "source"
    for part in PARTS:
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "from setuptools import build_meta; build_meta.build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    shutil.rmtree(source)


def needed(requirements: list[str]) -> dict[str, metadata.Distribution]:
    """Return the installed distributions that the requirements lead to, by their names."""
    distributions: dict[str, metadata.Distribution] = {}
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in distributions or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        distributions[name] = metadata.distribution(name)
        further = [Requirement(text) for text in distributions[name].requires or ()]
        waiting += [(one, extra) for one in further for extra in ("", *requirement.extras)]
    return distributions


def write_wheel(distribution: metadata.Distribution, folder: Path) -> Path:
    """Pack an installed distribution as the wheel that it came from, less what pip wrote: scripts, compiled files."""
    about = distribution.read_text("WHEEL") or ""
    tags = [line.removeprefix("Tag: ").split("-") for line in about.splitlines() if line.startswith("Tag: ")]
    tag = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    name = canonicalize_name(distribution.name).replace("-", "_")
    wheel = folder / f"{name}-{distribution.version}-{tag}.whl"
    scripts = f"{name}-{distribution.version}.data/scripts"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in distribution.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                archive.write(str(file.locate()), str(file))
            elif is_program(Path(str(file.locate()))):
                archive.write(str(file.locate()), f"{scripts}/{file.name}")
    return wheel


def is_program(path: Path) -> bool:
    """Whether a file is a compiled program, as the wheel of uv has one."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF" and path.parent.name == "bin"


def write_made_wheel(
    folder: Path, name: str, version: str, files: dict[str, str], requires: Sequence[str] = ()
) -> Path:
    """Pack a made-up package of the given files."""
    about = f"{name}-{version}.dist-info"
    metadata_lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {each}" for each in requires)]
    contents = {
        **files,
        f"{about}/METADATA": "\n".join(["Metadata-Version: 2.1", *metadata_lines, ""]),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},,{len(text.encode())}" for path, text in contents.items()]
    contents[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,", ""])
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return folder / f"{name}-{version}-py3-none-any.whl"


def write_torch_wheel(folder: Path) -> Path:
    """Pack a torch that is this environment's own, which it names: the real one has hundreds of megabytes."""
    version = metadata.version("torch").partition("+")[0]
    return write_made_wheel(folder, "torch", version, {"torch.pth": f"{sysconfig.get_path('purelib')}\n"})
