"""Paths in texts: without the folders of a machine, and in errors about files. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = r"""[^\s/"'`<>|,;:()\[\]{}=]+"""
_PATH = re.compile(
    r"""(?P<quote>["'`])~?/(?P<quoted>[^"'`\n]+)(?P=quote)"""
    rf"""|(?:\bfile://|(?<![\w/.~-]))~?(?:/{_NAME}){{2,}}/?"""
)


def without_folders(text: str, known_paths: Iterable[str] = ()) -> str:
    """Return the text with `…/train.py` for `/home/me/train.py`; `known_paths` may have blanks in them.

    Addresses such as https://host/path and relative paths stay."""
    for path in sorted({path for path in known_paths if path.startswith(("/", "~"))}, key=len, reverse=True):
        folder = path.rstrip("/").rpartition("/")[0]
        for prefix in (path.rstrip("/"), folder):
            if prefix.count("/") > 1 or " " in prefix:
                text = text.replace(prefix + "/", "…/")
        text = text.replace(path, f"…/{_last(path)}") if path.count("/") > 1 else text
    return _PATH.sub(_shortened, text)


def problem_in_words(error: Exception) -> str:
    """Return an error without its number: Read-only file system (/data/node)."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return error.strerror + (f" ({error.filename})" if error.filename else "")


def _shortened(match: re.Match[str]) -> str:
    quote = match["quote"] or ""
    return f"{quote}…/{_last(match['quoted'] or match[0])}{quote}"


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
