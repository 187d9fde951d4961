"""The arguments a form's fields make for a script, and such arguments taken apart into fields again."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dashboard.script_reader.options import Option, written
from dashboard.script_reader.proposals import Proposal

SHORTEST_ABBREVIATION = 4
MOST_TAKEN_APART = 200


@dataclass(frozen=True)
class Filled:
    """What somebody filled in for a script's options."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Only what differs from the default: texts, and True or False for switches; by the option's name."""
    taken: Collection[str] = ()
    """The keys of the proposals that are ticked."""
    precision: str = "fp32"
    accumulate: int = 1
    decided: Collection[str] = ()
    """The values of the form that are set: only an option can be left out where there is none, never a word."""


def key_of(proposal: Proposal) -> str:
    """One proposal of a script, told from its others."""
    return f"{proposal.field} {proposal.only_when}" if proposal.only_when else proposal.field


def compose(
    options: Sequence[Option], proposals: Sequence[Proposal], filled: Filled, free: Sequence[str]
) -> list[str]:
    """The arguments of the script, without those typed freely: what these name is left to them."""
    overridden = named(options, free)
    proposed = {p.option: p.argument for p in applicable(proposals, filled) if key_of(p) in filled.taken}
    groups: list[tuple[int, list[str]]] = []
    for option in options:
        if option.name in overridden:
            continue
        if option.name in proposed:
            groups.append((_place(option), [proposed[option.name]]))
        elif option.name in filled.values:
            groups.append((_place(option), _written(option, filled.values[option.name])))
    return [word for _, words in sorted(groups, key=lambda group: group[0]) for word in words]


def applicable(proposals: Sequence[Proposal], filled: Filled) -> list[Proposal]:
    """Those that say something: fp32 and one step at a time leave the script as it is."""
    return [
        p
        for p in proposals
        if p.only_when in (None, filled.precision)
        and (p.field != "accumulate" or filled.accumulate != 1)
        and (not p.argument.startswith("{") or p.field in filled.decided)
    ]


def take_apart(
    options: Sequence[Option], proposals: Sequence[Proposal], args: Sequence[str], form: Filled
) -> tuple[Filled, list[str]]:
    """The fields that make exactly these arguments, and the rest, typed behind them; the more fields, the better."""
    for end in range(min(len(args), MOST_TAKEN_APART), 0, -1):
        values, ticked, remaining = _match_words(options, applicable(proposals, form), args[:end])
        filled, free = replace(form, values=values, taken=ticked), [*remaining, *args[end:]]
        if [*compose(options, proposals, filled, free), *free] == list(args):
            return filled, free
    return replace(form, values={}, taken=()), list(args)


def named(options: Sequence[Option], free: Sequence[str]) -> set[str]:
    """The options that these arguments give themselves, also abbreviated."""
    words = {word.partition("=")[0] for word in free}
    names = set()
    for option in options:
        flags = {flag.partition("=")[0] for flag in (*option.flags, option.on, option.off) if flag}
        if option.kind not in ("positional", "positionals") and any(_names(word, flags) for word in words):
            names.add(option.name)
    return names


def problem(option: Option, text: str) -> str | None:
    """Why a text cannot be this option's value, if that is certain."""
    if "{" in text or option.type not in ("int", "float"):
        return None
    number = int if option.type == "int" else float
    words = words_of(text) if option.kind in ("values", "repeated", "positionals") else [text]
    for word in words:
        try:
            number(word)
        except ValueError:
            return (
                f"{option.flag} takes {'a whole number' if number is int else 'a number'}, got {word[:40]!r}."
            )
    return None


def words_of(text: str) -> list[str]:
    """Several values as one types them; an open quotation stands for itself."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _written(option: Option, value: Any) -> list[str]:
    if option.kind in ("values", "repeated", "positionals") and isinstance(value, str):
        value = words_of(value)
    return written(option, value)


def _place(option: Option) -> int:
    """Words that stand by themselves first; a subcommand after what belongs to the whole; lists before `--x=1`."""
    is_command = option.kind == "positional" and option.name in ("command", "subcommand")
    inner = {"positional": 0, "positionals": 1, "values": 2}.get(option.kind, 3)
    return 4 if is_command else inner + (5 if option.command else 0)


def _names(word: str, flags: set[str]) -> bool:
    if word in flags:
        return True
    is_short = len(word) < SHORTEST_ABBREVIATION or not word.startswith("--")
    return not is_short and sum(flag.startswith(word) for flag in flags) == 1


def _match_words(
    options: Sequence[Option], proposals: Sequence[Proposal], args: Sequence[str]
) -> tuple[dict[str, Any], list[str], list[str]]:
    values: dict[str, Any] = {}
    ticked: list[str] = []
    remaining: list[str] = []
    words = list(args)
    while words:
        word = words.pop(0)
        proposal = next((p for p in proposals if p.argument == word), None)
        option = None if proposal else _option_of(options, word, values)
        if proposal is not None:
            ticked.append(key_of(proposal))
        elif option is None:
            remaining.append(word)
        elif option.kind == "switch":
            values[option.name] = word == option.on
        elif option.kind == "values":
            several = []
            while words and not words[0].startswith("-"):
                several.append(words.pop(0))
            values[option.name] = shlex.join(several)
        elif option.kind == "repeated":
            before = words_of(values.get(option.name, ""))
            values[option.name] = shlex.join([*before, word.partition("=")[2]])
        else:
            values[option.name] = word if option.kind == "positional" else word.partition("=")[2]
    return values, ticked, remaining


def _option_of(options: Sequence[Option], word: str, values: Mapping[str, Any]) -> Option | None:
    """The option that a field could have written this word for."""
    head, equals, _ = word.partition("=")
    for option in options:
        if option.kind == "switch" and word in (option.on, option.off):
            return option
        if option.kind == "values" and word == option.flag:
            return option
        if option.kind in ("value", "override", "repeated") and equals and head == option.flag:
            return option
        if option.kind == "positional" and option.name not in values and not word.startswith("-"):
            return option
    return None
