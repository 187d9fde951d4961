"""In Chromium: alerts that are set for the browser are shown once, by one of the open tabs, if the person allows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from db.alerts import alerts
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_store import Seed
from tests.dashboard.visits import look_at, signed_in, whole
from tests.end_to_end.browsers import Chromium, Visit
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.long

LIMIT_S = 120.0
RECORD = """
window.told = [];
window.Notification = class extends window.Notification {
  constructor(title, options) { super(title, options); window.told.push(this); }
};
"""
"""The browser's own notifications, also where a test can see them: a headless browser has no other place."""


@pytest.fixture
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    with browsed(opened(tmp_path_factory.mktemp("notified") / "data")) as it:
        yield it


@pytest.fixture
def made(dashboard: Browsed) -> Seed:
    seed = Seed(dashboard.service.store, dashboard.service.clock())
    seed.node("gpu-1", 8)
    return seed


@pytest.fixture
def visit(browser: Chromium, dashboard: Browsed) -> Iterator[Visit]:
    with signed_in(browser, dashboard) as visit:
        yield visit
        assert visit.errors == []


def allow(visit: Visit, dashboard: Browsed) -> None:
    visit.context.grant_permissions(["notifications"], origin=dashboard.url)


def tab(visit: Visit, dashboard: Browsed, address: str = "/alerts") -> Page:
    page = visit.new_page()
    page.add_init_script(RECORD)
    look_at(page, dashboard, address)
    return page


def fail(made: Seed, dashboard: Browsed, name: str) -> str:
    """A run that fails now."""
    made.launch(name, 10)
    made.start(name, 5)
    age_s = made.now - dashboard.service.clock()
    made.report(name, "failed", age_s, exit_code=1, message="Rank 1 raised ValueError: got <b>10</b>.")
    return made.runs[name]


def notifications(*tabs: Page) -> list[dict[str, Any]]:
    """What the tabs have shown."""
    return [
        notification
        for page in tabs
        for notification in page.evaluate("told.map(({ title, body, tag }) => ({ title, body, tag }))")
    ]


def choose_the_browser(page: Page) -> None:
    page.get_by_role("combobox", name="Tell").click()
    page.get_by_role("option", name="the browser").click()


def test_one_of_the_open_tabs_shows_it_and_leads_to_the_run(visit: Visit, dashboard: Browsed, made: Seed) -> None:
    allow(visit, dashboard)
    first = tab(visit, dashboard)
    choose_the_browser(first)
    expect(first.get_by_text("This browser shows notifications.")).to_be_visible()
    first.get_by_role("button", name="Set alert").click()
    expect(first.get_by_text("nothing sent yet")).to_be_visible()
    second = tab(visit, dashboard, "/")
    run_id = fail(made, dashboard, "digits")
    wait_for(lambda: notifications(first, second), "a notification", LIMIT_S)
    (alert,) = alerts.alerts(dashboard.service.store)
    assert alert.target == "browser"
    (shown,) = notifications(first, second)
    assert shown["title"] == "Rankzero: failed"
    assert shown["body"] == "digits failed: Rank 1 raised ValueError: got <b>10</b>."
    wait_for(lambda: alerts.alerts(dashboard.service.store)[0].last_sent_at, "the tab's answer", LIMIT_S)
    expect(first.get_by_text("nothing sent yet")).to_have_count(0)
    assert alerts.alerts(dashboard.service.store)[0].waiting == 0
    shower, other = (first, second) if notifications(first) else (second, first)
    with visit.context.expect_page() as opening:
        shower.evaluate("told[0].onclick()")
    expect(opening.value.get_by_role("heading", name="digits")).to_be_visible()
    assert opening.value.url.endswith(f"/run?id={run_id}")
    opening.value.close()
    shower.close()
    fail(made, dashboard, "text")
    wait_for(lambda: notifications(other), "the other tab to go on", LIMIT_S)
    assert [each["body"].partition(" ")[0] for each in notifications(other)] == ["text"]
    other.reload()
    other.wait_for_load_state("networkidle")
    assert notifications(other) == []


def test_notification_waits_for_permission_and_the_page_says_why(visit: Visit, dashboard: Browsed, made: Seed) -> None:
    alerts.create(dashboard.service.store, "failed", "browser", None, made.now - 60)
    denied = {"permission": {"name": "notifications"}, "setting": "denied", "origin": dashboard.url}
    session = visit.context.new_cdp_session(visit.context.pages[0])
    session.send("Browser.setPermission", denied)
    page = tab(visit, dashboard)
    expect(page.get_by_text("This browser blocks notifications from this page.")).to_be_visible()
    expect(page.get_by_role("button", name="Allow notifications")).to_have_count(0)
    whole(page)
    fail(made, dashboard, "digits")
    fail(made, dashboard, "text")
    expect(page.get_by_text("2 events waiting")).to_be_visible()
    assert notifications(page) == []
    allow(visit, dashboard)
    expect(page.get_by_text("This browser shows notifications.")).to_be_visible()
    wait_for(lambda: notifications(page), "a notification", LIMIT_S)
    (shown,) = notifications(page)
    assert shown["title"] == "Rankzero: failed (2 events)"
    assert [line.partition(" ")[0] for line in shown["body"].splitlines()] == ["digits", "text"]
    expect(page.get_by_text("waiting")).to_have_count(0)
