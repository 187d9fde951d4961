"""Remove what loggers print before a line's own text: colours, time, level, file and rank."""

from __future__ import annotations

import re


def clean(line: str, rank: int = 0) -> str | None:
    """Remove colours, time, level, file and rank from a line; None for another rank's."""
    text = _ANSI.sub("", line).rsplit("\b", 1)[-1]
    while (prefix := _PREFIX.match(text)) and prefix.end() > 0:
        if int(prefix["rank"] or prefix["rank_only"] or rank) not in (0, rank):
            return None
        text = text[prefix.end() :]
    return text.rstrip()


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_TIME_OF_DAY = r"\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_PREFIX = re.compile(
    rf"""(?:
      \[?(?:\d{{4}}[-/.]\d\d[-/.]\d\d|\d\d[-/]\d\d(?:[-/]\d{{2,4}})?)[T\s,]+{_TIME_OF_DAY}\]?
    | \[?{_TIME_OF_DAY}\]?
    | [IWEF]\d{{4}}\s{_TIME_OF_DAY}\s+\d+\s+\S+:\d+\]
    | (?:[\w.]+\s-\s)?\[?\b(?:DEBUG|INFO|NOTICE|WARNING)\b\]?(?:[|:][\w.]+(?::\d+)?\]?)?
    | \[?[\w./-]+\.py:\d+(?::\w+)?(?:\s\(\w+\))?\]?
    | [\w.]+:[\w<>]+:\d+(?=\s-\s)
    | [\[(]?(?i:(?:local_|global_)?rank|gpu|default|proc(?:ess)?|worker)[\s:#=_]?(?P<rank>\d+)[\])]?(?=[\s:|>-]|$)
    | (?:\[(?P<rank_only>\d+)\]:)
    )(?:\s*[-|:>]+(?=\s|$))*[ ]?""",
    re.VERBOSE,
)
