"""A page that is asked for again while its script is just ending."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect
from streamlit.runtime.app_session import AppSession

from tests.dashboard.browsed import browsed, opened
from tests.dashboard.seeded_store import seed
from tests.dashboard.visits import signed_in
from tests.end_to_end.browsers import Chromium
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.real

LATE_S = 1.5
"""Longer than a page gathers news until it asks, and a script runs."""


class LateMessages:
    """As on a machine so busy that the event loop hears of a script long after it has ended."""

    def __init__(self) -> None:
        self.on_the_way: list[Callable[[], object]] = []

    def send(self, session: AppSession, callback: Callable[[], object]) -> None:
        """What a session does with what its script says."""

        def arrive() -> None:
            callback()
            self.on_the_way.remove(arrive)

        self.on_the_way.append(arrive)
        session._event_loop.call_soon_threadsafe(session._event_loop.call_later, LATE_S, arrive)


def without_patience(route: Route) -> None:
    """The script by which the page would wait for a dialog before it in vain; a click it still lets go first."""
    script = route.fetch().text()
    assert "stDialog" in script
    route.fulfill(body=script.replace("stDialog", "none"), content_type="text/javascript")


def test_dialog_closes_also_where_its_answer_changes_the_page(
    browser: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = opened(tmp_path / "data")
    run_id = seed(service.store, service.clock(), service.files.root).runs["gpt wide, long warm-up"]
    with browsed(service) as dashboard, signed_in(browser, dashboard) as visit:
        page = visit.new_page()
        page.route("**/live/redraws.js*", without_patience)
        page.goto(f"{dashboard.url}/run?id={run_id}")
        page.get_by_role("button", name="Stop", exact=True).click()
        stop = page.get_by_role("button", name="Stop the run")
        expect(stop).to_be_visible()
        expect(page.locator(".stApp[data-test-script-state=notRunning]")).to_be_attached()
        late = LateMessages()
        monkeypatch.setattr(AppSession, "_call_soon_on_event_loop", lambda *said: late.send(*said))
        stop.click()
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
        expect(page.get_by_role("dialog")).to_have_count(0)
        wait_for(lambda: not late.on_the_way, "the last messages, after which Streamlit closes what it holds")
        monkeypatch.undo()
