"""When `launch --wait` and the mirrors take a run that has ended as complete."""

from __future__ import annotations

from typing import Any

import pytest

from cli.server.following import is_complete

NOTHING = {"has_points": False, "has_checkpoints": False, "silent_nodes": []}


@pytest.mark.parametrize(
    ("delivery", "expected"),
    [
        (None, True),
        (NOTHING, True),
        (NOTHING | {"has_points": True}, False),
        (NOTHING | {"has_checkpoints": True}, False),
        (NOTHING | {"has_checkpoints": True, "silent_nodes": ["gpu-1"]}, True),
    ],
)
def test_points_and_checkpoints_are_waited_for_but_no_silent_node(
    delivery: dict[str, Any] | None, expected: bool
) -> None:
    assert is_complete({"state": "failed", "delivery": delivery}) == expected
    assert not is_complete({"state": "running", "delivery": delivery})
