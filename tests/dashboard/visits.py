"""Pages of a dashboard opened in Chromium by somebody who is signed in, and the faults that they show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Response, expect

from tests.dashboard.browsed import Browsed

LIMIT_MS = 60_000
VIOLATIONS = {"resultTypes": ["violations"]}
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
        self.page.on("requestfailed", lambda lost: self.complaints.append(f"{lost.url}: {lost.failure}"))
        self.page.on("response", self._answered)

    def _note(self, kind: str, text: str, url: str) -> None:
        if kind == "error" and url != self.page.url:  # the page's own status: a 404 page is one
            self.complaints.append(f"console: {text} ({url})")

    def _answered(self, answer: Response) -> None:
        if answer.status >= 400 and not answer.request.is_navigation_request():
            self.complaints.append(f"{answer.status}: {answer.url}")


@contextmanager
def signed_in(
    browser: Browser, dashboard: Browsed, scheme: str = "light", width: int = 1280
) -> Iterator[BrowserContext]:
    """A browser with a session."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})  # type: ignore[arg-type]
    context.set_default_timeout(LIMIT_MS)
    credentials = dashboard.service.credentials
    cookie = credentials.cookie(dashboard.service.clock())
    context.add_cookies([{"name": credentials.cookie_name, "value": cookie, "url": dashboard.url}])
    yield context
    context.close()


def axe_faults(page: Page) -> list[str]:
    """One line for each element that axe-core complains of; the themes differ in their colours alone."""
    faults = []
    for scheme, options in (("dark", COLOURS), ("light", VIOLATIONS)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        app = page.get_by_test_id("stApp")
        if app.count():
            expect(app).to_have_css("color-scheme", scheme)
        faults += [
            f"{scheme}: {violation['id']}: {node['html']} {node['failureSummary']}"
            for violation in Axe().run(page, options=options).response["violations"]
            for node in violation["nodes"]
        ]
    return faults


def look(context: BrowserContext, dashboard: Browsed, address: str) -> Seen:
    """Open a page that Streamlit draws, and wait until nothing more is asked for."""
    seen = Seen(context.new_page())
    seen.listen()
    seen.page.goto(dashboard.url + address)
    expect(seen.page.locator(".st-key-bar")).to_be_visible()
    seen.page.wait_for_load_state("networkidle")
    expect(seen.page.get_by_test_id("stSkeleton")).to_have_count(0)
    return seen


def whole(page: Page) -> None:
    """Nothing is cut off at the side, and in neither theme axe finds anything."""
    expect(page.locator("[data-stale=true], .run-header.unknown")).to_have_count(0)
    page.wait_for_function(
        "document.documentElement.scrollWidth <= window.innerWidth"
    )  # charts follow the window
    faults = axe_faults(page)
    assert not faults, faults
