"""Debian's Chromium, driven by Playwright; Streamlit's scripts are fetched and compiled once for all visits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    Playwright,
    WebError,
    expect,
    sync_playwright,
)

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--renderer-process-limit=1", "--process-per-site",
)  # fmt: skip
STORED = "local_storage,indexeddb,service_workers,cache_storage"
LIMIT_MS = 120_000
Scheme = Literal["light", "dark"]


@dataclass
class Visit:
    """The tabs of a person of whom the browser remembers nothing."""

    context: BrowserContext
    width: int
    scheme: Scheme
    errors: list[str] = field(default_factory=list)

    def new_page(self) -> Page:
        """Open an empty tab."""
        page = self.context.new_page()
        page.set_viewport_size({"width": self.width, "height": 900})
        page.emulate_media(color_scheme=self.scheme)
        return page

    def new_cold_page(self) -> Page:
        """Open an empty tab that fetches all files anew, as on a person's first visit."""
        page = self.new_page()
        session = self.context.new_cdp_session(page)
        session.send("Network.enable")
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        return page

    def note(self, error: WebError) -> None:
        """Keep an exception that no script of a page caught."""
        self.errors.append(str(error.error))


class Chromium:
    """A headless browser that talks to nobody but the pages it is given."""

    def __init__(self, context: BrowserContext) -> None:
        self._context = context
        self._storage = context.new_cdp_session(context.pages[0])  # stays open: the last tab ends the browser

    @contextmanager
    def visit(self, width: int = 1280, scheme: Scheme = "light", limit_ms: int = LIMIT_MS) -> Iterator[Visit]:
        """Yield a visit without cookies, permissions and storage; its tabs are closed afterwards."""
        self._context.set_default_timeout(limit_ms)
        expect.set_options(timeout=limit_ms)
        self._context.clear_cookies()
        self._context.clear_permissions()
        self._storage.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": STORED})
        visit = Visit(self._context, width, scheme)
        self._context.on("weberror", visit.note)
        try:
            yield visit
        finally:
            self._context.remove_listener("weberror", visit.note)
            for page in self._context.pages[1:]:
                page.close()

    @contextmanager
    def apart(self, limit_ms: int = LIMIT_MS) -> Iterator[Visit]:
        """Yield a visit of another person at the same time, which shares nothing with other visits."""
        assert self._context.browser is not None
        expect.set_options(timeout=limit_ms)
        context = self._context.browser.new_context()
        context.set_default_timeout(limit_ms)
        visit = Visit(context, 1280, "light")
        context.on("weberror", visit.note)
        try:
            yield visit
        finally:
            context.close()


def launch(playwright: Playwright) -> Browser:
    """Start the browser without a profile, for pictures and measurements."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET, timeout=LIMIT_MS)


@contextmanager
def chromium(profile: Path, is_shown: bool = False, slow_by_ms: float = 0) -> Iterator[Chromium]:
    """Start the browser on a profile, whose cache makes the visits after the first one cheap.

    `is_shown`: in a window; `slow_by_ms`: before each thing that is done in it."""
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=CHROMIUM, args=QUIET, viewport={"width": 1280, "height": 900}, timeout=LIMIT_MS,
            headless=not is_shown, slow_mo=slow_by_ms,
        )  # fmt: skip
        yield Chromium(context)
        context.close()
