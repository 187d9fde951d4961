"""Parse the values in a printed text: numbers with units, the names before them, and the phase they belong to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from domain.series.printed_pattern import NUMBER, TIMES, VALUE, amount, is_fraction, number

MOST_NAMES = 4096
"""Names that stay in memory: a script prints the same ones in every line."""


@dataclass(frozen=True)
class Pair:
    """`val loss: 2.31`."""

    tag: str
    """The series' name: `val/loss`."""
    value: float
    name: str
    """The printed name in lower case."""
    is_fraction: bool
    """Not written like a counter: 2.0, 1e3, nan."""
    whole_tag: str = ""
    """The series' name from all words before the value, where `name` is only the end of them."""


def pairs(text: str, phase: str | None = None) -> list[Pair]:
    """Return every `name value` that may be a metric; `phase` (train, val) is used if the name has none.

    What stands behind `[valid]` or `val:` has that phase, and what stands in `tot_loss[…]` that name before its own.
    """
    read = [
        pair
        for section_phase, section in _sections(_TIMESPAN.sub(_in_seconds, text), phase)
        for group, part in _groups(section)
        for pair in _pairs_of(part, group, section_phase)
    ]
    count = Counter(pair.tag for pair in read)
    return [replace(pair, tag=pair.whole_tag) if count[pair.tag] > 1 and pair.whole_tag else pair for pair in read]


def has_other_values(text: str, least: int = 0) -> bool:
    """Whether a text has values beside its pairs: their names are none that a rule reads, or stand there twice.

    `least`: number of fractions that are read; a text with no more of them behind names has none."""
    if len(_FRACTION.findall(text)) <= least:
        return False
    named = [match["name"] for match in _DICT_PAIR.finditer(text)]
    text = without_dict_pairs(text)
    read = [pair.tag for pair in pairs(text) if is_measured(pair.name)]
    if len(set(read)) < len(read) or len(set(named)) < len(named):
        return True
    unread = _PAIR.sub(" ; ", _normalised(text))
    return any(is_fraction(match["value"]) for match in _LOOSE_PAIR.finditer(unread))


def dict_pairs(text: str) -> dict[str, str]:
    """Return the numbers in a printed dictionary or JSON object as text."""
    return {match["name"]: match["value"] for match in _DICT_PAIR.finditer(text)}


def without_dict_pairs(text: str) -> str:
    """Return a text without what `dict_pairs` reads in it."""
    return _DICT_PAIR.sub(" ", text)


@lru_cache(MOST_NAMES)
def tag_of(name: str, phase: str | None = None) -> str | None:
    """Return the series' name in lower case with the phase before a slash; None if it is no metric."""
    tag = re.sub(r"[^\w@/%.]+", "_", name.strip().lower()).strip("_./")
    if not tag or len(tag) > 64 or _is_no_metric(tag):
        return None
    head, _, remainder = tag.replace("/", "_", 1).partition("_")
    if remainder and head in _PHASES and not (head == "train" and remainder.startswith(("step", "time"))):
        if _is_no_metric(remainder):
            return None
        return f"{_PHASES[head]}/{remainder}"
    return f"{phase}/{tag}" if phase else tag


def _is_no_metric(tag: str) -> bool:
    return bool(_NO_METRIC.fullmatch(tag) or (_LIMIT.fullmatch(tag) and not is_measured(tag)))


@lru_cache(MOST_NAMES)
def is_measured(name: str) -> bool:
    """Whether only a training produces such a value: a loss, an accuracy, a reward."""
    parts = re.split(r"[_/.\s@-]", name)
    return bool(_MEASURED_PART.search(name)) or not _MEASURED.isdisjoint([name, *parts])


def phase_of(text: str, within: int | None = None) -> str | None:
    """Return train, val, eval or test if a word of the text, that ends `within` so many characters, names it."""
    match = _PHASE.search(text)
    return _PHASES[match[1].lower()] if match and match.end() <= (len(text) if within is None else within) else None


def phase_heading(text: str) -> str | None:
    """Return the phase that heads a text: `, validation: loss=0.5`, `[valid] loss=0.5`."""
    match = _SECTION.match(text.lstrip(_SEPARATORS))
    return _PHASES[match["phase"].lower()] if match else None


def phase_named(name: str | None) -> str | None:
    """Return train, val, eval or test if `name` is one of their names."""
    return _PHASES.get((name or "").lower())


# -- parts of a text ---------------------------------------------------------------------------


def _sections(text: str, phase: str | None) -> Iterator[tuple[str | None, str]]:
    """Yield the texts behind each word that heads a phase, and what precedes the first."""
    end = 0
    for match in _SECTION.finditer(text):
        yield phase, text[end : match.start()]
        end, phase = match.end(), _PHASES[match["phase"].lower()]
    yield phase, text[end:]


def _groups(text: str) -> Iterator[tuple[str, str]]:
    """Yield the texts in `name[…]` with that name, and all others without one."""
    end = 0
    for match in _GROUP.finditer(text):
        if _ASSIGNMENT.search(match["inside"]):
            yield "", text[end : match.start()]
            yield match["name"], match["inside"]
            end = match.end()
    yield "", text[end:]


def _pairs_of(text: str, group: str, phase: str | None) -> Iterator[Pair]:
    text = _normalised(text)
    for match in _PER_SECOND.finditer(text):
        tag = "_".join(filter(None, [match["unit"], "per_s", (match["each"] or "").lstrip("/")])).lower()
        value = number(match["value"]) * TIMES.get(match["times"] or "", 1.0)
        yield Pair(f"{phase}/{tag}" if phase else tag, value, tag, False)
    for match in _PAIR.finditer(text):
        is_explicit = bool(match["sep"].strip())
        whole = " ".join(match["name"].lower().split())
        if name := _name_of(whole, is_explicit):
            longer = whole if len(whole) > len(name) else None
            yield from _values_of(match, text, _grouped(name, group), _grouped(longer, group), phase)


def _values_of(match: re.Match[str], text: str, name: str, whole_name: str | None, phase: str | None) -> Iterator[Pair]:
    """Yield the value behind a name; of a list the first under its name, the others as `name[1]`, `name[2]` …"""
    addition = (match["addition"] or "").lower()
    value, ending = amount(match, addition if addition in _TIME_UNITS else "")
    tags = [_tag(part, addition, phase, ending) if part else None for part in (name, whole_name)]
    if (tag := tags[0]) is None:
        return
    yield Pair(tag, value, name, is_fraction(match["value"]), tags[1] or "")
    others = _NEXT_IN_LIST.match(text, match.end()) if "[" in match["opening"] else None
    numbers = re.findall(_NUMBER_IN_LIST, others[0]) if others else []
    for index, item in enumerate(numbers[:MAX_LIST], start=1):
        yield Pair(f"{tag}[{index}]", number(item), name, is_fraction(item))


def _tag(name: str, addition: str, phase: str | None, ending: str) -> str | None:
    """Return the series' name with what stands in parentheses behind the printed one: a phase, a unit, a scale."""
    is_scale = bool(addition) and re.fullmatch(NUMBER, addition) is not None
    if own_phase := phase_named(addition):
        phase = own_phase
    elif addition and not is_scale and addition not in _TIME_UNITS:
        name = f"{name} {addition}"
    tag = tag_of(name, phase)
    if tag is None:
        return None
    return f"{tag}({addition})" if is_scale else tag + ("" if tag.endswith(ending) else ending)


def _grouped(name: str | None, group: str) -> str:
    if not name or not group:
        return name or ""
    return group.lower() if group.lower().endswith(name) else f"{group.lower()}/{name}"


@lru_cache(MOST_NAMES)
def _name_of(whole: str, is_explicit: bool) -> str | None:
    """Return the name before a value: all of `val loss` and of `logit scale:`, the end of `saved with val loss`."""
    words = whole.split()
    if is_explicit and len(words) == 1:
        return whole
    first = len(words)
    while first and (words[first - 1] in _QUALIFIERS or _is_metric(words[first - 1])):
        first -= 1
    name = words[first:]
    if any(map(_is_metric, name)) or _is_metric("_".join(name)):
        return " ".join(name) if is_explicit or _is_metric(words[-1]) else None
    return whole if is_explicit else None


def _is_metric(name: str) -> bool:
    parts = re.split(r"[_/\s-]", name)
    return is_measured(name) or not _TIMED.isdisjoint([name, *parts])


def _normalised(text: str) -> str:
    """Return a text whose names have no quotes, `mAP@0.5:0.95` one name."""
    return _THRESHOLDS.sub(r"@\1_\2", _QUOTED.sub(r"\g<name>", text))


def _in_seconds(match: re.Match[str]) -> str:
    """Write `1 minute and 2.5 seconds` as `62.5s`."""
    seconds = sum(float(count) * _SECONDS[unit] for count, unit in re.findall(_TIMESPAN_PART, match[0]))
    return f"{seconds:g}s"


# -- names -------------------------------------------------------------------------------------

_MEASURED_PART = re.compile(r"loss|accura|perplex|reward|entrop|precision|recall|nll|elbo")
_MEASURED = set(
    "acc acc1 acc5 top1 top5 ppl f1 auc map miou iou mse mae rmse bleu rouge wer cer psnr ssim fid bpc bpb "
    "err error kl return score dice loss_d loss_g r2 elo".split()
)
_TIMED = set(
    "time data dt ms mfu tps throughput speed memory mem norm gnorm grad_norm tflops flops elapsed lr wd "
    "learning_rate temperature momentum wps ups tokens/s samples/s".split()
)
_QUALIFIERS = set(
    "train training val valid validation eval evaluation test dev avg average mean running total best "
    "learning rate grad gradient weight decay batch step iter iteration epoch per gpu max peak allocated "
    "used usage time lm ce mlm aux smoothed last main policy value critic actor final set".split()
)
_NO_METRIC = re.compile(
    r"eta|v_num|seed|rank|gpu|device|node|host|pid|port|line|version|total|max|min|size|of|count|group|"
    r"batch|batch_?size|bs|world_?size|workers?|num|n|index|idx|id|iter|iteration|steps?|epochs?|top|"
    r"(?:global|train|micro|local)_step|num_updates|updates?|batches|it|timestamp|remaining|left|"
    r"iters|iterations|episodes?|"
    r"(?:num|n|every|per_device|number_of|consumed)_\w+|\w+_(?:size|interval|every|freq|steps|epochs|seed|weight|"
    r"coef|threshold|smoothing|type|fn|workers|id)"
)
_LIMIT = re.compile(r"(?:max(?!_mem)|total|min)_\w+")
"""A limit or a count, unless a training measures it: `total_steps`, but not `total_loss`."""
_PHASES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "validating", "dev"), "val"),
    **dict.fromkeys(("eval", "evaluation", "evaluating"), "eval"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_PHASE_WORDS = "|".join(sorted(_PHASES, key=len, reverse=True))
_PHASE = re.compile(rf"(?<![\w/])({_PHASE_WORDS})(?![\w/]|-\w)", re.IGNORECASE)
_SECTION = re.compile(
    rf"(?<![\w/.-])(?P<opened>\[\s*)?(?P<phase>{_PHASE_WORDS})(?(opened)\s*\](?!\s*[:=]\s*[-+.\d])|\s*[:|>]\s*(?=['\"A-Za-z]))",
    re.IGNORECASE,
)
"""`[valid] loss=0.5`, `val: loss 0.5`."""
_SEPARATORS = " \t,;:|-"
_GROUP = re.compile(
    r"(?<![\w.@/-])(?P<name>[A-Za-z_][\w./-]*)(?:\s?[:=]\s?(?=\{))?[\[({](?P<inside>[^\[\](){}]+)[\])}]"
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]['\"]?\s*[:=]\s*[-+.\d]")

# -- both ---------------------------------------------------------------------------------------

MAX_LIST = 15
_TIME_UNITS = ("ms", "s", "us")
_SECONDS = {"day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0}
_TIMESPAN_PART = r"(\d+(?:\.\d+)?)\s(day|hour|minute|second)"
_TIMESPAN = re.compile(
    r"(?<![\w.])\d+(?:\.\d+)?\s(?:day|hour|minute|second)s?\b"
    r"(?:(?:,?\sand\s|,?\s)\d+(?:\.\d+)?\s(?:day|hour|minute|second)s?\b)*"
)
_QUOTED = re.compile(r"(?P<quote>['\"])(?P<name>[^'\"]{1,64})(?P=quote)(?=\s*[:=])")
_THRESHOLDS = re.compile(r"@\[?(\d?\.\d+):(\d?\.\d+)\]?")
_END = r"(?![\w%/]|\.\d|[-:]\w|\s*/\s*\d)"
_WORD = r"(?!(?i:nan|inf|infinity)\b)[^\W\d_][\w.@/]*(?:-[^\W_][\w@/]*)*"
_PAIR = re.compile(
    rf"(?<![\w.@/=-])(?P<name>{_WORD}(?:[ ]{_WORD}){{0,4}})(?:[ ]?[(\[](?P<addition>[\w/%.+-]+)[)\]])?"
    rf"(?P<sep>\s*[:=]\s*|\s+)(?P<opening>[(~]?|\[{{1,2}}\s*){VALUE}{_END}"
)
_LOOSE_PAIR = re.compile(rf"[^\W\d_][^\s:=,;|]*\s*[:=]\s*[\[(~]{{0,2}}(?P<value>(?>{NUMBER}))(?!\d|\.\d|[-:]\w)")
_FRACTION = re.compile(r"(?:[:=][ ]?['\"\[(~]{0,2}|[A-Za-z][ ])[-+]?(?:\d[\d,]*)?\.\d")
_NUMBER_IN_LIST = rf"(?<![\w.]){NUMBER}"
_NEXT_IN_LIST = re.compile(rf"(?>(?:[\s,\]\[]+(?>{NUMBER}))+)\s*\]")
_PER_SECOND = re.compile(
    r"(?<![\w.:=,-])(?P<value>\d[\d,]*(?:\.\d+)?)\s?(?P<times>[kKMG])?\s?"
    r"(?P<unit>(?![kKMGT]?i?B/)[A-Za-z]{2,12})?/s(?:ec|econd)?(?P<each>/[a-z]+)?\b(?!\s*[:=])"
)
_DICT_PAIR = re.compile(rf"['\"](?P<name>[^'\"]{{1,64}})['\"]\s*:\s*['\"]?(?P<value>{NUMBER})['\"]?\s*(?=[,}}\]])")
