"""What an interpreter has to train with: run by that very Python, and done without importing torch."""

from __future__ import annotations

import ast
import json
import platform
import site
import sys
from importlib import metadata, util
from pathlib import Path

MARK = "rankzero-interpreter:"
"""Begins the answer; whatever an environment prints of its own accord is not it."""
NCCL_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")


def main() -> None:
    """Print the answer as one line."""
    sys.path[:] = [folder for folder in sys.path if folder]  # not the folder it was asked in
    found = folder_of_torch()
    build = build_of(found) if found else {}
    torch = build.get("__version__") or (version_of("torch") if found else None)
    cuda = build.get("cuda") or None
    answer = {
        "python": platform.python_version(),
        "torch": torch,
        "cuda": cuda,
        "nccl": nccl_version(found, cuda) if found and cuda else None,
        "rocm": build.get("hip") or None,
        "prefix": sys.prefix,
        "platform": sys.platform + " " + platform.machine(),
        "watched": watched(found),
    }
    print("\n" + MARK + json.dumps(answer), flush=True)


def folder_of_torch() -> Path | None:
    """Where `import torch` would find it; None for none, or a folder of that name without torch in it."""
    try:
        spec = util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def build_of(torch: Path) -> dict[str, str | None]:
    """What torch/version.py assigns: its version, and the CUDA or ROCm that it was built for."""
    try:
        tree = ast.parse((torch / "version.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return {}
    found = {}
    for line in tree.body:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        value = getattr(line, "value", None)
        if isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, str)):
            found.update({target.id: value.value for target in targets if isinstance(target, ast.Name)})
    return found


def nccl_version(torch: Path, cuda: str) -> str | None:
    """Of the package that pip puts beside torch, else of the library that lies with it; None if built in."""
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
    """As its metadata says."""
    try:
        return metadata.version(package)
    except Exception:  # metadata may be broken in many ways; torch itself may still work
        return None


def watched(torch: Path | None) -> list[str]:
    """What differs once something is installed or removed: the answer holds while these stay as they are."""
    folders = [folder for folder in sys.path if Path(folder).is_dir()]
    users = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    return folders + ([users] if users else []) + ([str(torch / "version.py")] if torch else [])


if __name__ == "__main__":
    main()
