"""The decision records: one page each, short, with the same headings, and listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs/decisions"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
HEADINGS = ["Decision", "Tried", "Measured", "What would change our mind"]
MOST_WORDS = 220


def test_decisions_are_numbered_and_listed_by_their_titles() -> None:
    titles = [page.read_text().partition("\n")[0].removeprefix("# ") for page in PAGES]
    assert [title.partition(".")[0] for title in titles] == [str(number) for number in range(1, len(PAGES) + 1)]
    assert [int(page.name[:4]) for page in PAGES] == [*range(1, len(PAGES) + 1)]
    listed = re.findall(r"^(\d+)\. \[(.+)\]\((.+)\)$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert [(f"{number}. {title}", name) for number, title, name in listed] == [
        (title, page.name) for title, page in zip(titles, PAGES, strict=True)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_is_half_a_screen_with_measurements(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert len(text.split()) <= MOST_WORDS
    measured = text.partition("## Measured")[2].partition("## ")[0]
    assert len(re.findall(r"\d", measured)) > 3, "a measurement is a number"
