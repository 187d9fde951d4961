"""Launches are placed at once; behind a long queue they share the scheduler's turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.service import scheduler, upkeep
from dashboard.service.service import Service
from dashboard.settings import Settings
from db.nodes.node_reports import register_node
from domain.messages import State
from domain.spec import RunSpec
from domain.views import RunView
from tests.dashboard.running import HEARD_FOR_S
from tests.db.cluster import facts
from tests.db.templates import new_data


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service.open(Settings(data=new_data(tmp_path / "data")))
    register_node(service.store, facts(slots=1), None, service.clock() + HEARD_FOR_S)
    yield service
    service.close()


def launch(service: Service) -> RunView:
    return service.run(service.launch(RunSpec(target="image_classifier", gpus_per_node=1)))


def test_a_launch_is_placed_or_told_why_it_waits_before_it_returns(service):
    assert launch(service).state is State.STARTING
    waiting = launch(service)
    assert waiting.state is State.QUEUED and "needs 1 slot" in (waiting.waiting_for or "")


def test_the_runs_that_are_live_are_told_with_each_tick(service):
    told = []
    service.on_live_runs = told.append
    upkeep.tick(service)
    run = launch(service)
    launch(service)  # it waits
    upkeep.tick(service)
    assert told == [set(), {run.id}]


def test_behind_a_long_queue_a_launch_waits_for_the_next_turn(service, monkeypatch):
    monkeypatch.setattr(scheduler, "LONG_QUEUE", 1)
    monkeypatch.setattr(scheduler, "SHORT_SCHEDULING_S", -1.0)
    monkeypatch.setattr(scheduler, "SCHEDULING_SHARE", 1e-12)
    for _ in range(3):
        launch(service)
    late = launch(service)
    assert late.state is State.QUEUED and late.waiting_for is None
    monkeypatch.setattr(scheduler, "SCHEDULING_SHARE", 1e12)
    service.schedule()
    assert "needs 1 slot" in (service.run(late.id).waiting_for or "")
    later = launch(service)
    assert later.waiting_for is None, "no launch takes the long turn"
    upkeep.tick(service)
    assert "needs 1 slot" in (service.run(later.id).waiting_for or "")
