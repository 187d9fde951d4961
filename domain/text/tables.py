"""Tables as text for other programs: CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

Lines = Sequence[Sequence[str]]
"""The head, then the rows; every cell is text."""

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""First characters of a cell that a spreadsheet would evaluate (OWASP, CSV injection)."""
LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "−": "$-$", "∞": r"$\infty$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}  # fmt: skip


def as_csv(lines: Lines) -> str:
    """Return the table as CSV (RFC 4180) in which no cell is a formula."""
    text = io.StringIO()
    csv.writer(text).writerows([without_formula(cell) for cell in line] for line in lines)
    return text.getvalue()


def as_markdown(lines: Lines) -> str:
    """Return the table as GitHub writes it; columns after the first are right-aligned."""
    head, *rows = [[_markdown_cell(cell) for cell in line] for line in lines]
    marks = [":---" if number == 0 else "---:" for number in range(len(head))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, marks, *rows))


def as_latex(lines: Lines) -> str:
    """Return the table as a `tabular` environment."""
    head, *rows = [rf"{' & '.join(map(_latex_cell, line))} \\" for line in lines]
    columns = "l" + "r" * (len(lines[0]) - 1)
    inside = [r"\hline", head, r"\hline", *rows, r"\hline"]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *inside, r"\end{tabular}", ""])


def without_formula(text: str) -> str:
    """Return the text of a CSV cell, with an apostrophe before what a spreadsheet would evaluate."""
    return f"'{text}" if text.startswith(FORMULAS) and not is_number(text) else text


def is_number(text: str) -> bool:
    """Whether Python reads the text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _markdown_cell(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", re.sub(r"([\\`*_{}\[\]<>|$~])", r"\\\1", text))


def _latex_cell(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)
