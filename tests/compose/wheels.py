"""The packages of the image, fetched as this machine fetches packages, and handed to a build over loopback."""

from __future__ import annotations

import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[2]


EXTRAS = ("server", "worker", "torch", "postgres", "s3")
"""Those that the Dockerfile installs."""


def fetch(folder: Path) -> None:
    """Every wheel that the image needs; which torch it is, is this machine's choice."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["build-system"]["requires"] + project["project"]["dependencies"]
    wanted += [each for extra in EXTRAS for each in project["project"]["optional-dependencies"][extra]]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    what = ["--python-version=3.11", "--only-binary=:all:", "--constraint", str(ROOT / "constraints.txt")]
    done = subprocess.run([*pip, "--dest", str(folder), *what, *wanted], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a page that lists them."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *about: object) -> None:
        pass
