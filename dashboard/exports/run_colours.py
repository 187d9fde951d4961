"""The numbers of the colours of runs that stand together; `theme.js` chooses the same on the pages."""

from __future__ import annotations

from collections.abc import Sequence

PALETTE = 8
"""Number of fixed colours; further ones are computed."""


def colour_numbers(run_ids: Sequence[str]) -> list[int]:
    """Return a colour's number for each run: its own, which its id says, or the next one where a run before it has
    that; after the palette new ones."""
    numbers: list[int] = []
    for place, run_id in enumerate(run_ids):
        own = int(run_id, 36) % PALETTE
        wanted = ((own + further) % PALETTE for further in range(PALETTE))
        numbers.append(next((number for number in wanted if number not in numbers), place))
    return numbers
