"""Downloads from the bucket that the server redirects to, without sending the node's token there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx2

TIMEOUT = httpx2.Timeout(60.0, connect=5.0)


class BucketUnavailable(Exception):
    """The bucket cannot be reached or refuses the download."""


def fetch(url: str, partial: Path, offset_bytes: int, on_progress: Callable[[int], None]) -> None:
    """Resume the download of a file at `offset_bytes`. Raises BucketUnavailable."""
    headers = {"Range": f"bytes={offset_bytes}-"} if offset_bytes else {}
    try:
        with httpx2.stream("GET", url, headers=headers, timeout=TIMEOUT) as answer:
            if not answer.is_success:
                raise BucketUnavailable(f"the bucket answered {answer.status_code}")
            write_body(answer, partial, on_progress)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise BucketUnavailable(f"the bucket cannot be reached from here ({type(error).__name__})") from error


def write_body(answer: httpx2.Response, partial: Path, on_progress: Callable[[int], None]) -> None:
    """Write the body to the file: appended if the answer is partial (206), else from the start."""
    with partial.open("ab" if answer.status_code == 206 else "wb") as file:
        for chunk in answer.iter_bytes():
            file.write(chunk)
            on_progress(file.tell())
