"""Make the folder of wheels with which `make test-gpu` runs where there is no network: all it needs beyond torch.

    python -m benchmarks.gpu.wheels [--python 3.12]

Left out is what torch brings, and what only pages, exports, alerts and the installation of other nodes need.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from cli.fleet.own_wheel import constraints, write_wheel

FOLDER = Path(__file__).parent / "wheels"
LEFT_OUT = frozenset(
    "torch altair apprise grpcio gitpython ipython pandas pillow pyarrow pydeck setuptools uv viztracer".split()
)
BESIDES = ("httptools", "uvloop")
"""Of the extras of what is needed (`uvicorn[standard]`)."""
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64")
"""glibc 2.28 and newer, as torch itself."""
MOST_BYTES = 60 * 1000 * 1000


def main() -> int:
    """Download the wheels, make ours, and say how large the folder is; the exit code is 1 where it is too large."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.wheels", description=__doc__)
    parser.add_argument("--python", default="3.12", help="version of Python on the machine with the GPU")
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    download([*constraints(("server", "worker", "torch"), LEFT_OUT).split(), *map(_pinned, BESIDES)], options.python)
    write_wheel(FOLDER, without=LEFT_OUT)
    size = sum(path.stat().st_size for path in FOLDER.iterdir())
    print(f"{FOLDER}: {size / 1e6:.1f} MB in {len([*FOLDER.iterdir()])} wheels for Python {options.python}, x86-64")
    return int(size > MOST_BYTES)


def _pinned(name: str) -> str:
    return f"{name}=={metadata.version(name)}"


def download(packages: list[str], python: str) -> None:
    """Download wheels for the other machine. Raises subprocess.CalledProcessError where one has none for it."""
    platforms = [argument for name in PLATFORMS for argument in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    kind = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python, *platforms]
    subprocess.run([*pip, *kind, "--dest", str(FOLDER), *packages], check=True)


if __name__ == "__main__":
    sys.exit(main())
