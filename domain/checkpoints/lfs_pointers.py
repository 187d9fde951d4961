"""Git LFS pointers: small texts in place of large files until `git lfs pull` fetches them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from domain.text.formats import as_list, size

MOST_BYTES = 1024
"""The format's own limit."""
LEAST_BYTES = 100
MOST_NAMED = 3
WHAT = "a Git LFS pointer, a small text in place of the file"
_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v\d+\n(?:.*\n)*?size (\d+)\n")


def bytes_of_pointer(content: bytes) -> int | None:
    """The size of the file in whose place this content is; None where it is no pointer."""
    match = _POINTER.match(content[:MOST_BYTES])
    return int(match[1]) if match else None


def pointers_in_words(names: Sequence[str], size_bytes: int | None = None) -> str:
    """Say what these files are: weights.pt is a Git LFS pointer, a small text in place of the file (1.2 GiB)."""
    subject, stands = as_list(names, MOST_NAMED), f" ({size(size_bytes)})" if size_bytes else ""
    if len(names) == 1:
        return f"{subject} is {WHAT}{stands}"
    return f"{subject} are Git LFS pointers, small texts in place of the files{stands}"
