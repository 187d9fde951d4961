"""The JSON that a command prints."""

from __future__ import annotations

import json
from typing import Any


def document(result: tuple[int, str, str]) -> Any:
    """Exit code 0, nothing on stderr, and one JSON document on stdout."""
    assert (result[0], result[2]) == (0, "")
    return json.loads(result[1])
