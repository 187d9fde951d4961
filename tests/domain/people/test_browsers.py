"""Browsers are named by what they are and by their system, whatever else they say they are."""

from __future__ import annotations

import pytest

from domain.people.browsers import browser_name

KIT = "AppleWebKit/537.36 (KHTML, like Gecko)"
MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)"


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        (f"Mozilla/5.0 (X11; Linux x86_64) {KIT} Chrome/141.0.0.0 Safari/537.36", "Chrome on Linux"),
        (f"Mozilla/5.0 (X11; Linux x86_64) {KIT} HeadlessChrome/141.0.0.0 Safari/537.36", "Chrome on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:144.0) Gecko/20100101 Firefox/144.0", "Firefox on Windows"),
        (f"Mozilla/5.0 (Windows NT 10.0) {KIT} Chrome/141.0.0.0 Safari/537.36 Edg/141.0", "Edge on Windows"),
        (f"{MAC} AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Safari/605.1.15", "Safari on macOS"),
        (f"{MAC} {KIT} Chrome/141.0.0.0 Safari/537.36 OPR/124.0", "Opera on macOS"),
        (f"Mozilla/5.0 (Linux; Android 15; Pixel 9) {KIT} Chrome/141.0.0.0 Mobile Safari/537.36", "Chrome on Android"),
        (f"Mozilla/5.0 (Linux; Android 15) {KIT} Chrome/141.0 Mobile Safari/537.36 EdgA/141.0", "Edge on Android"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 CriOS/141.0 Mobile/15E148"
         " Safari/604.1", "Chrome on iPhone"),
        (f"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) {KIT} Chrome/141.0.0.0 Safari/537.36", "Chrome on ChromeOS"),
        ("SomeKiosk/1.0 (Linux)", "A browser on Linux"),
        ("Firefox/144.0", "Firefox"),
        ("curl/8.5.0", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_browser_is_named_by_its_system(user_agent: str, name: str | None) -> None:
    assert browser_name(user_agent) == name
