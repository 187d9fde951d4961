"""What every test runs under: nobody's own settings, long tests only on request, and no silent skip."""

from __future__ import annotations

import os
import signal
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests import lanes, postgresql
from tests.parts import PARTS, part_of, place_of, together

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

    from tests.s3_server import Bucket, S3Server

pytest_plugins = ["tests.db.fixtures", "tests.dashboard.fixtures"]
ALLOWED_SKIP = "needs a GPU"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=lanes.LANES, help="run the tests of this lane, by default all that are not long")
    parser.addoption("--record", action="store_true", help="write down the test-seconds of each file")
    parser.addoption("--part", choices=sorted(PARTS), help="run this part of the tests")
    parser.addoption("--headed", action="store_true", help="show the browser of the tests in a window")
    parser.addoption("--slowmo", type=float, default=0, metavar="MS", help="pause before all that the browser does")
    parser.addoption(
        "--no-skips",
        action="store_true",
        default=os.environ.get("RANKZERO_NO_SKIP") == "1",
        help=f'a skip is a failure, unless its reason begins with "{ALLOWED_SKIP}"',
    )

    parser.addoption(
        "--engine-folder",
        help="of `make test-compose`: where a Docker engine of the tests' own keeps its images for the next time",
    )


def pytest_configure(config: pytest.Config) -> None:
    for name in [name for name in os.environ if name.startswith(("RANKZERO_", "AWS_"))]:
        del os.environ[name]
    os.environ["NO_COLOR"] = "1"
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended by `kill`, too, it takes its processes with it
    # An example that takes long on a busy machine is no counterexample. Only the long tests look for new ones: a
    # change is to fail by what it changes.
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("long", patient, max_examples=100)
    settings.register_profile("quick", patient, max_examples=25, derandomize=True)
    settings.load_profile("long" if config.getoption("--lane") == "long" else "quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out other lanes' and parts' tests; of several processes, each takes what lasts longest first."""
    left_out = [item for item in items if not _is_wanted(config, item)]
    if left_out:
        items[:] = [item for item in items if _is_wanted(config, item)]
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workerinput"):  # one of several processes
        items.sort(key=lambda item: place_of(item.nodeid))


def _is_wanted(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether a test is of the lane and part that run; a mark chosen by -m stands for its lane."""
    chosen, part = config.getoption("markexpr"), config.getoption("--part")
    marks = {mark.name for mark in item.iter_markers()}
    if "compose" in marks and "compose" not in chosen:
        return False
    lane, wanted = lanes.lane_of(marks), config.getoption("--lane")
    is_of_lane = lane == wanted or (wanted is None and lane != "long") or lane in chosen
    return part in (None, part_of(item.nodeid)) and is_of_lane


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Each process takes what runs together, and then the next."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid, config.getoption("--lane") in ("real", "long"))

    config.option.loadscopereorder = False
    return Together(config, log)


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
    """Under --no-skips turn a skip into a failure, unless only a GPU is missing."""
    reason = _reason(report)
    if reason and config.getoption("--no-skips") and not reason.startswith(ALLOWED_SKIP):
        report.outcome = "failed"
        report.longrepr = f"skipped, which --no-skips forbids: {reason}"


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    if not report.skipped or hasattr(report, "wasxfail") or not isinstance(report.longrepr, tuple):
        return None
    return report.longrepr[2].removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what this machine could not run, and why; write down how long each file took, where that is asked for."""
    if config.getoption("--record"):
        lanes.record(report for reports in terminalreporter.stats.values() for report in reports)
    reasons = Counter(filter(None, map(_reason, terminalreporter.stats.get("skipped", []))))
    if reasons:
        terminalreporter.section("not run on this machine")
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{count} x {reason}")


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for every test's home: pytest's own numbers take a look at all folders before."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def own_home(homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing a test starts finds or writes the person's own data directory."""
    home = Path(tempfile.mkdtemp(dir=homes))
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgresql.Cluster]:
    """A PostgreSQL server of the tests' own; a connection may take it as long as a busy machine stands still."""
    from db import postgres as product

    with pytest.MonkeyPatch.context() as patient, postgresql.cluster() as running:
        patient.setattr(product, "CONNECT_TIMEOUT_S", 120)
        yield running


@pytest.fixture
def postgres_url(postgres: postgresql.Cluster) -> Iterator[str]:
    """A database with Rankzero's tables, for one test."""
    with postgres.emptied_database() as url:
        yield url


@pytest.fixture(scope="session")
def running_s3() -> Iterator[S3Server]:
    """An S3 server of the tests' own."""
    from tests.s3_server import s3_server  # moto takes long to import, and few tests need it

    with s3_server() as running:
        yield running


@pytest.fixture
def bucket(running_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """An empty bucket, and the AWS_* variables with which it is reached."""
    for name, value in running_s3.environment.items():
        monkeypatch.setenv(name, value)
    yield running_s3.bucket()
    running_s3.is_strict, running_s3.refuse = False, lambda method, path: None
