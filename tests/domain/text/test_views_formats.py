"""Numbers read well, and names from people never become markup."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from domain.text import formats

NUMBER_WORDS = json.loads(Path(__file__).with_name("number_words.json").read_text(encoding="utf-8"))
"""Arguments and their text by the name of the function; the pages' JavaScript is tested with the same."""
WRITERS = {"ago": lambda age_s: formats.ago(-age_s, 0.0)}


@pytest.mark.parametrize("name", NUMBER_WORDS)
def test_the_server_writes_numbers_as_the_pages_do(name):
    rows = [[float(value) if isinstance(value, str) else value for value in row[:-1]] for row in NUMBER_WORDS[name]]
    write = WRITERS.get(name) or getattr(formats, name)
    assert [write(*row) for row in rows] == [row[-1] for row in NUMBER_WORDS[name]]


@pytest.mark.parametrize(
    ("size_bytes", "shown"), [(1.26 * 2**30, "1.3 GiB"), (2**30, "1.0 GiB"), (5.4 * 2**20, "5 MiB")]
)
def test_coarse_sizes_have_one_decimal_from_a_gibibyte_on(size_bytes, shown):
    assert formats.size(size_bytes, is_coarse=True) == shown


@pytest.mark.parametrize("name", ["[x](javascript:alert(1))", "$$x^2$$", "<b>bold</b>", "*a* _b_ `c`", "# title"])
def test_a_name_written_as_markup_is_escaped(name):
    escaped = formats.as_text(name)
    assert all(escaped[i - 1] == "\\" for i, c in enumerate(escaped) if c in "[]()$<>*_`#^/")


@pytest.mark.parametrize("name", [":material/home:", ":red[danger]", ":rocket:"])
def test_a_name_written_as_a_directive_is_broken(name):
    assert ":" not in formats.as_text(name).replace("\\:\u2060", "").replace("\\:", "")


def test_a_name_stays_on_one_line():
    assert formats.as_text("a\n\n# b") == "a \\# b"


def test_a_number_is_not_said_to_be_none():
    assert formats.not_finite(0.5, None) is None and formats.not_finite(None, None) is None


def test_long_lists_are_cut():
    assert [formats.as_list(words, 3) for words in ("", "a", "ab", "abc", "abcdef")] == [
        "", "a", "a and b", "a, b and c", "a, b, c and 3 more",
    ]  # fmt: skip
    assert formats.as_list("abcdef") == "a, b, c, d, e and f"


@pytest.mark.parametrize(
    ("amount", "nouns", "shown"),
    [(1, ("GPU",), "1 GPU"), (0, ("GPU",), "0 GPUs"), (2, ("process", "processes"), "2 processes")],
)
def test_nouns_agree_with_their_number(amount, nouns, shown):
    assert formats.plural(amount, *nouns) == shown
