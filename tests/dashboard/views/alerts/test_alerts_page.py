"""The Alerts page: rules are set and refused, tested and removed, and no secret is shown twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.components.browser import IS_REDRAW
from db.alerts import alerts, events
from domain.alerts.rules import Act, Trigger
from tests.dashboard.alerts.conftest import patience
from tests.dashboard.pages import Pages, button, served, texts

__all__ = ["patience"]


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as it:
        yield it


def test_an_alert_is_set_tested_and_removed_on_the_page(pages: Pages) -> None:
    page = pages.open("alerts")
    assert not page.exception and "No alert is set" in texts(page)
    page.selectbox(key="alert_rule").set_value(Trigger.NO_IMPROVEMENT).run()
    page.text_input(key="alert_limit").set_value("500")
    page.text_input(key="alert_series").set_value("val/loss")
    page.text_input(key="alert_target").set_value("https://8.8.8.8/very-secret")
    page.text_input(key="alert_project").set_value("paper")
    button(page, "Set alert").click().run()
    assert not page.exception and not page.error
    (alert,) = alerts.alerts(pages.service.store)
    assert (alert.rule, alert.project) == ("no-improvement=500:val/loss", "paper")
    assert page.code[0].value == alert.secret
    assert page.text_input(key="alert_target").value == ""
    shown = texts(page)
    assert "project paper" in shown and "very-secret" not in shown
    assert str(alert.secret) not in texts(pages.open("alerts")), "another session never sees it"
    page.button(key=f"alert_test_{alert.id}").click().run()
    (delivery,) = events.claim(pages.service.store, pages.service.clock(), (), 4)
    assert delivery.rule == events.TEST_EVENT
    page.button(key=f"alert_remove_{alert.id}").click().run()
    assert not page.exception and alerts.alerts(pages.service.store) == []


def test_refused_alert_says_why_without_its_address(pages: Pages) -> None:
    page = pages.open("alerts")
    page.selectbox(key="alert_rule").set_value(Trigger.WAITS).run()
    page.text_input(key="alert_target").set_value("slack://secret")
    button(page, "Set alert").click().run()
    assert "waits needs a duration" in page.error[0].value
    page.selectbox(key="alert_rule").set_value(Trigger.FAILED).run()
    page.text_input(key="alert_target").set_value("http://127.0.0.1/secret")
    button(page, "Set alert").click().run()
    assert not page.exception and "own network" in page.error[0].value
    assert "secret" not in page.error[0].value and alerts.alerts(pages.service.store) == []


def test_a_refusal_stays_while_the_page_draws_itself_again_and_goes_with_the_next_action(pages: Pages) -> None:
    page = pages.open("alerts")
    button(page, "Set alert").click().run()
    (refusal,) = (error.value for error in page.error)
    for _ in range(2):
        page.session_state[IS_REDRAW] = True  # as the refreshing component's callback leaves it
        assert [error.value for error in page.run().error] == [refusal]
    page.selectbox(key="alert_rule").set_value(Trigger.HUNG).run()
    assert not page.error


def test_an_alert_that_acts_is_set_where_the_rule_allows_it(pages: Pages) -> None:
    page = pages.open("alerts")
    assert "alert_act" not in [box.key for box in page.selectbox], "a failed run can do nothing more"
    page.selectbox(key="alert_rule").set_value(Trigger.HUNG).run()
    assert page.selectbox(key="alert_act").options == ["Only tell", "End the run"]
    page.selectbox(key="alert_rule").set_value(Trigger.SPIKE).run()
    page.selectbox(key="alert_act").set_value(Act.ROLLBACK).run()
    page.number_input(key="alert_factor").set_value(0.25)
    page.text_input(key="alert_target").set_value("https://8.8.8.8/x")
    button(page, "Set alert").click().run()
    assert not page.exception and not page.error
    (alert,) = alerts.alerts(pages.service.store)
    assert (alert.rule, alert.act, alert.lr_factor) == ("spike", "rollback", 0.25)
    assert "rolls back with the learning rate × 0.25" in texts(page)


def test_the_browser_is_a_target_without_an_address(pages: Pages) -> None:
    page = pages.open("alerts")
    page.selectbox(key="alert_to_browser").set_value(True).run()
    assert "alert_target" not in [field.key for field in page.text_input]
    button(page, "Set alert").click().run()
    assert not page.exception and not page.error
    (alert,) = alerts.alerts(pages.service.store)
    assert (alert.target, alert.secret) == ("browser", None)
    assert "browser" in [text.value for text in page.text]
