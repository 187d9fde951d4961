"""Numbers, times and names as people read them; names from people are shown as text, never as markup."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

from domain.not_finite import told

UNKNOWN = "–"
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_SHORTCODE = re.compile(r":(?=[\w+\-/]+:)")
_LONG_WAY = re.compile(r"^.*(?:/attempts/\d+/node\d+/work/|/(?:site|dist)-packages/)")
_SPACES = re.compile(r"\s+")


def as_text(value: object) -> str:
    """The value as Markdown that shows exactly these characters, on one line.

    Streamlit replaces `:material/…:` and emoji codes after Markdown's own escapes are gone, so the colon
    of such a code is followed by an invisible word joiner."""
    line = _SPACES.sub(" ", str(value)).strip()
    return _PUNCTUATION.sub(r"\\\1", _SHORTCODE.sub(":\u2060", line))


def with_code(text: str) -> str:
    """The same for a sentence of ours that names commands between backticks: these are set as code."""
    parts = text.split("`")
    return "".join(f"`{part}`" if at % 2 else _kept_ends(part) for at, part in enumerate(parts))


def number(value: float | None, digits: int = 3) -> str:
    """12.4 k, 1.2 M, 0.00042: a few significant digits, never a row of zeros."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    for factor, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= factor * 10 or (abs(value) >= factor and factor > 1e3):
            return _significant(value / factor, digits) + unit
    return _significant(value, max(digits, len(str(int(abs(value))))))


def not_finite(value: float | None, since: int | None) -> str | None:
    """NaN since step 812; None for a number, and where nothing is known."""
    if value is None or math.isfinite(value):
        return None
    return told(value, since)


def count(value: int | None) -> str:
    """12 345, with thin spaces between thousands."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", "\u202f")


def learning_rate(value: float | None) -> str:
    """0.0008, 3e-05: as one writes it on a command line."""
    return UNKNOWN if value is None else f"{value:.6g}"


def duration(seconds: float | None) -> str:
    """00:12:31, and 2 d 03:10:00 from a day on."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days} d {clock}" if days else clock


def milliseconds(seconds: float | None) -> str:
    """12.3 ms, 0.42 ms."""
    return UNKNOWN if seconds is None else f"{number(1000 * seconds)} ms"


def size(size_bytes: float | None) -> str:
    """1.2 GiB, 340 KiB, 12 B."""
    if size_bytes is None:
        return UNKNOWN
    value, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{int(value)} B" if unit == "B" else f"{_significant(value, 3)} {unit}"


def ago(at: float | None, now: float) -> str:
    """just now, 40 s ago, 12 min ago, 3 h ago, 5 d ago."""
    if at is None:
        return "never"
    return "just now" if now - at < 5 else f"{duration_words(now - at)} ago"


def duration_words(seconds: float) -> str:
    """40 s, 12 min, 3 h, 5 d."""
    whole = max(0, int(seconds))
    for limit, length, unit in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if whole < limit:
            return f"{whole // length} {unit}"
    return f"{whole // 86_400} d"


def clock_time(at: float | None, zone: tzinfo = UTC) -> str:
    """2026-03-01 14:05:09 in the given zone."""
    return UNKNOWN if at is None else datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M:%S")


def plural(amount: int, noun: str, plural_noun: str | None = None) -> str:
    """1 rank, 8 ranks, 2 processes."""
    return f"{count(amount)} {noun if amount == 1 else plural_noun or noun + 's'}"


def as_list(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1] if words else "") if part)


def short_path(path: str) -> str:
    """A file of a run as its script knows it, one of a library below its package: train.py, torch/_tensor.py."""
    return _LONG_WAY.sub("", path)


def _kept_ends(part: str) -> str:
    """As text, with the spaces towards what stands beside it."""
    before, after = part[:1].isspace(), part[-1:].isspace()
    return f"{' ' if before else ''}{as_text(part)}{' ' if after and part.strip() else ''}"


def _significant(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e" in text and 1 <= abs(value) < 1e15 else text
