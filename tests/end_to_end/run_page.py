"""The page of a run in Chromium."""

from __future__ import annotations

import re

from playwright.sync_api import Page


def state(page: Page):
    """The state as the run's header shows it."""
    return page.locator(".run-header .pill").first


def step(page: Page) -> int:
    """The step as the run's header shows it."""
    figure = page.locator(".run-header .figure", has_text="Step").locator("dd:not(.more)")
    digits = re.sub(r"\D", "", figure.inner_text())
    return int(digits) if digits else -1
