"""The colours of runs that stand together, of the palette that `theme.js` reads on the pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

_FILE = files("dashboard.components") / "elements/palette.json"
PALETTE: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
"""Colours in the `light` and the `dark` theme, distinct also to colour-blind eyes and at least 3:1 against the
background; those after them are `hue_step` degrees apart, the golden angle, which never comes back to one."""
COLOURS = len(PALETTE["light"])


def colour_numbers(run_ids: Sequence[str]) -> list[int]:
    """Return a colour's number for each run: its own, which its id says, or the next one where a run before it has
    that; after the palette new ones."""
    numbers: list[int] = []
    for place, run_id in enumerate(run_ids):
        own = int(run_id, 36) % COLOURS
        wanted = ((own + further) % COLOURS for further in range(COLOURS))
        numbers.append(next((number for number in wanted if number not in numbers), place))
    return numbers
