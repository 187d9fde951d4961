"""Prints the versions of an interpreter's libraries; run by that interpreter, without importing torch."""

from __future__ import annotations

import ast
import json
import platform
import re
import site
import sys
from importlib import metadata, util
from pathlib import Path

MARK = "rankzero-interpreter:"
"""Marks the start of the answer, because an environment may print lines of its own."""
PACKAGE_FOLDERS = (".dist-info", ".egg-info")
NCCL_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")


def main() -> None:
    """Print the answer as one line."""
    sys.path[:] = [folder for folder in sys.path if folder]  # without the current folder
    torch_folder = folder_of_torch()
    build = build_of(torch_folder) if torch_folder else {}
    torch = build.get("__version__") or (version_of("torch") if torch_folder else None)
    cuda = build.get("cuda") or None
    answer = {
        "python": platform.python_version(),
        "torch": torch,
        "cuda": cuda,
        "nccl": nccl_version(torch_folder, cuda) if torch_folder and cuda else None,
        "rocm": build.get("hip") or None,
        "prefix": sys.prefix,
        "platform": sys.platform + " " + platform.machine(),
        "packages": packages(),
        "watched": watched_paths(torch_folder),
    }
    print("\n" + MARK + json.dumps(answer), flush=True)


def folder_of_torch() -> Path | None:
    """The folder from which `import torch` would load it; None if torch is not installed."""
    try:
        spec = util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def build_of(torch: Path) -> dict[str, str | None]:
    """The assignments of torch/version.py: the version, and the CUDA or ROCm it was built for."""
    try:
        tree = ast.parse((torch / "version.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    assignments = {}
    for line in tree.body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        value = getattr(line, "value", None)
        if isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, str)):
            assignments.update({target.id: value.value for target in targets if isinstance(target, ast.Name)})
    return assignments


def nccl_version(torch: Path, cuda: str) -> str | None:
    """The version of the NCCL package or library installed with torch; None if NCCL is built in."""
    own = "nvidia-nccl-cu" + cuda.split(".")[0]
    for package in sorted(NCCL_PACKAGES, key=lambda name: name != own):
        version = version_of(package)
        if version:
            return version
    prefix = Path(sys.prefix)
    for folder in [torch / "lib"] + ([prefix / "lib"] if (prefix / "conda-meta").is_dir() else []):
        library = folder / "libnccl.so.2"
        version = library.resolve().name.partition(".so.")[2]
        if library.exists() and "." in version:
            return version
    return None


def version_of(package: str) -> str | None:
    """The version of an installed package; None if it has none."""
    try:
        return metadata.version(package)
    except Exception:  # metadata may be broken in many ways; torch itself may still work
        return None


def packages() -> dict[str, str]:
    """The version of each installed package by name, from the names of folders alone: thousands cost no time."""
    versions: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = sorted(path.name for path in Path(folder).iterdir() if path.suffix in PACKAGE_FOLDERS)
        except OSError:  # a zip archive, or not there
            continue
        for name, _, version in (path.rpartition(".")[0].partition("-") for path in names):
            if version:
                versions.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version.split("-py3")[0])
    return versions


def watched_paths(torch: Path | None) -> list[str]:
    """The paths that change when packages are installed or removed; the answer is valid until then."""
    folders = [folder for folder in sys.path if Path(folder).is_dir()]
    users = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    return folders + ([users] if users else []) + ([str(torch / "version.py")] if torch else [])


if __name__ == "__main__":
    main()
