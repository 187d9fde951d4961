"""A click while the store takes nothing: the page says that nothing was changed, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.alerts.request import AlertRequest, create
from db.alerts import alerts
from db.runs import run_list
from db.runs.run_list import RunSelection
from db.studies import studies
from db.trouble import Trouble
from domain.sweeps import SweepPlan
from domain.text.formats import as_text
from domain.views import RunView
from tests.dashboard.alerts.conftest import patience
from tests.dashboard.pages import Pages, button, served_full
from tests.dashboard.read_only import make_read_only
from tests.dashboard.seeded_sweeps import seed_sweep

__all__ = ["patience"]

NOTHING = as_text(f"Nothing was changed. {Trouble.READ_ONLY}")


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served_full(tmp_path / "data") as it:
        yield it
        make_read_only(it.service.store, False)


def clicked(page: AppTest, label: str) -> AppTest:
    """The page after a click, without the generic sentence of an exception."""
    after = button(page, label).click().run()
    assert not after.exception
    return after


def test_an_alert_is_not_set_tested_or_removed(pages: Pages) -> None:
    create(pages.service, AlertRequest(rule="failed", target="browser"))
    page = pages.open("alerts")
    make_read_only(pages.service.store, True)
    page.text_input(key="alert_target").set_value("https://8.8.8.8/x")
    assert NOTHING in [error.value for error in clicked(page, "Set alert").error]
    for label in ("Test", "Remove"):
        assert NOTHING in [toast.value for toast in clicked(page, label).toast]
    assert len(alerts.alerts(pages.service.store)) == 1


def test_a_launch_says_that_nothing_was_launched_and_keeps_the_form(pages: Pages) -> None:
    page = pages.open("launch")
    page.text_input(key="launch_name").set_value("typed name").run()
    runs = len(listed(pages))
    make_read_only(pages.service.store, True)
    after = clicked(page, "Launch")
    assert as_text(f"Not launched. {Trouble.READ_ONLY}") in [error.value for error in after.error]
    assert after.text_input(key="launch_name").value == "typed name"
    assert len(listed(pages)) == runs


def test_a_sweep_is_not_stopped(pages: Pages) -> None:
    sweep_id = seed_sweep(pages.seed)
    page = pages.open("sweeps", id=sweep_id)
    make_read_only(pages.service.store, True)
    assert NOTHING in [toast.value for toast in clicked(page, "Stop").toast]
    assert studies.study(pages.service.store, sweep_id, SweepPlan).stop_requested_at is None


def listed(pages: Pages) -> list[RunView]:
    """All runs."""
    return run_list.listed(pages.service.store, pages.service.clock(), RunSelection(), None, 100)
