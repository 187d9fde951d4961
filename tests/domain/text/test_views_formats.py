"""Numbers read well, and names from people never become markup."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from domain.text import formats

NUMBER_WORDS = json.loads(Path(__file__).with_name("number_words.json").read_text(encoding="utf-8"))
"""Values with their texts by the name of the function; the pages' JavaScript is tested with the same."""


@pytest.mark.parametrize("name", NUMBER_WORDS)
def test_the_server_writes_numbers_as_the_pages_do(name):
    values = [float(value) if isinstance(value, str) else value for value, _ in NUMBER_WORDS[name]]
    assert [getattr(formats, name)(value) for value in values] == [text for _, text in NUMBER_WORDS[name]]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0"),
        (12_400, "12.4 k"),
        (1_234, "1234"),
        (9_999.7, "10000"),
        (999_970, "1000 k"),
        (4.2e-4, "0.00042"),
        (2.345678, "2.35"),
        (1_500_000, "1.5 M"),
        (float("nan"), "NaN"),
        (float("inf"), "∞"),
    ],
)
def test_numbers_keep_a_few_significant_digits(value, shown):
    assert formats.number(value) == shown


@pytest.mark.parametrize(
    ("percent", "shown"), [(4.3, "+4.3 %"), (-0.312, "-0.312 %"), (0, "±0 %"), (2866.4, "+2866 %")]
)
def test_changes_have_a_sign_and_no_exponent(percent, shown):
    assert formats.change(percent) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(751, "00:12:31"), (0.4, "00:00:00"), (180_000, "2 d 02:00:00"), (None, "–")]
)
def test_durations_are_clocks(seconds, shown):
    assert formats.duration(seconds) == shown


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [(12, "12 B"), (1024, "1 KiB"), (340 * 1024, "340 KiB"), (2**31, "2 GiB"), (None, "–")],
)
def test_sizes_are_powers_of_1024(size_bytes, shown):
    assert formats.size(size_bytes) == shown


@pytest.mark.parametrize(
    ("size_bytes", "shown"), [(1.26 * 2**30, "1.3 GiB"), (2**30, "1.0 GiB"), (5.4 * 2**20, "5 MiB")]
)
def test_coarse_sizes_have_one_decimal_from_a_gibibyte_on(size_bytes, shown):
    assert formats.size(size_bytes, is_coarse=True) == shown


@pytest.mark.parametrize(
    ("age_s", "shown"),
    [(1, "just now"), (40, "40 s ago"), (720, "12 min ago"), (3 * 3600, "3 h ago"), (5 * 86_400, "5 d ago")],
)
def test_the_past_is_told_in_one_unit(age_s, shown):
    assert formats.ago(1_000_000 - age_s, 1_000_000) == shown


@pytest.mark.parametrize("name", ["[x](javascript:alert(1))", "$$x^2$$", "<b>bold</b>", "*a* _b_ `c`", "# title"])
def test_a_name_written_as_markup_is_escaped(name):
    escaped = formats.as_text(name)
    assert all(escaped[i - 1] == "\\" for i, c in enumerate(escaped) if c in "[]()$<>*_`#^/")


@pytest.mark.parametrize("name", [":material/home:", ":red[danger]", ":rocket:"])
def test_a_name_written_as_a_directive_is_broken(name):
    assert ":" not in formats.as_text(name).replace("\\:\u2060", "").replace("\\:", "")


def test_a_name_stays_on_one_line():
    assert formats.as_text("a\n\n# b") == "a \\# b"


def test_nan_is_written_in_one_way():
    assert formats.not_finite(math.nan, 812) == "NaN since step 812"
    assert formats.not_finite(math.inf, 2) == "∞ since step 2"
    assert formats.not_finite(-math.inf, None) == "−∞"
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
