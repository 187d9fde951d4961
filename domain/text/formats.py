"""Numbers, times and names as people read them; names from people are shown as text, never as markup.

The pages write numbers by the same rules in `dashboard/components/elements/numbers.js`; one table tests both."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from decimal import ROUND_HALF_UP, Context

UNKNOWN = "–"
KIB, MIB, GIB = 1024, 1024**2, 1024**3
JOULES_PER_KWH = 3.6e6
MOST_NAMED = 3
"""Nodes a sentence names one by one; it counts the others."""
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_SHORTCODE = re.compile(r":(?=[\w+\-/]+:)")
_LONG_WAY = re.compile(r"^.*(?:/attempts/\d+/node\d+/work/|/(?:site|dist)-packages/)")
_SPACES = re.compile(r"\s+")
_CODE = re.compile("`([^`]+)`")
_LABELS = {"alive": "online", "foreign": "used by others", "quarantine": "in quarantine"}


def as_text(value: object) -> str:
    """The value as Markdown that shows exactly these characters, on one line.

    Streamlit replaces `:material/…:` and emoji codes after Markdown's own escapes are gone, so the colon
    of such a code is followed by an invisible word joiner."""
    line = _SPACES.sub(" ", str(value)).strip()
    return _PUNCTUATION.sub(r"\\\1", _SHORTCODE.sub(":\u2060", line))


def with_code(text: str) -> str:
    """A sentence as Markdown on one line; what is between two backticks is set as code, everything else as text."""
    parts = _CODE.split(_SPACES.sub(" ", text))
    return "".join(f"`{part}`" if at % 2 else _padded_text(part) for at, part in enumerate(parts))


def number(value: float | str | None, digits: int = 3) -> str:
    """12.4 k, 1.2 M, 0.00042: a few significant digits, never a row of zeros. JSON has NaN and infinities as text."""
    if value is None:
        return UNKNOWN
    value = float(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    for factor, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= factor * 10 or (abs(value) >= factor and factor > 1e3):
            return _significant(value / factor, digits) + unit
    return _significant(value, digits)


def change(percent: float) -> str:
    """+4 %, −0.31 %, ±0 %: a change in per cent."""
    if not math.isfinite(percent):
        return number(percent)
    return f"{'+' if percent > 0 else '−' if percent else '±'}{number(abs(percent))} %"


def not_finite(value: float | None, since: int | None) -> str | None:
    """NaN since step 812; None for a finite number or an unknown value."""
    if value is None or math.isfinite(value):
        return None
    return not_finite_in_words(value, since)


def count(value: int | None) -> str:
    """12 345, with thin spaces between thousands."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", "\u202f")


def learning_rate(value: float | None) -> str:
    """0.0008, 3e-05: the form used on a command line."""
    return number(value) if value is None or not math.isfinite(value) else _significant(value, 6)


def duration(seconds: float | None) -> str:
    """00:12:31, and 2 d 03:10:00 from a day on."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, int(seconds))
    days, seconds_of_day = divmod(whole, 86_400)
    minutes, second = divmod(seconds_of_day, 60)
    clock = f"{minutes // 60:02}:{minutes % 60:02}:{second:02}"
    return f"{days} d {clock}" if days else clock


def time_span(seconds: float | None) -> str:
    """2.1 µs, 850 ms, 12.4 s, 3 min, 2.5 h, 2 d."""
    if seconds is None or not math.isfinite(seconds):
        return number(seconds)
    if seconds == 0:
        return "0 s"
    _, length, unit = next(span for span in _SPANS if abs(seconds) < span[0])
    return f"{_significant(seconds / length, 3)} {unit}"


_SPANS = (
    (1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (60, 1, "s"), (3600, 60, "min"), (86_400, 3600, "h"), (math.inf, 86_400, "d"),
)  # fmt: skip
"""Each: up to which seconds, the unit's seconds, the unit."""


def milliseconds(seconds: float | None) -> str:
    """12.3 ms, 0.42 ms."""
    return UNKNOWN if seconds is None else f"{number(1000 * seconds)} ms"


def size(size_bytes: float | None, *, is_coarse: bool = False) -> str:
    """1.23 GiB, 340 KiB, 12 B; where only the order matters (`is_coarse`): 1.2 GiB, and whole MiB and KiB."""
    if size_bytes is None:
        return UNKNOWN
    value, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            break
        value /= 1024
    if is_coarse:
        return f"{value:.{1 if unit in ('GiB', 'TiB') else 0}f} {unit}"
    return f"{int(value)} B" if unit == "B" else f"{_significant(value, 3)} {unit}"


def part_of(done_bytes: int, total_bytes: int) -> str:
    """0.8 of 1.0 GiB, 340 of 512 KiB."""
    total = size(total_bytes, is_coarse=True)
    unit = total.rpartition(" ")[2]
    amount = done_bytes / 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
    return f"{amount:.{1 if unit in ('GiB', 'TiB') else 0}f} of {total}"


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


def usage_sentence(device_hours: float, energy_j: float | None) -> str:
    """3.2 device-hours, 1.4 kWh measured by its devices."""
    energy = f", {number(energy_j / JOULES_PER_KWH)} kWh measured by its devices" if energy_j else ""
    return f"{number(device_hours)} device-hours{energy}."


def clock_offset(seconds: float) -> str:
    """1.2 s ahead of, 0.4 s behind: a clock compared with another one."""
    return f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"


def clock_time(at: float | None, zone: tzinfo = UTC) -> str:
    """2026-03-01 14:05:09 in the given zone."""
    try:
        return UNKNOWN if at is None else datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a script may have logged any number as a time
        return UNKNOWN


def clock_minute(at: float) -> str:
    """2026-03-01 14:05 UTC."""
    return f"{clock_time(at)[:-3]} UTC"


def day(at: float, now: float, zone: tzinfo = UTC) -> str:
    """5 Dec; less than a day from now 14:05."""
    moment = datetime.fromtimestamp(at, zone)
    return f"{moment:%H:%M}" if at - now < 86_400 else f"{moment.day} {moment:%b}"


SHOWN_ONCE = "copy it now, it will not be shown again"
"""The words beside a secret that nothing stores."""


def plural(amount: int, noun: str, plural_noun: str | None = None) -> str:
    """1 rank, 8 ranks, 2 processes."""
    return f"{count(amount)} {agree(amount, noun, plural_noun or noun + 's')}"


def agree(amount: int, singular: str, plural_form: str) -> str:
    """The form of a word that agrees with an amount: "is" for 1, "are" for any other."""
    return singular if amount == 1 else plural_form


def as_list(words: Iterable[str], most: int | None = None) -> str:
    """a, b and c; with more than `most` words: a, b and 5 more."""
    named = list(words)
    if most is not None and len(named) > most:
        named = [*named[:most], f"{len(named) - most} more"]
    return f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else "".join(named)


def short_path(path: str) -> str:
    """A path relative to the run's working directory or to site-packages: train.py, torch/_tensor.py."""
    return _LONG_WAY.sub("", path)


def _padded_text(part: str) -> str:
    """Escape a part of a line, keeping a space at either end."""
    before, after = part[:1].isspace(), part[-1:].isspace()
    return f"{' ' if before else ''}{as_text(part)}{' ' if after and part.strip() else ''}"


def signature(by: str | None, via: str | None) -> str:
    """Name who did something, and what acted for them: `ana (token ci)`, `worker gpu-1`; empty for nobody."""
    return f"{by} ({via})" if by and via else by or via or ""


def _significant(value: float, digits: int) -> str:
    """Round to so many significant digits, but keep integer digits; halves go away from zero as in JavaScript."""
    whole_digits = len(str(int(abs(value)))) if abs(value) < 1e15 else 0
    context = Context(prec=max(digits, whole_digits), rounding=ROUND_HALF_UP)
    return f"{float(context.create_decimal_from_float(float(value))) or 0.0:.15g}"


def state_label(state: str) -> str:
    """Return the label of a node's or device's state on pages and in tables."""
    return _LABELS.get(state, state)


def describe_exit(code: int) -> str:
    """exit code 1, or SIGKILL for a negative code (Python's convention for signals)."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


# Values that became NaN or infinite: since which step, and how to say so; shared by store, workers and pages.


def not_finite_since(value: float, step: int, before: float, previous_since: int | None) -> int | None:
    """First step of the run of equal non-finite values that a series ends with; None when it ends with a number.

    `before` and `previous_since` are the value and the result for the previous point."""
    if math.isfinite(value):
        return None
    return previous_since if previous_since is not None and number(before) == number(value) else step


def not_finite_in_words(value: float, since_step: int | None) -> str:
    """NaN since step 812."""
    return number(value) if since_step is None else f"{number(value)} since step {count(since_step)}"
