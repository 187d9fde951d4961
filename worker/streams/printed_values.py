"""Parse the values in a printed text: numbers with units and the names before them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from domain.printed_pattern import NUMBER, TIMES, VALUE, amount, is_fraction, number


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


def pairs(text: str, phase: str | None = None) -> Iterator[Pair]:
    """Yield every `name value` that may be a metric; `phase` (train, val) is used if the name has none."""
    for match in _PER_SECOND.finditer(text):
        tag = f"{match['unit']}_per_s"
        value = number(match["value"]) * TIMES.get(match["times"] or "", 1.0)
        yield Pair(f"{phase}/{tag}" if phase else tag, value, tag, False)
    for match in _PAIR.finditer(text):
        is_explicit = bool(match["sep"].strip())
        name = _name_of(match["name"].lower().split(), is_explicit)
        series = tag_of(name, phase) if name else None
        if name and series and (is_explicit or _is_metric(name.split()[-1])):
            value, ending = amount(match, (match["name_unit"] or "").lower())
            series += "" if series.endswith(ending) else ending
            yield Pair(series, value, name, is_fraction(match["value"]))


def dict_pairs(text: str) -> dict[str, str]:
    """Return the numbers in a printed dictionary or JSON object as text."""
    return {match["name"]: match["value"] for match in _DICT_PAIR.finditer(text)}


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


def is_measured(name: str) -> bool:
    """Whether only a training produces such a value: a loss, an accuracy, a reward."""
    parts = re.split(r"[_/.\s@-]", name)
    return bool(_MEASURED_PART.search(name)) or not _MEASURED.isdisjoint([name, *parts])


def phase_of(text: str) -> str | None:
    """Return train, val, eval or test if a word of the text names it."""
    match = _PHASE.search(text)
    return _PHASES[match[1].lower()] if match else None


def phase_named(name: str | None) -> str | None:
    """Return train, val, eval or test if `name` is one of their names."""
    return _PHASES.get((name or "").lower())


def _name_of(words: list[str], is_explicit: bool) -> str | None:
    """Return the name before a value: all of `val loss`, the end of `saved with val loss`."""
    if is_explicit and len(words) == 1:
        return words[0]
    first = len(words)
    while first and (words[first - 1] in _QUALIFIERS or _is_metric(words[first - 1])):
        first -= 1
    name = words[first:]
    return " ".join(name) if any(map(_is_metric, name)) or _is_metric("_".join(name)) else None


def _is_metric(name: str) -> bool:
    parts = re.split(r"[_/\s-]", name)
    return is_measured(name) or not _TIMED.isdisjoint([name, *parts])


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
    r"global_step|train_step|num_updates|updates?|batches|it|timestamp|remaining|left|"
    r"(?:num|n|every|per_device)_\w+|\w+_(?:size|interval|every|freq|steps|epochs|seed|weight|"
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
_PHASE = re.compile(rf"(?<![\w/])({'|'.join(sorted(_PHASES, key=len, reverse=True))})(?![\w/])", re.IGNORECASE)

# -- both ---------------------------------------------------------------------------------------

_END = r"(?![\w%/]|\.\d|[-:]\w|\s*/\s*\d)"
_WORD = r"(?!(?i:nan|inf|infinity)\b)[A-Za-z][\w.@/]*"
_PAIR = re.compile(
    rf"(?<![\w.@/=-])(?P<name>{_WORD}(?:[ ]{_WORD}){{0,4}})(?:[ ]?\((?P<name_unit>[\w/%]+)\))?"
    rf"(?P<sep>\s*[:=]\s*|\s+)[\[(~]?{VALUE}{_END}"
)
_PER_SECOND = re.compile(
    r"(?<![\w.:=,-])(?P<value>\d[\d,]*(?:\.\d+)?)\s?(?P<times>[kKMG])?\s?"
    r"(?P<unit>samples|tokens|tok|images|imgs?|examples|it|iters|steps|words|sequences|frames)/s(?:ec|econd)?\b(?!\s*[:=])"
)
_DICT_PAIR = re.compile(rf"['\"](?P<name>[^'\"]{{1,64}})['\"]\s*:\s*['\"]?(?P<value>{NUMBER})['\"]?\s*(?=[,}}\]])")
