"""Tables as Markdown, with links, aligned figures and escaped text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import streamlit as st

from domain.text.columns import Columns, Entry
from domain.text.formats import as_text


class Markup(str):
    """Trusted Markdown, composed of escaped parts."""


def table(key: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Show a table over the whole width; a column whose title begins with `>` is right-aligned."""
    rules = ["---:" if title.startswith(">") else ":---" for title in columns]
    lines = [_line(title.removeprefix(">") for title in columns), _line(map(Markup, rules))]
    lines += (_line(row) for row in rows)
    with st.container(key=f"table_{key}"):
        st.markdown("\n".join(lines))


def show_list(
    key: str, columns: Columns[Entry], entries: Iterable[Entry], markup: Mapping[str, Callable[[Entry], object]] = {}
) -> None:
    """Show a list as a table; `markup` has what a page shows in place of a column's words, by its title."""
    cells = [markup.get(column.title, column.cell) for column in columns]
    titles = [f"{'>' if column.is_figure else ''}{column.heading}" for column in columns]
    table(key, titles, ([cell(entry) for cell in cells] for entry in entries))


def download_link(checkpoint_id: int, label: str = "Download") -> Markup:
    """Return a link to the server's route, which streams and can be resumed."""
    return Markup(f"[{as_text(label)}]({checkpoint_url(checkpoint_id)})")


def checkpoint_url(checkpoint_id: int) -> str:
    """Return the URL path of a checkpoint's file."""
    return f"/api/checkpoints/{checkpoint_id}/file"


BLOCKS = "▁▂▃▄▅▆▇█"


def block(share: float) -> str:
    """Return the block character that is as high as a share of 1; strips in tables consist of them."""
    return BLOCKS[max(0, min(7, round(7 * share)))]


def _line(cells: Iterable[object]) -> str:
    shown = (cell if isinstance(cell, Markup) else as_text("" if cell is None else cell) for cell in cells)
    return f"| {' | '.join(shown)} |"
