"""A dashboard that many tests can share, and one of their own for those that need it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.dashboard.running import FakeNode, Running
    from tests.end_to_end.browsers import Chromium


@pytest.fixture(scope="session")
def on_port() -> bool:
    """Whether `dashboard` and `shared` listen: override it in a module where a browser or process connects."""
    return False


@pytest.fixture
def dashboard(tmp_path: Path, on_port: bool) -> Iterator[Running]:
    """A dashboard in this process."""
    from tests.dashboard.running import running  # Streamlit takes seconds to import, and many tests need none

    with running(tmp_path / "data", on_port=on_port) as it:
        yield it


@pytest.fixture
def node(dashboard: Running) -> FakeNode:
    """A node with two slots."""
    return dashboard.node()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, on_port: bool) -> Iterator[Running]:
    """One dashboard with a node, for all tests of a module that change nothing."""
    from tests.dashboard.running import running

    data = tmp_path_factory.mktemp("shared") / "data"
    with running(data, on_port=on_port, allowed_hosts=["gpu-1.example"]) as it:
        it.node()
        yield it


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Chromium]:
    """Chromium with the cache that the modules before left behind."""
    from tests.end_to_end.browsers import CHROMIUM, chromium

    if shutil.which(CHROMIUM) is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    profile, slowmo = tmp_path_factory.getbasetemp() / "chromium", pytestconfig.getoption("--slowmo")
    with chromium(profile, pytestconfig.getoption("--headed"), slowmo) as browser:
        yield browser


@pytest.fixture(autouse=True)
def own_main() -> Iterator[None]:
    """AppTest leaves the page's script behind as `__main__`; processes started later would run it again."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture
def rankzero(
    shared: Running, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command against the shared dashboard: its exit code, output and errors."""
    from cli import main

    monkeypatch.setenv("RANKZERO_URL", shared.url)
    monkeypatch.setenv("RANKZERO_TOKEN", shared.token)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main.run(list(arguments))
        return code, *capfd.readouterr()

    return run
