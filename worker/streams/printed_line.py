"""Parse one printed line: the training position (step, epoch) and the values at it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from domain.series.printed_pattern import NUMBER, TIMES, VALUE, amount, is_fraction, number, scaled
from worker.streams.printed_beside import last_step

MAX_STEP = 10**12


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


def header_epoch(text: str) -> int | None:
    """Return the epoch of a line that holds nothing else: `Epoch 5/10`, `== Epoch 5 ==`."""
    header = _HEADER.fullmatch(text)
    return int(header[1]) if header else None


def holds_values(text: str) -> bool:
    """Whether a cleaned line holds a loss or the like, with or without a step."""
    if _FOREIGN.search(text) or _SETTINGS.search(text):
        return False
    return any(is_measured(pair.name) and pair.is_fraction for pair in pairs(_PATH.sub(" ", text)))


def read_line(text: str, epoch: int | None = None) -> PrintedLine | None:
    """Parse a cleaned line; None if it has no values at a known step or epoch.

    `epoch`: the number in a header line above, used if the line itself has none.
    """
    if _FOREIGN.search(text):
        return None
    text = _TENSOR.sub(r"\1", text)
    if text.endswith("]") and (bar := _TQDM.search(text) or _OPEN_TQDM.search(text)):
        return _read_bar(text, bar, epoch)
    if (printed_dict := _SHOWN_DICT.search(text)) and (values := dict_pairs(printed_dict[0])):
        return _read_dict(text.replace(printed_dict[0], " "), values)
    return _read_plain(_PATH.sub(" ", text), epoch)


# -- line formats -----------------------------------------------------------------------

_FOREIGN = re.compile(
    r"^\s*(?:File \"|Traceback |[\w.]*(?:Error|Exception|Interrupt|Warning)\b)|\w(?:Error|Exception|Warning):"
    r"|^\W*[A-Za-z_][\w.]*\(\w+=|(?:^|\s)--\w[\w-]*[= ]|^\s*[$>]\s|\d{25}"
)
_TENSOR = re.compile(r"\b(?:tensor|(?:np\.|numpy\.)?float\d*)\(([-+\w.]+)[^()]*(?:\([^()]*\)[^()]*)*\)")
_PATH = re.compile(
    r"(?<!\S)['\"(]*(?:[~.]{0,2}/\S{2,}|\w+:/\S+)"
    r"|\S+\.(?:pt|pth|ckpt|py|jsonl?|bin|safetensors|txt|log|ya?ml|csv|png|pkl)\b\S*"
)
_EPOCH_NUMBER = r"(?P<epoch>\d+(?:\.\d+)?)(?:\s*/\s*(?P<epochs>\d+)(?:\.\d+)?)?"
_EPOCH = rf"(?<![\w/.=-])(?i:epoch|ep)(?:\((?P<phase>\w+)\))?\s*[:=#]?\s*[\[(]?\s*{_EPOCH_NUMBER}\s*[\])]?(?![\w.]*\w)"
_STEP_OF = r"(?P<step>\d+)\s*/\s*(?P<of>\d+)"
_HEADER = re.compile(
    r"\W*(?i:(?:starting|begin(?:ning)?|training|train|start of)\s+)?(?i:epoch)"
    r"\s*[:#]?\s*[\[(]?(\d+)(?:\s*/\s*\d+)?\W*"
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
    r"|^steps(?=:)))"
    r"(?:\((?P<phase>\w+)\))?\s*[:=#]?\s*\[?\s*(?P<step>\d{1,3}(?:,\d{3})+|\d+)"
    r"(?:\s*/\s*(?P<of>\d{1,3}(?:,\d{3})+|\d+))?\s*\]?(?!\w|\.\d|%|[-/]\w)"
)
_AMOUNT = r"\d+(?:\.\d+)?[kMG]?"
_TQDM = re.compile(
    rf"^(?P<title>[^%]*?):?(?<!\d)\s*\d+%(?:\|[^|]*\|)?\s*(?P<step>{_AMOUNT})/(?P<of>{_AMOUNT})\s+"
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


def _read_bar(text: str, bar: re.Match[str], epoch: int | None) -> PrintedLine | None:
    title, postfix, phase = bar["title"], bar["postfix"] or "", phase_of(bar["title"])
    values = {pair.tag: pair.value for pair in pairs(postfix, phase)}
    if not values:
        return None
    if rate := _RATE.fullmatch(bar["rate"].strip()):
        per_s = float(rate[1]) if rate[2].endswith("/s") else 1 / (float(rate[1]) or math.inf)
        values[f"{phase}/it_per_s" if phase else "it_per_s"] = per_s
    counter = f"bar:{re.sub(r'[0-9/]+', '', title).strip().lower()}"
    step = round(scaled(bar["step"]))
    of = round(scaled(bar["of"])) if "of" in bar.re.groupindex else None
    if re.fullmatch(r"\W*epochs?\W*", title, re.IGNORECASE):
        return PrintedLine(TrainingPosition(epoch=step, epochs=of), values, counter, phase, is_bar=True)
    named = re.search(_EPOCH, title)
    at_epoch = int(float(named["epoch"])) if named else epoch
    position = TrainingPosition(step, of, at_epoch, in_epoch=True, from_zero="v_num" in postfix)
    return PrintedLine(position, values, counter, phase, is_bar=True)


def _read_dict(outside: str, texts: Mapping[str, str]) -> PrintedLine | None:
    """Parse a dictionary or a JSON object; its step may precede it."""
    by_name = {name.lower().removeprefix("train/").lstrip("_"): text for name, text in texts.items()}
    step = next((by_name[name] for name in _STEP_WORDS if name in by_name), None)
    if step is None and (glued := last_step(outside.encode())) is not None:  # behind a bar, in its row
        step = str(glued)
    epoch = by_name.get("epoch")
    values = {tag: number(text) for name, text in texts.items() if (tag := tag_of(name)) is not None}
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
    phase = match.phase or phase_of(before) or phase_of(_FIRST_WORDS.split(behind, maxsplit=1)[0])
    candidates = list(pairs(match.remainder, phase))
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
    named = re.search(_EPOCH, text)
    if not steps and named is None:
        return _find_brackets(text, epoch)
    best = min(steps, key=lambda step_match: _STEP_WORDS.index(_word_of(step_match)), default=None)
    position = TrainingPosition(
        int(number(best["step"])) if best else None,
        int(number(best["of"])) if best and best["of"] else None,
        float(named["epoch"]) if named else epoch,
        int(named["epochs"]) if named and named["epochs"] else None,
        epoch_is_fraction=named is not None and is_fraction(named["epoch"]),
        in_epoch=best is not None and (_word_of(best) == "batch" or phase_named(best["phase"]) not in (None, "train")),
    )
    remainder = text
    for step_match in sorted([*steps, *([named] if named else [])], key=lambda step_match: -step_match.start()):
        remainder = _marked(remainder, step_match)
    phase = phase_named(best["phase"] if best else None) or phase_named(named["phase"] if named else None)
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
    return "step" if unit == "steps" else unit


def _marked(text: str, match: re.Match[str]) -> str:
    return f"{text[: match.start()]}{_MARK}{text[match.end() :]}"


# Parse the values in a printed text: numbers with units and the names before them.


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
