"""A node that makes the environments of projects from local wheels alone, by the real uv."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET

import psutil
import pytest

from dashboard.storage.wheels import Wheels
from domain.assignments import Assignment
from domain.environments.wheels import Wants, WheelAnswer, WheelFile
from domain.messages import EnvironmentReport
from domain.network.ip_addresses import is_of_another_machine
from domain.spec import RunSpec
from tests.packages import write_made_wheel, write_torch_wheel
from worker.environments.environment import EnvironmentMaker
from worker.launch.preparation import LocalNode
from worker.session.client import TaskRef


class Server:
    """The server's wheels and locks, as its routes hand them on, for one node."""

    def __init__(self, wheels: Wheels, wants: Wants, node: str = "a") -> None:
        self.wheels, self.wants, self.node = wheels, wants, node
        self.online = {"a", "b"}

    def lock(self, task: TaskRef, key: str) -> str | None:
        return self.wheels.lock(str(task.fence), key)

    def keep_lock(self, task: TaskRef, key: str, text: str) -> str:
        return self.wheels.keep_lock(str(task.fence), key, text)

    def want_wheels(self, task: TaskRef, wheels: list[WheelFile]) -> WheelAnswer:
        there = {wheel.sha256 for wheel in self.wheels.files()}
        missing = [wheel for wheel in wheels if wheel.sha256 not in there]
        hopeless = self.wants.want(self.node, missing, self.online, time.monotonic())
        return WheelAnswer(there=[wheel.sha256 for wheel in wheels if wheel.sha256 in there], hopeless=hopeless)

    def download_wheel(self, task: TaskRef, wheel: WheelFile, target: Path) -> None:
        target.write_bytes(self.wheels.path(wheel.sha256, wheel.name).read_bytes())

    def send_wheel(self, wheel: WheelFile, path: Path) -> None:
        with self.wheels.arriving() as arrived:
            arrived.write_bytes(path.read_bytes())
            self.wheels.keep(arrived, wheel)
        self.wants.arrived(wheel.sha256)

    def wheel_failed(self, wheel: WheelFile) -> None:
        self.wants.failed(self.node, wheel.sha256)


class Node:
    """One node with its own data directory and a folder of wheels instead of an index."""

    def __init__(self, folder: Path, wheels: Path, server: Server | None = None) -> None:
        self.folder, self.wheels = folder, wheels
        self.server = server or Server(Wheels(folder / "server"), Wants())
        self.reports: list[EnvironmentReport] = []
        self.is_stopped: Callable[[], bool] = lambda: False
        self.env = {"PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1", "UV_CACHE_DIR": str(folder / "cache")}

    def make(
        self, files: Mapping[str, str | bytes], environment: str = "auto", attempt: str = "1", **spec: object
    ) -> Assignment:
        """Make the environment of a run whose code are these files. Raises CannotStart."""
        code = archive(files)
        sha256 = hashlib.sha256(code).hexdigest()
        env = {"PIP_CONFIG_FILE": os.devnull} | self.env  # not what this machine's pip asks
        run = RunSpec.model_validate(
            {"target": "/project", "entry": "train.py", "snapshot": sha256, "environment": environment, "env": env}
            | spec
        )
        assignment = Assignment(
            run_id="abcdefghij", attempt=1, fence=1, node_rank=0, action="run", spec=run, devices=["cpu:0"],
            device_kind="cpu",
        )  # fmt: skip
        maker = EnvironmentMaker(
            self.attempt(attempt),
            LocalNode("gpu-2", self.folder, sys.executable),
            self.server,  # type: ignore[arg-type]
            lambda _, target: target.write_bytes(code) and None,
            lambda: self.is_stopped(),
            self.reports.append,
        )
        return maker.with_environment(assignment)

    def attempt(self, name: str) -> Path:
        """The directory of an attempt."""
        folder = self.folder / "runs" / "abcdefghij" / "attempts" / name / "node0"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def environments(self) -> list[str]:
        """What lies among the environments, without the lock files."""
        return sorted(path.name for path in (self.folder / "envs").glob("*") if path.suffix != ".lock")


def outer_address() -> str:
    """The address of a network card of this machine: from loopback addresses nothing is fetched for other nodes."""
    addresses = (card.address for cards in psutil.net_if_addrs().values() for card in cards if card.family == AF_INET)
    if (address := next(filter(is_of_another_machine, addresses), None)) is None:
        pytest.skip("this machine has no address but loopback")
    return address


class Index(ThreadingHTTPServer):
    """A folder of wheels as an index that is asked over the network."""

    def __init__(self, wheels: Path) -> None:
        address = outer_address()
        super().__init__((address, 0), partial(_Simple, directory=str(wheels)))
        self.url = f"http://{address}:{self.server_port}/simple"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answer nobody any more."""
        self.shutdown()
        self.server_close()


class _Simple(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.strip("/").rpartition("/")[2]
        if not self.path.startswith("/simple"):
            super().do_GET()
            return
        wheels = [path.name for path in Path(self.directory).glob(f"{name}-*.whl")]
        page = "".join(
            f'<a href="/{wheel}#sha256={_digest(Path(self.directory, wheel))}">{wheel}</a>' for wheel in wheels
        )
        self.send_response(200 if wheels else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def archive(files: Mapping[str, str | bytes]) -> bytes:
    """The snapshot of these files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, text in sorted(files.items()):
            member, content_of_it = tarfile.TarInfo(name), text.encode() if isinstance(text, str) else text
            member.size = len(content_of_it)
            tar.addfile(member, io.BytesIO(content_of_it))
    return content.getvalue()


def write_wheels(folder: Path) -> Path:
    """A torch of this environment, and two versions of a package that nothing else has."""
    write_torch_wheel(folder)
    for version in ("1.0", "2.0"):
        write_made_wheel(folder, "locked", version, {"locked/__init__.py": f"VERSION = {version!r}\n"})
    return folder
