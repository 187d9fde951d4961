"""What docker-compose.yml describes, built and running under a name and a port of the tests' own."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.compose.engine import Engine
from tests.end_to_end.product import Product, wait_for

ROOT = Path(__file__).parents[2]
BUILD_LIMIT_S = 1800.0
START_LIMIT_S = 300.0


class Stack(Product):
    """Containers instead of processes; `down` proves that nothing of them is left."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        super().__init__(folder)
        self.engine = engine
        self.project = f"rankzero-test-{secrets.token_hex(4)}"
        engine.env["RANKZERO_PORT"] = str(self.port)
        engine.env["RANKZERO_IMAGE"] = self.project
        for_builds = {"network": "host", "args": {"BASE": engine.base}}
        self._more = folder / "build.yml"
        self._more.write_text(yaml.safe_dump({"services": {"dashboard": {"build": for_builds}}}))
        compose = ["docker-compose"] if shutil.which("docker-compose") else ["docker", "compose"]
        files = ["-f", str(ROOT / "docker-compose.yml"), "-f", str(self._more)]
        self._compose = [*compose, "-p", self.project, *files]

    def build(self, wheels: str) -> None:
        """Make the image, from packages that lie behind an address of this machine."""
        given = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels, "PIP_TRUSTED_HOST": "127.0.0.1"}
        args = [task for name, value in given.items() for task in ("--build-arg", f"{name}={value}")]
        self.compose("build", *args, timeout_s=BUILD_LIMIT_S)

    def start(self) -> None:
        """Start what the file describes, and wait until all of it says that it is well."""
        self.compose("up", "-d", "--no-build", timeout_s=START_LIMIT_S)
        wait_for(self.is_well, "every container to be healthy", START_LIMIT_S, explain=self.tail)

    def is_well(self) -> bool:
        """By the health checks of all containers."""
        health = [each["State"].get("Health", {}).get("Status") for each in self.containers().values()]
        return bool(health) and set(health) == {"healthy"}

    def compose(self, *argv: str, timeout_s: float = 120) -> str:
        """docker-compose on this project."""
        return self.engine.run(*self._compose, *argv, timeout_s=timeout_s)

    def containers(self) -> dict[str, dict[str, Any]]:
        """What the engine says of each service's container."""
        ids = self.compose("ps", "-q").split()
        inspected = json.loads(self.engine.run("docker", "inspect", *ids)) if ids else []
        return {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in inspected}

    def image_size_bytes(self) -> int:
        """Uncompressed, its base included."""
        return int(self.engine.run("docker", "image", "inspect", "-f", "{{.Size}}", self.project))

    def token(self) -> str:
        """The login token, asked for as a person does."""
        return self.compose("exec", "-T", "dashboard", "rankzero", "token").strip()

    def tail(self) -> str:
        """The end of what was printed in each container."""
        return self.compose("ps") + self.compose("logs", "--no-color", "--tail=60")

    def down(self) -> None:
        """Remove it all; nothing with its name is left."""
        self.compose("down", "--volumes", "--timeout=5")
        mine = f"label=com.docker.compose.project={self.project}"
        for kind in (["ps", "--all"], ["volume", "ls"], ["network", "ls"]):
            left = self.engine.run("docker", *kind, "--quiet", "--filter", mine)
            assert left == "", f"{' '.join(kind)}: {left}"
        self.engine.run("docker", "rmi", "--force", self.project)


@contextmanager
def stack(engine: Engine, folder: Path, wheels: str) -> Iterator[Stack]:
    """Built, started, healthy; and gone afterwards."""
    made = Stack(engine, folder)
    try:
        made.build(wheels)
        made.start()
        yield made
    finally:
        made.down()
