"""A person's pattern of the lines that a script prints: one of them, with names in braces for its numbers.

`it {step} | loss {loss} acc {acc}` reads `it   10 | loss 0.5 acc 71.2%`. It is compiled to a regular expression whose
text is escaped and whose parts never give back what they took, so that no pattern and no line makes it slow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise


class PrintedPattern:
    """A compiled pattern. Raises ValueError with the rule that a text breaks."""

    def __init__(self, text: str) -> None:
        pieces = _pieces(text)
        self.names = [name for name, _ in pieces if name]
        _check_pieces(pieces, self.names)
        self.is_counted = not {STEP, EPOCH} & set(self.names)
        """Whether its lines name neither step nor epoch and are counted 0, 1, 2 …"""
        self._regex = re.compile(_compiled(pieces))

    def read(self, line: str, rank: int = 0) -> ReadLine | None:
        """Read a line with or without its time, level and rank; None for one that does not fit."""
        if len(line) > LONGEST_LINE:
            return None
        for text in (clean(line, rank), line):
            if text and (match := self._regex.match(_one_blank(text))):
                return self._read(dict(zip(self.names, match.groups(), strict=True)))
        return None

    def _read(self, texts: dict[str, str]) -> ReadLine:
        step, epoch = texts.pop(STEP, None), texts.pop(EPOCH, None)
        values = {}
        for name, text in texts.items():
            value, suffix = _amount(text)
            values[name if name.endswith(suffix) else name + suffix] = value
        return ReadLine(
            None if step is None else int(step.replace(",", "")),
            None if epoch is None else float(epoch),
            epoch is not None and is_fraction(epoch),
            values,
        )


NOT_READ = "printed values not read"
"""The kind of the finding that asks for a pattern."""
SUCH_AS = "such as: "
"""What stands before the unread line in that finding's evidence."""
MOST_CHARACTERS = 500
LONGEST_EXAMPLE = 400
"""Characters of a line that the finding shows."""
LONGEST_LINE = 4096
"""Characters; a longer line is a dump of something and not read."""
STEP, EPOCH = "step", "epoch"
_PIECE = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}]*)\}|(?P<text>[^{}]+)")
_NAME = re.compile(r"[A-Za-z_][\w./@%-]{0,63}")
_UNNAMED = re.compile(r"\(\?P<\w+>")

# Parse printed numbers with their units: 1,234, 1e-3, 95.12ms, 1.2k, 3.4GiB, 71.2%.

NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+|(?<=\d)\.?)(?:[eE][-+]?\d+)?|[-+]?(?i:nan|inf(?:inity)?)\b"
UNIT = (
    r"(?P<duration>ms|us|µs|s|secs?|seconds?|min|mins|minutes|h|hours)(?:/(?:it|iter|step|batch|epoch))?"
    r"|(?P<bytes>[kKMGT]i?B)|%|dB|[kMGTP]?FLOPS?(?:/s)?|(?:it|iters?|samples|examples|im(?:a?ge?)?s?|tok(?:en)?s?|steps?)/s(?:ec|econd)?"
)
VALUE = rf"(?P<value>{NUMBER})(?:(?P<times>[kKMG])(?![A-Za-z])|[ ]?(?:{UNIT})(?![A-Za-z/]|\s*[:=]))?"
_VALUE = re.compile(VALUE)
_UNIT_AHEAD = re.compile(rf" ?(?:[kKMG](?![A-Za-z])|(?:{UNIT})(?![A-Za-z/]))")
_COUNT = r"\d{1,3}(?:,\d{3})+(?!\d)|\d{1,15}(?!\d)"
_EPOCH = r"\d{1,9}(?:\.\d{1,9})?(?!\d)"


@dataclass(frozen=True)
class ReadLine:
    """What a pattern reads in a line; a line without step and epoch is counted by the reader of all lines."""

    step: int | None
    epoch: float | None
    epoch_is_fraction: bool
    """Written as 0.25 or 1.0: progress through the training, not an epoch's number."""
    values: Mapping[str, float]
    """By series' name, in seconds, bytes or as printed; a unit read with a number adds `_s` or `_bytes`."""


def checked(text: str) -> str:
    """Return the text of a pattern without blanks around it. Raises ValueError."""
    PrintedPattern(text)
    return text.strip()


def proposal(line: str) -> str:
    """Return a pattern for a line: a number is named by the word before it or its rate behind it, one that begins the
    line is the step. All others may be anything, as may what follows a line of `LONGEST_EXAMPLE` characters: there is
    more of it."""
    pattern, end, names = "", 0, set[str]()
    for match in _STANDALONE.finditer(line):
        before = line[end : match.start()]
        name = _proposed_name(line, match, before)
        is_usable = _NAME.fullmatch(name) and name not in names and _fits(name, match[0])
        pattern += _escaped(before) + ("{" + name + "}" if is_usable else "{*}")
        names.add(name)
        end = match.end()
    is_cut = len(line) >= LONGEST_EXAMPLE
    return (pattern + _escaped(line[end:])).strip() + (" {*}" if is_cut else "")


def _proposed_name(line: str, number: re.Match[str], before: str) -> str:
    """Return the name of a number in a line, "" where nothing names it; `before`: what stands since the last one."""
    if named := _WORD_BEFORE.search(before) or _RATE_BEHIND.match(line, number.end()):
        return _MEANING.get(named[1].lower(), named[1])
    return STEP if not line[: number.start()].strip() and line[number.end() :][:1] in (" ", "\t", ",", "|") else ""


def _fits(name: str, text: str) -> bool:
    rule = {STEP: _COUNT, EPOCH: _EPOCH}.get(name)
    return rule is None or bool(re.fullmatch(rule, text))


# -- parsing -----------------------------------------------------------------------------------


def _pieces(text: str) -> list[tuple[str | None, str]]:
    """Return (name, "") for names, ("", "") for anything, (None, text) for text, in order."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"must have at most {MOST_CHARACTERS} characters; it has {len(text):,}")
    pieces: list[tuple[str | None, str]] = []
    end, text = 0, _one_blank(text)
    while end < len(text):
        if (match := _PIECE.match(text, end)) is None:
            rule = "must close each brace: {loss} is a name, {{ and }} are printed braces"
            raise ValueError(f"{rule}; see {text[end : end + 20]!r}")
        end = match.end()
        if (name := match["name"]) is not None:
            pieces.append((name.strip(" *"), ""))
            continue
        literal = match["text"] or match[0][0]
        if pieces and pieces[-1][0] is None:
            literal = pieces.pop()[1] + literal
        pieces.append((None, literal))
    return pieces


def _check_pieces(pieces: list[tuple[str | None, str]], names: list[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            rule = "must have names of letters, digits and _ . / @ % - in braces, such as {val/loss}"
            raise ValueError(f"{rule}, not {{{name[:40]}}}")
        if names.count(name) > 1:
            raise ValueError(f"must name {{{name}}} once; write {{*}} for what is not needed")
    if not set(names) - {STEP, EPOCH}:
        raise ValueError("must name at least one value in braces, such as {loss}, beside {step} and {epoch}")
    for (left, left_text), (right, right_text) in pairwise(pieces):
        if left and right:
            raise ValueError(f"must have text between {{{left}}} and {{{right}}}")
        if (left and right_text[:1].isdigit()) or (right and left_text[-1:].isdigit()):
            raise ValueError(f"must have no digit directly beside {{{left or right}}}")


def _compiled(pieces: list[tuple[str | None, str]]) -> str:
    """Join segments between `{*}`: each matches as early as it can and is never tried again further on."""
    segments = [""]
    for index, (name, text) in enumerate(pieces):
        if name == "":
            segments.append("")
        elif name is None:
            segments[-1] += "".join(" ?" if character == " " else re.escape(character) for character in text)
        else:
            is_first = len(segments) > 1 and not segments[-1]
            segments[-1] += _group(name, pieces[index + 1][1] if pieces[index + 1 :] else "", is_first)
    if segments[-1] or len(segments) == 1:
        segments[-1] += r" ?\Z"
    first, *others = segments
    return " ?" + first + "".join(f"(?>.*?{segment})" for segment in others if segment)


def _group(name: str, text_behind: str, is_first: bool) -> str:
    """Return the expression of a number; the unit is text where the pattern itself has it behind the name."""
    if name in (STEP, EPOCH):
        rule = _COUNT if name == STEP else _EPOCH
    else:
        rule = NUMBER if _UNIT_AHEAD.match(text_behind) else _UNNAMED.sub("(?:", VALUE)
    return " ?" + (r"(?<![\w.])" if is_first else "") + f"((?>{rule}))"


def _amount(text: str) -> tuple[float, str]:
    match = _VALUE.fullmatch(text)
    assert match is not None, "a group holds what VALUE matches"
    return amount(match)


def _one_blank(text: str) -> str:
    return " ".join(text.split())


# -- proposing ---------------------------------------------------------------------------------

_STANDALONE = re.compile(r"(?<![\w.])" + _UNNAMED.sub("(?:", VALUE) + r"(?!\w)")
_WORD_BEFORE = re.compile(r"([A-Za-z][\w/@.-]*)['\")\]]{0,2}(?:\s{0,20}[:=]\s{0,20}|\s{1,20}|)[\[(]?\Z")
_RATE_BEHIND = re.compile(r"\s?([A-Za-z]+/s)\b")
_MEANING = {  # of a word before a number; "" names nothing
    **dict.fromkeys("step iter iteration it batch update global_step".split(), STEP),
    **dict.fromkeys(("epoch", "ep"), EPOCH),
    **dict.fromkeys("in at of for to from by after with and took is".split(), ""),
}


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


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


# Remove what loggers print before a line's own text: colours, time, level, file and rank.


def clean(line: str, rank: int = 0) -> str | None:
    """Remove colours, time, level, file and rank from a line; None for another rank's."""
    text = _ANSI.sub("", line).rsplit("\b", 1)[-1]
    while (prefix := _PREFIX.match(text)) and prefix.end() > 0:
        if int(next(filter(None, prefix.groups()), rank)) not in (0, rank):
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
    | \[?[\w./-]+\.py:\d+(?::\w+)?(?:\s\(\w+\))?\]?(?:\s\((?P<rank_behind>\d+)/\d+\)(?=\s))?
    | \[[\w.-]+:(?P<rank_of_host>\d+)/\d+\](?=\s)
    | \([\w.]+:\d+\)(?=\s)
    | [\w.]+:[\w<>]+:\d+(?=\s-\s)
    | [\[(]?(?i:(?:local_|global_)?rank|gpu|default|proc(?:ess)?|worker)[\s:#=_]?(?P<rank>\d+)[\])]?(?=[\s:|>-]|$)
    | (?:\[(?P<rank_only>\d+)\]:)
    )(?:\s*[-|:>]+(?=\s|$))*[ ]?""",
    re.VERBOSE,
)
