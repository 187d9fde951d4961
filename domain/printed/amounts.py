"""Parse printed numbers with their units: 1,234, 1e-3, 95.12ms, 1.2k, 3.4GiB, 71.2%."""

from __future__ import annotations

import re

NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+|(?<=\d)\.?)(?:[eE][-+]?\d+)?|[-+]?(?i:nan|inf(?:inity)?)\b"
UNIT = (
    r"(?P<duration>ms|us|µs|s|secs?|seconds?|min|mins|minutes|h|hours)(?:/(?:it|iter|step|batch|epoch))?"
    r"|(?P<bytes>[kKMGT]i?B)|%|(?:it|iters?|samples|examples|im(?:a?ge?)?s?|tok(?:en)?s?|steps?)/s(?:ec|econd)?"
)
VALUE = rf"(?P<value>{NUMBER})(?:(?P<times>[kKMG])(?![A-Za-z])|[ ]?(?:{UNIT})(?![A-Za-z/]|\s*[:=]))?"
TIMES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PER_SECOND_OF = {"ms": 1e3, "us": 1e6, "µs": 1e6}
_SECONDS = {"mi": 60.0, "h": 3600.0, "ho": 3600.0}


def number(text: str) -> float:
    """Parse 1,234 or 1e-3 or nan."""
    return float(text.replace(",", ""))


def scaled(text: str) -> float:
    """Parse 1.2k as 1200."""
    return float(text.rstrip("kMG")) * TIMES.get(text[-1], 1.0)


def is_fraction(text: str) -> bool:
    """Whether the text is not written like a counter: 2.0, 1e3, nan."""
    return not text.replace(",", "").lstrip("+-").isdigit()


def amount(match: re.Match[str], unit: str = "") -> tuple[float, str]:
    """Return a match of `VALUE` in seconds, bytes or as printed, and the suffix of the series' name for that unit.

    `unit`: one that is printed elsewhere, as behind the name; it counts where the number has none."""
    value = number(match["value"])
    if duration := match["duration"] or (unit if unit in ("ms", "s", "us") else ""):
        return value * _SECONDS.get(duration[:2], 1.0) / _PER_SECOND_OF.get(duration[:2], 1.0), "_s"
    if size := match["bytes"]:
        return value * 1024.0 ** ("KMGT".index(size[0].upper()) + 1), "_bytes"
    return value * TIMES.get(match["times"] or "", 1.0), f"_{unit}" if unit else ""
