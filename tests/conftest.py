"""What every test runs under: nobody's own settings, long tests only on request, and no silent skip."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests import postgresql

SKIPS = pytest.StashKey[Counter[str]]()
ALLOWED_SKIP = "needs a GPU"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked long as well")
    parser.addoption(
        "--no-skips",
        action="store_true",
        default=os.environ.get("RANKZERO_NO_SKIP") == "1",
        help=f'a skip is a failure, unless its reason begins with "{ALLOWED_SKIP}"',
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SKIPS] = Counter()
    for name in [name for name in os.environ if name.startswith("RANKZERO_")]:
        del os.environ[name]
    os.environ["NO_COLOR"] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long ones out, unless they are asked for by --long or chosen by -m."""
    if config.getoption("--long") or "long" in config.getoption("markexpr"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _judge_skip(item.config, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _judge_skip(collector.config, report)
    return report


def _judge_skip(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport) -> None:
    """Count a skip; under --no-skips turn it into a failure, unless only a GPU is missing."""
    if not report.skipped or hasattr(report, "wasxfail") or not isinstance(report.longrepr, tuple):
        return
    reason = report.longrepr[2].removeprefix("Skipped: ")
    config.stash[SKIPS][reason] += 1
    if config.getoption("--no-skips") and not reason.startswith(ALLOWED_SKIP):
        report.outcome = "failed"
        report.longrepr = f"skipped, which --no-skips forbids: {reason}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what this machine could not run, and why."""
    if config.stash[SKIPS]:
        terminalreporter.section("not run on this machine")
        for reason, count in sorted(config.stash[SKIPS].items()):
            terminalreporter.line(f"{count} x {reason}")


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing a test starts finds or writes the person's own data directory."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgresql.Cluster]:
    """A PostgreSQL server of the tests' own."""
    with postgresql.cluster() as running:
        yield running


@pytest.fixture
def postgres_url(postgres: postgresql.Cluster) -> Iterator[str]:
    """A database with Rankzero's tables, for one test."""
    with postgres.database() as url:
        yield url
