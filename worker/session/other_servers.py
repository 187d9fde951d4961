"""Fetches what lies with another server, to which ours sent us: no token of ours goes there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx

TIMEOUT = httpx.Timeout(60.0, connect=5.0)


class ElsewhereAway(Exception):
    """It does not give what we came for."""


def fetch(url: str, partial: Path, have: int, reached: Callable[[int], None]) -> None:
    """Go on with a file of which so many bytes are here. Raises ElsewhereAway."""
    headers = {"Range": f"bytes={have}-"} if have else {}
    try:
        with httpx.stream("GET", url, headers=headers, timeout=TIMEOUT) as answer:
            if not answer.is_success:
                raise ElsewhereAway(f"the bucket answered {answer.status_code}")
            write_down(answer, partial, reached)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ElsewhereAway(f"the bucket cannot be reached from here ({type(error).__name__})") from error


def write_down(answer: httpx.Response, partial: Path, reached: Callable[[int], None]) -> None:
    """Its bytes, as they come, behind those that are there or in their place."""
    with partial.open("ab" if answer.status_code == 206 else "wb") as file:
        for chunk in answer.iter_bytes():
            file.write(chunk)
            reached(file.tell())
