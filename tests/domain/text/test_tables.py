"""Tables for other programs show a name's own characters."""

from __future__ import annotations

from domain.text import tables


def test_latex_shows_a_name_with_its_own_characters() -> None:
    text = tables.as_latex([["", "a|b <x_1> 100%"], ["loss", "−∞ (±0 %)"]])
    assert r"a\textbar{}b \textless{}x\_1\textgreater{} 100\%" in text
    assert r"loss & $-$$\infty$ ($\pm$0 \%) \\" in text
