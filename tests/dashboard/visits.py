"""Pages of a dashboard opened in Chromium by somebody who is signed in, and the faults that they show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, Response, expect

from tests.dashboard.browsed import Browsed
from tests.end_to_end.browsers import Chromium, Scheme, Visit

VIOLATIONS = {"resultTypes": ["violations"]}
RUN_AXE = "options => axe.run(options).then(results => results.violations)"
COLOURS = VIOLATIONS | {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}


@dataclass
class Seen:
    """What a page complained of."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def listen(self) -> None:
        """From now on."""
        self.page.on("console", lambda said: self._note(said.type, said.text, said.location.get("url", "")))
        self.page.on("pageerror", lambda error: self.complaints.append(f"page error: {error}"))
        self.page.on("requestfailed", lambda lost: self._lost(lost.url, lost.failure))
        self.page.on("response", self._answered)

    def _note(self, kind: str, text: str, url: str) -> None:
        if kind == "error" and url != self.page.url:  # the page's own status: a 404 page is one
            self.complaints.append(f"console: {text} ({url})")

    def _lost(self, url: str, failure: str | None) -> None:
        if failure != "net::ERR_ABORTED":  # what a page that is left has asked for
            self.complaints.append(f"{url}: {failure}")

    def _answered(self, answer: Response) -> None:
        if answer.status >= 400 and not answer.request.is_navigation_request():
            self.complaints.append(f"{answer.status}: {answer.url}")


@contextmanager
def signed_in(
    browser: Chromium, dashboard: Browsed, scheme: Scheme = "light", width: int = 1280, user: str = "owner"
) -> Iterator[Visit]:
    """A visit with a session of that person."""
    with browser.visit(width, scheme) as visit:
        credentials = dashboard.service.credentials
        cookie = dashboard.service.sessions.begin(user, "token")
        visit.context.add_cookies([{"name": credentials.cookie_name, "value": cookie, "url": dashboard.url}])
        yield visit


def axe_faults(page: Page) -> list[str]:
    """One line for each element that axe-core complains of; the themes differ in their colours alone."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    faults = []
    for scheme, options in (("dark", COLOURS), ("light", VIOLATIONS)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        app = page.get_by_test_id("stApp")
        if app.count():
            expect(app).to_have_css("color-scheme", scheme)
        faults += [
            f"{scheme}: {violation['id']}: {node['html']} {node['failureSummary']}"
            for violation in page.evaluate(RUN_AXE, options)
            for node in violation["nodes"]
        ]
    return faults


def look(visit: Visit, dashboard: Browsed, address: str) -> Seen:
    """Open a page that Streamlit draws, and wait until nothing more is asked for."""
    seen = Seen(visit.new_page())
    seen.listen()
    look_at(seen.page, dashboard, address)
    return seen


def look_at(page: Page, dashboard: Browsed, address: str) -> None:
    """Load another page in that tab, which costs half of a new tab."""
    page.goto(dashboard.url + address)
    expect(page.locator(".st-key-bar")).to_be_visible()
    page.wait_for_load_state("networkidle")
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)


def whole(page: Page) -> None:
    """Nothing is cut off at the side, and in neither theme axe finds anything."""
    expect(page.locator("[data-stale=true], .run-header.unknown")).to_have_count(0)
    page.wait_for_function("document.documentElement.scrollWidth <= window.innerWidth")  # charts follow the window
    faults = axe_faults(page)
    assert not faults, faults


def sign_out(page: Page) -> None:
    """Sign out by the bar: in the menu with the person's name, where there are several people."""
    expect(page.locator(".st-key-bar_person")).to_be_visible()
    button = page.get_by_role("button", name="Sign out", exact=True)
    menu = page.locator(".st-key-bar_person").get_by_test_id("stPopoverButton")
    expect(menu.or_(page.locator(".st-key-bar .sign-out"))).to_be_visible()
    if menu.count():
        menu.click()
    button.click()
