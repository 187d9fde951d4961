"""Which columns of a table a terminal has room for, and how wide each is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

GAP = 3
"""Characters between two columns."""
LONGEST_WORD = 12
LEAST_NAME = 12
LEAST = 4
GIVING_WAY = (
    "samples/s", "versions", "last seen", "SHA-256", "from", "started", "last sent", "waiting", "last used", "set",
    "ranks", "attempt", "saved", "last", "time", "address", "devices", "set by", "size", "only", "does", "spread",
    "strategy", "project", "limit",
)  # fmt: skip
"""Titles of columns that vanish where there is no room for all, the least important first."""


def fitted(
    titles: Sequence[str], widths: Sequence[tuple[int, int]], whole: Collection[int], room: int
) -> Mapping[int, int]:
    """The columns that are shown, and their widths.

    `widths`: of each column the longest line and the longest word; `whole`: the columns that are never folded. A name
    gets twelve letters; where that is too much for the others, those of little importance vanish."""
    natural = [longest for longest, _ in widths]
    least = [
        longest if number in whole else min(longest, LEAST_NAME if title == "name" else min(longest_word, LONGEST_WORD))
        for number, (title, (longest, longest_word)) in enumerate(zip(titles, widths, strict=True))
    ]
    shown = _shown(titles, least, room)
    fitting = {number: min(natural[number], max(room, least[number])) for number in shown}
    _shrink(fitting, lambda number: least[number], room)
    _shrink(fitting, lambda number: least[number] if titles[number] == "name" or number in whole else LEAST, room)
    return fitting


def _shown(titles: Sequence[str], least: Sequence[int], room: int) -> list[int]:
    """The columns that are left where those of little importance have given way to the others."""
    shown = list(range(len(titles)))
    for title in GIVING_WAY:
        if _total([least[number] for number in shown]) <= room:
            break
        shown = [number for number in shown if titles[number] != title]
    return shown


def _shrink(fitting: dict[int, int], least: Callable[[int], int], room: int) -> None:
    """Take letters from the widest columns until there is room for all, or none has one to give."""
    while _total(fitting.values()) > room:
        giving = [number for number, width in fitting.items() if width > least(number)]
        if not giving:
            return
        fitting[max(giving, key=lambda number: fitting[number])] -= 1


def _total(widths: Collection[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)
