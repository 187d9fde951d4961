"""The browser and the system behind a request, by the words of its `User-Agent`."""

from __future__ import annotations

import re

BROWSERS = {
    "Edg": "Edge",
    "OPR": "Opera",
    "Vivaldi": "Vivaldi",
    "SamsungBrowser": "Samsung Internet",
    "Firefox": "Firefox",
    "FxiOS": "Firefox",
    "Chrome": "Chrome",
    "HeadlessChrome": "Chrome",
    "CriOS": "Chrome",
    "Safari": "Safari",
}
"""In this order: most browsers also name those that they descend from."""
SYSTEMS = {
    "Windows": "Windows",
    "Android": "Android",
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Mac OS X": "macOS",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}


def browser_name(user_agent: str) -> str | None:
    """Chrome on Linux, Firefox, a browser on Windows; None where the words tell nothing."""
    products = set(re.findall(r"([A-Za-z]+)/", user_agent))
    browser = next((name for token, name in BROWSERS.items() if {token, f"{token}A", f"{token}iOS"} & products), None)
    system = next((name for token, name in SYSTEMS.items() if token in user_agent), None)
    if system is None:
        return browser
    return f"{browser or 'A browser'} on {system}"
