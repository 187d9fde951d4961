"""The form offers the addresses that alerts have, and tells one of them of the end of the run that it launches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.alerts import alerts
from db.queries import run_queries
from tests.dashboard.pages import Pages, button, served, texts

TELL = "launch_tell"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as opened:
        opened.seed.node("here", 2, kind="cpu")
        yield opened


def test_an_address_of_another_alert_is_told_of_the_run_alone(pages: Pages) -> None:
    store, now = pages.service.store, pages.service.clock()
    hook = alerts.create(store, "spike", "https://hooks.example.com/secret", "whsec_x", now)
    alerts.create(store, "hung", "https://hooks.example.com/secret", "whsec_y", now + 1)
    alerts.create(store, "hung", "slack://a/b/c", None, now + 2)
    page = pages.open("launch")
    assert page.selectbox(key=TELL).options == [
        "nobody",
        "https://hooks.example.com/********",
        "slack://********",
    ]
    page.selectbox(key=TELL).set_value(hook).run()
    button(page, "Launch").click().run()
    assert not page.exception and "secret" not in texts(page)
    (run,) = run_queries.runs(store, pages.service.clock())
    added = [alert for alert in alerts.alerts(store) if alert.run_id == run.id]
    assert sorted((a.rule, a.target, a.secret) for a in added) == [
        (rule, "https://hooks.example.com/secret", "whsec_x") for rule in ("failed", "finished")
    ]


def test_nothing_is_offered_without_alerts_and_nobody_is_told_unless_chosen(pages: Pages) -> None:
    page = pages.open("launch")
    assert TELL not in [box.key for box in page.selectbox]
    alerts.create(pages.service.store, "hung", "slack://a/b/c", None, pages.service.clock())
    page = pages.open("launch")
    assert page.selectbox(key=TELL).value == ""
    button(page, "Launch").click().run()
    assert len(run_queries.runs(pages.service.store, pages.service.clock())) == 1
    assert len(alerts.alerts(pages.service.store)) == 1


def test_an_address_whose_alert_was_removed_is_told_no_more(pages: Pages) -> None:
    alert_id = alerts.create(pages.service.store, "hung", "slack://a/b/c", None, pages.service.clock())
    page = pages.open("launch")
    page.selectbox(key=TELL).set_value(alert_id).run()
    alerts.remove(pages.service.store, alert_id)
    button(page, "Launch").click().run()
    assert not page.exception and alerts.alerts(pages.service.store) == []
