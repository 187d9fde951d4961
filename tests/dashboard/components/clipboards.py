"""The clipboard of a page."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.end_to_end.product import wait_for


def clipboard(page: Page, part: str) -> str:
    """What was copied, once that is in it; the button says so too briefly for a busy machine."""
    read = "navigator.clipboard.readText()"
    wait_for(lambda: part in page.evaluate(read), f"{part!r} in the clipboard")
    return str(page.evaluate(read))
