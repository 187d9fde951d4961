"""The form offers the addresses that alerts have, and tells one of them of the end of the run that it launches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.util import calc_hash

from db.alerts import alerts
from db.runs import run_queries
from tests.dashboard.alerts.conftest import patience
from tests.dashboard.pages import Pages, button, served, texts

__all__ = ["patience"]

TELL, ADDRESS = "launch_tell", "launch_tell_address"


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
        "the browser",
        "https://hooks.example.com/********",
        "slack://********",
        "a new address…",
    ]
    page.selectbox(key=TELL).set_value(hook).run()
    button(page, "Launch").click().run()
    assert not page.exception and "secret" not in texts(page)
    (run,) = run_queries.runs(store, pages.service.clock())
    added = [alert for alert in alerts.alerts(store) if alert.run_id == run.id]
    assert sorted((a.rule, a.target, a.secret) for a in added) == [
        (rule, "https://hooks.example.com/secret", "whsec_x") for rule in ("failed", "finished")
    ]


def test_launch_notifies_only_chosen_addresses(pages: Pages) -> None:
    alerts.create(pages.service.store, "hung", "slack://a/b/c", None, pages.service.clock())
    page = pages.open("launch")
    assert page.selectbox(key=TELL).value == "" and ADDRESS not in [field.key for field in page.text_input]
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


def test_a_new_address_is_told_and_its_secret_is_on_the_alerts_page(pages: Pages) -> None:
    page = pages.open("launch")
    page.selectbox(key=TELL).set_value("new").run()
    page.text_input(key=ADDRESS).set_value("https://8.8.8.8/very-secret").run()
    button(page, "Launch").click().run()
    assert not page.exception and "very-secret" not in texts(page)
    (run,) = run_queries.runs(pages.service.store, pages.service.clock())
    added = alerts.alerts(pages.service.store)
    assert sorted((a.rule, a.target, a.run_id) for a in added) == [
        (rule, "https://8.8.8.8/very-secret", run.id) for rule in ("failed", "finished")
    ]
    assert len({a.secret for a in added}) == 1 and str(added[0].secret).startswith("whsec_")
    page._page_hash = calc_hash("alerts")
    page.run()
    assert page.code[0].value == added[0].secret


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("", "target must be an address without spaces"),
        ("secret", "target must be an address such as"),
        ("nonsense://secret", "target is not an address of Apprise or a webhook"),
        ("http://127.0.0.1/secret", "own network"),
    ],
)
def test_nothing_is_launched_with_an_address_that_is_refused(pages: Pages, address: str, sentence: str) -> None:
    page = pages.open("launch")
    page.selectbox(key=TELL).set_value("new").run()
    page.text_input(key=ADDRESS).set_value(address).run()
    button(page, "Launch").click().run()
    assert not page.exception and sentence in page.error[0].value and "secret" not in page.error[0].value
    store = pages.service.store
    assert run_queries.runs(store, pages.service.clock()) == [] and alerts.alerts(store) == []


def test_the_browser_is_told(pages: Pages) -> None:
    page = pages.open("launch")
    page.selectbox(key=TELL).set_value("browser").run()
    button(page, "Launch").click().run()
    assert not page.exception
    assert [alert.target for alert in alerts.alerts(pages.service.store)] == ["browser", "browser"]
