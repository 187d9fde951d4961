"""Parse one printed line: the training position (step, epoch) and the values at it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from domain.series.printed_pattern import NUMBER, is_fraction, number, scaled
from worker.streams.printed_beside import last_step
from worker.streams.printed_values import (
    Pair,
    dict_pairs,
    is_measured,
    pairs,
    phase_heading,
    phase_named,
    phase_of,
    tag_of,
    without_dict_pairs,
)

MAX_STEP = 10**12
RATE_TAG = "it_per_s"


@dataclass(frozen=True)
class TrainingPosition:
    """A position in the training as a script prints it."""

    step: int | None = None
    of: int | None = None
    """Number of steps of the epoch or of the whole training."""
    epoch: float | None = None
    epochs: int | None = None
    epoch_is_fraction: bool = False
    """Written as 0.25 or 1.0: progress through the training, not an epoch's number."""
    in_epoch: bool = False
    """The format says that `step` restarts with each epoch."""
    from_zero: bool = False
    """Epochs are certainly counted from 0."""


@dataclass(frozen=True)
class PrintedLine:
    """A parsed line: `values` at `position`."""

    position: TrainingPosition
    values: Mapping[str, float]
    counter: str
    """Identifies the step counter: a bar's title, or the word before the step, with the phase."""
    phase: str | None = None
    """train, val, eval, test."""
    is_bar: bool = False


def header_position(text: str) -> TrainingPosition | None:
    """Return the epoch of a line that holds nothing else: `Epoch 5/10`, `== Epoch 5 ==`."""
    header = _HEADER.fullmatch(text)
    if header is None:
        return None
    return TrainingPosition(epoch=int(header["epoch"]), epochs=int(header["epochs"]) if header["epochs"] else None)


def holds_values(text: str) -> bool:
    """Whether a cleaned line holds a loss or the like, with or without a step."""
    values = clean_values(text)
    if values is None or _SETTINGS.search(text):
        return False
    return any(is_measured(pair.name) and pair.is_fraction for pair in pairs(values))


def clean_values(text: str) -> str | None:
    """Return a cleaned line without paths and tensors around numbers; None for an error, a call or a command."""
    return None if _FOREIGN.search(text) else _PATH.sub(" ", _TENSOR.sub(r"\1", text))


def bar_values(text: str) -> str:
    """Return the title and the values of a progress bar without what the bar itself counts; other text as it is."""
    bar = _find_bar(text)
    return f"{bar['title']} ; {bar['postfix'] or ''}" if bar else text


def read_line(text: str, epoch: int | None = None) -> PrintedLine | None:
    """Parse a cleaned line; None if it has no values at a known step or epoch.

    `epoch`: the number in a header line above, used if the line itself has none.
    """
    if _FOREIGN.search(text):
        return None
    text = _TENSOR.sub(r"\1", text)
    if bar := _find_bar(text):
        return _read_bar(bar, epoch)
    if (printed_dict := _SHOWN_DICT.search(text)) and (values := dict_pairs(printed_dict[0])):
        others = pairs(without_dict_pairs(printed_dict[0]))
        if line := _read_dict(text.replace(printed_dict[0], " "), values, others):
            return line
    return _read_plain(_PACKED.sub(", ", _PATH.sub(" ", text)).strip(), epoch)


# -- line formats -----------------------------------------------------------------------

_FOREIGN = re.compile(
    r"^\s*(?:File \"|Traceback |[\w.]*(?:Error|Exception|Interrupt|Warning)\b)|\w(?:Error|Exception|Warning):"
    r"|^\W*[A-Za-z_][\w.]*\(\w+=|(?:^|\s)--\w[\w-]*[= ]|^\s*[$>]\s|\d{25}"
    r"|^\[[IWEF]\d{4} [\d:.]+ \S+:\d+\]"  # what torch's own C++ tells
)
_TENSOR = re.compile(r"\b(?:tensor|(?:np\.|numpy\.)?float\d*)\(([-+\w.]+)[^()]*(?:\([^()]*\)[^()]*)*\)")
_PATH = re.compile(
    r"(?<!\S)['\"(]*(?:[~.]{0,2}/\S{2,}|\w+:/\S+)"
    r"|\S+\.(?:pt|pth|ckpt|py|jsonl?|bin|safetensors|txt|log|ya?ml|csv|png|pkl)\b\S*"
)
_PACKED = re.compile(r"(?<=\d)/(?=[A-Za-z_]+=)")
"""Between the pairs of `epoch=0/global_step=10`."""
_EPOCH_NUMBER = r"(?P<epoch>\d+(?:\.\d+)?)(?:\s*(?:/|\bof\b)\s*(?P<epochs>\d+)(?:\.\d+)?)?"
_EPOCH = (
    r"(?<![\w/.=-])(?i:epoch|ep|epochs(?=\s*[:=]))(?:\((?P<phase>\w+)\))?\s*[:=#]?\s*[\[(]?"
    rf"\s*{_EPOCH_NUMBER}\s*[\])]?(?![\w.]*\w)"
)
_EPOCH_BEHIND = r"(?<![\w/.=-])(?P<epoch>\d+)(?i:epoch)(?!\w)"
"""`3epoch results:`."""
_STEP_OF = r"(?P<step>\d+)\s*/\s*(?P<of>\d+)"
_HEADER = re.compile(
    r"\W*(?i:(?:starting|begin(?:ning)?|training|train|start of)\s+)?(?i:epoch)"
    r"\s*[:#]?\s*[\[(]?(?P<epoch>\d+)(?:\s*(?:/|\bof\b)\s*(?P<epochs>\d+))?\W*"
)
_IN_EPOCH = [
    re.compile(
        rf"{_EPOCH}[\s,:|-]*(?:(?i:batch)[\s:=#]*)?\[?\(?\s*{_STEP_OF}"
        r"\s*(?:\(\s*[\d.]+\s*%\s*\))?\s*[\])]?(?![\w.])"
    ),
    re.compile(rf"{_EPOCH}\W+{_STEP_OF}\s+(?:batches|steps|iterations|iters)\b"),
    re.compile(rf"{_EPOCH}[\s,|-]+(?i:step|iter)[\s:]*\[\s*{_STEP_OF}\s*\]"),
    re.compile(rf"^\W*\[{_EPOCH_NUMBER}\]\s*\[\s*{_STEP_OF}\s*\]"),
    re.compile(r"^\[(?P<epoch>\d+),\s+(?P<step>\d+)\](?=\s)"),
    re.compile(rf"{_EPOCH_BEHIND}:(?P<phase>\w+):(?:\d+-)?(?P<step>\d+)(?:/(?P<of>\d+))?batch(?:es)?(?!\w)"),
]
_PERCENT = r"(?:\(\s*[\d.]+\s*%\s*\))?"
_PHASE_WORD = r"(?<![\w/.=-])(?P<phase>(?i:train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|test(?:ing)?))"
_AFTER_PHASE = re.compile(
    rf"{_PHASE_WORD}\s*:?\s*(?:(?P<epoch>\d+)|\[\s*(?P<epoch_of>\d+)(?:/(?P<epochs>\d+))?\s*\])"
    rf"\s*\[\s*{_STEP_OF}\s*{_PERCENT}\s*\]"
)
"""`Train: 1 [  10/20 ( 50%)]`, `Train: [1/300][10/20]`."""
_OF_PHASE = re.compile(rf"{_PHASE_WORD}\s*:?\s*[\[(]\s*{_STEP_OF}\s*{_PERCENT}\s*[\])]")
"""`Test: [   4/4]`, which has no epoch."""
_LEADING = re.compile(rf"^[\s>*=#-]*\[?\(?\s*{_STEP_OF}\s*{_PERCENT}\s*[\])]?(?=[\s:,|-])")
"""A line that begins with `[10/1000]`."""
_BRACKETED = re.compile(rf"\[\s*{_STEP_OF}\s*\]")
_BLOCKS = [
    re.compile(rf"[━╸╺─]+\s+{_STEP_OF}(?=\s)"),
    re.compile(rf"(?<![\w.]){_STEP_OF}\s+(?:\[[=>.-]+\]|[━╸╺─]+)"),
]
_STEP_WORDS = "global_step num_updates train_step update step iteration iter it episode batch".split()
_STEP = re.compile(
    r"(?<![\w/.=-])(?P<word>(?i:global[_ ]step|num_updates|train_step|update|step|iteration|iter|it|episode|batch"
    r"|(?:(?<=^)|(?<=[,;|\t])|(?<=[,;|\t][ ]))(?:steps|updates|iterations|iters|episodes|batches)(?=\s*[:=])))"
    r"(?:\((?P<phase>\w+)\))?\s*[:=#]?\s*\[?\s*(?P<step>\d{1,3}(?:,\d{3})+|\d+)"
    r"(?:\s*/\s*(?P<of>\d{1,3}(?:,\d{3})+|\d+))?\s*\]?(?!\w|\.\d|%|[-/]\w)"
)
_AMOUNT = r"\d+(?:\.\d+)?[kMG]?"
_TQDM = re.compile(
    rf"^(?P<title>.*?):?(?<![\d.])\s*\d+%(?:\|[^|]*\|)?\s*(?P<step>{_AMOUNT})/(?P<of>{_AMOUNT})\s+"
    r"\[[\d:]+<[\d:?dhms, ]*,\s*(?P<rate>[^,\]]*)(?:,\s*(?P<postfix>[^\]]*(?:\][^\]]*)*?))?\]\s*$"
)
_OPEN_TQDM = re.compile(
    rf"^(?P<title>.*?):?\s*(?P<step>{_AMOUNT})it\s+\[[\d:]+,\s*(?P<rate>[^,\]]*)(?:,\s*(?P<postfix>[^\]]*))?\]\s*$"
)
_RATE = re.compile(r"([\d.]+)(s/it|it/s|s/step|step/s|s/batch|batch/s)")
_SHOWN_DICT = re.compile(r"\{\s*['\"].*\}")
_SETTINGS = re.compile(r"(?i:\b(?:batch_?size|num_workers|seed|momentum|weight_decay|optimi[sz]er)\s*[=:])")
"""Beside these, numbers that no training measures are settings, too."""
_MARK = "\0"
"""Replaces the position in the text."""
_TITLE_NUMBERS = re.compile(rf"(?<![A-Za-z])(?:{NUMBER})|[/\s]+")
_DECORATION = " \t=*#>-|:[]("
_FIRST_WORDS = re.compile(r"[^\w\s\[(:|-]|[:|\])]\s|\d|\s(?=\w+\s*[:=\d])")
"""Ends the words after a position that may name a phase: `Epoch 3 [val] loss=0.5`."""


# -- parsing ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Match:
    """A position in a text, and the text without it."""

    position: TrainingPosition
    remainder: str
    """With a mark in place of the position."""
    counter: str
    phase: str | None = None


def _find_bar(text: str) -> re.Match[str] | None:
    return (_TQDM.search(text) or _OPEN_TQDM.search(text)) if text.endswith("]") else None


def _read_bar(bar: re.Match[str], epoch: int | None) -> PrintedLine | None:
    """Parse a progress bar, whose values stand behind its rate, in its title, or in both."""
    title, postfix, phase = bar["title"], bar["postfix"] or "", phase_of(bar["title"])
    named = re.search(_EPOCH, title)
    in_title = pairs(_marked(title, named) if named else title, phase)
    if not any(is_measured(pair.name) for pair in in_title):
        in_title = []
    values = {pair.tag: pair.value for pair in [*in_title, *pairs(postfix, phase)]}
    if not values:
        return None
    if rate := _RATE.fullmatch(bar["rate"].strip()):
        per_s = float(rate[1]) if rate[2].endswith("/s") else 1 / (float(rate[1]) or math.inf)
        values[f"{phase}/{RATE_TAG}" if phase else RATE_TAG] = per_s
    counter = f"bar:{_TITLE_NUMBERS.sub(' ', title).strip().lower()}"
    return PrintedLine(_position_of_bar(bar, named, epoch), values, counter, phase, is_bar=True)


def _position_of_bar(bar: re.Match[str], named: re.Match[str] | None, epoch: int | None) -> TrainingPosition:
    step = round(scaled(bar["step"]))
    of = round(scaled(bar["of"])) if "of" in bar.re.groupindex else None
    if re.fullmatch(r"\W*epochs?\W*", bar["title"], re.IGNORECASE):
        return TrainingPosition(epoch=step, epochs=of)
    at_epoch = int(float(named["epoch"])) if named else epoch
    epochs = int(named["epochs"]) if named and named["epochs"] else None
    return TrainingPosition(step, of, at_epoch, epochs, in_epoch=True, from_zero="v_num" in (bar["postfix"] or ""))


def _read_dict(outside: str, texts: Mapping[str, str], others: Iterable[Pair]) -> PrintedLine | None:
    """Parse a dictionary or a JSON object, also the `others`, such as lists, in it; its step may precede it."""
    by_name = {name.lower().removeprefix("train/").lstrip("_"): text for name, text in texts.items()}
    step = next((by_name[name] for name in _STEP_WORDS if name in by_name), None)
    if step is None and (glued := last_step(outside.encode())) is not None:  # behind a bar, in its row
        step = str(glued)
    epoch = by_name.get("epoch")
    values = {tag: number(text) for name, text in texts.items() if (tag := tag_of(name)) is not None}
    values |= {pair.tag: pair.value for pair in others if pair.tag not in values}
    if not any(map(is_measured, values)):
        return None
    if step is None and epoch is None:
        match = _find_position(outside, None)
        return PrintedLine(match.position, values, match.counter) if match else None
    position = _position_of(step, epoch)
    return PrintedLine(position, values, "dict") if position else None


def _position_of(step: str | None, epoch: str | None) -> TrainingPosition | None:
    step_number, epoch_number = (None if text is None else number(text) for text in (step, epoch))
    if not all(0 <= (value or 0) < MAX_STEP for value in (step_number, epoch_number)):
        return None
    if step_number is not None and not step_number.is_integer():
        return None
    epoch_is_fraction = epoch is not None and is_fraction(epoch)
    return TrainingPosition(
        None if step_number is None else int(step_number),
        epoch=epoch_number,
        epoch_is_fraction=epoch_is_fraction,
    )


def _read_plain(text: str, epoch: int | None) -> PrintedLine | None:
    match = _find_position(text, epoch)
    if match is None:
        return None
    before, _, behind = match.remainder.partition(_MARK)
    first_words = len(_FIRST_WORDS.split(behind, maxsplit=1)[0])
    phase = match.phase or phase_of(before) or phase_heading(behind) or phase_of(behind, first_words)
    candidates = pairs(match.remainder, phase)
    if not any(is_measured(pair.name) for pair in candidates):
        # Names that occur in any text count only in a line that begins with its position.
        begins_with_it = before.strip(_DECORATION) == "" or phase is not None
        if not (begins_with_it and any(pair.is_fraction for pair in candidates)) or _SETTINGS.search(behind):
            return None
    values: dict[str, float] = {}
    for pair in candidates:
        values.setdefault(pair.tag, pair.value)
    counter = f"{match.counter}:{phase or ''}"
    return PrintedLine(match.position, values, counter, phase, is_bar=match.counter == "blocks")


def _find_position(text: str, epoch: int | None) -> _Match | None:
    return (
        _find_in_epoch(text) or _find_after_phase(text, epoch) or _find_blocks(text, epoch) or _find_words(text, epoch)
    )


def _find_after_phase(text: str, epoch: int | None) -> _Match | None:
    """Find `Train: 1 [  10/20 ( 50%)]`, whose epochs begin at 0, and `Test: [   4/4]`."""
    match = _AFTER_PHASE.search(text) or _OF_PHASE.search(text)
    if match is None:
        return None
    named = match.groupdict()
    own_epoch = named.get("epoch") or named.get("epoch_of")
    position = TrainingPosition(
        int(match["step"]),
        int(match["of"]),
        int(own_epoch) if own_epoch else epoch,
        int(named["epochs"]) if named.get("epochs") else None,
        in_epoch=True,
        from_zero=own_epoch is not None,
    )
    phase = phase_named(match["phase"])
    if phase == "test" and own_epoch is None:
        phase = "val"  # between the epochs of a training, whatever it is called
    return _Match(position, _marked(text, match), "in epoch", phase)


def _find_in_epoch(text: str) -> _Match | None:
    """Find positions like `Epoch: [1][20/391]`."""
    match = next((candidate for shape in _IN_EPOCH if (candidate := shape.search(text))), None)
    if match is None:
        return None
    named = match.groupdict()
    of, epochs = named.get("of"), named.get("epochs")
    # torch's `Epoch: [0]`; mmcv's has no colon and begins at 1.
    in_brackets = re.match(r"(?i:epoch):\s*\[", match[0]) is not None
    position = TrainingPosition(
        int(match["step"]),
        int(of) if of else None,
        int(float(match["epoch"])),
        int(epochs) if epochs else None,
        in_epoch=True,
        from_zero=in_brackets and not epochs and int(float(match["epoch"])) > 1,
    )
    return _Match(position, _marked(text, match), "in epoch", phase_named(named.get("phase")))


def _find_blocks(text: str, epoch: int | None) -> _Match | None:
    """Find the progress bars of Keras and Rich."""
    match = _BLOCKS[0].search(text) or _BLOCKS[1].search(text)
    if match is None:
        return None
    title = re.search(_EPOCH, text[: match.start()])
    at_epoch = int(float(title["epoch"])) if title else epoch
    position = TrainingPosition(
        int(match["step"]), int(match["of"]), at_epoch, in_epoch=True, from_zero="v_num" in text
    )
    remainder = _MARK + text[title.end() if title else 0 :].replace(match[0], " ")
    return _Match(position, remainder, "blocks")


def _find_words(text: str, epoch: int | None) -> _Match | None:
    """Find a step or an epoch after a word; the first in `_STEP_WORDS` wins among several steps."""
    steps = list(_STEP.finditer(text))
    named = re.search(_EPOCH, text) or re.search(_EPOCH_BEHIND, text)
    if not steps and named is None:
        return _find_brackets(text, epoch)
    epoch_parts = named.groupdict() if named else {}
    best = min(steps, key=lambda step_match: _STEP_WORDS.index(_word_of(step_match)), default=None)
    position = TrainingPosition(
        int(number(best["step"])) if best else None,
        int(number(best["of"])) if best and best["of"] else None,
        float(named["epoch"]) if named else epoch,
        int(epochs) if (epochs := epoch_parts.get("epochs")) else None,
        epoch_is_fraction=named is not None and is_fraction(named["epoch"]),
        in_epoch=best is not None and (_word_of(best) == "batch" or phase_named(best["phase"]) not in (None, "train")),
    )
    remainder = text
    for step_match in sorted([*steps, *([named] if named else [])], key=lambda step_match: -step_match.start()):
        remainder = _marked(remainder, step_match)
    phase = phase_named(best["phase"] if best else None) or phase_named(epoch_parts.get("phase"))
    return _Match(position, remainder, _word_of(best) if best else "epoch", phase)


def _find_brackets(text: str, epoch: int | None) -> _Match | None:
    """Find `[  640/60000]` in `loss: 2.3  [  640/60000]`, below a header line with the epoch."""
    match = _BRACKETED.search(text) if epoch is not None and not phase_of(text) else None
    if match is None:
        return _find_leading(text, epoch)
    position = TrainingPosition(int(match["step"]), int(match["of"]), epoch, in_epoch=True)
    return _Match(position, _MARK + text.replace(match[0], " ; "), "brackets")


def _find_leading(text: str, epoch: int | None) -> _Match | None:
    """Find `[10/1000]` at the beginning of a line."""
    match = _LEADING.match(text)
    if match is None or not 0 < int(match["of"]) >= int(match["step"]):
        return None
    position = TrainingPosition(int(match["step"]), int(match["of"]), epoch, in_epoch=epoch is not None)
    return _Match(position, _marked(text, match), "leading")


def _word_of(step: re.Match[str]) -> str:
    unit = step["word"].lower().replace(" ", "_")
    return {"batches": "batch"}.get(unit, unit if unit in _STEP_WORDS else unit.removesuffix("s"))


def _marked(text: str, match: re.Match[str]) -> str:
    return f"{text[: match.start()]}{_MARK}{text[match.end() :]}"
