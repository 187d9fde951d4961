"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os

from playwright.sync_api import Browser, Playwright

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def chromium(playwright: Playwright) -> Browser:
    """A headless browser that talks to nobody but the pages it is given."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
