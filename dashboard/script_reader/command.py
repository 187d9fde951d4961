"""Compose a script's arguments from the form's fields, and split arguments into fields again."""

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
    """The values filled in for a script's options."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """Values that differ from the default by option name: text, or True and False for switches."""
    ticked: Collection[str] = ()
    """The keys of the proposals that are ticked."""
    precision: str = "fp32"
    accumulate: int = 1
    decided: Collection[str] = ()
    """The form's fields that have a value; a positional proposal without one is not applicable."""


def key_of(proposal: Proposal) -> str:
    """Return a key that is unique among a script's proposals."""
    return f"{proposal.field} {proposal.only_when}" if proposal.only_when else proposal.field


def compose(options: Sequence[Option], proposals: Sequence[Proposal], filled: Filled, free: Sequence[str]) -> list[str]:
    """Return the arguments that the fields make; options named in the free arguments are left to those."""
    overridden = named(options, free)
    proposed = {p.option: p.argument for p in applicable(proposals, filled) if key_of(p) in filled.ticked}
    groups: list[tuple[int, list[str]]] = []
    for option in options:
        if option.name in overridden:
            continue
        if option.name in proposed:
            groups.append((_sort_key(option), [proposed[option.name]]))
        elif option.name in filled.values:
            groups.append((_sort_key(option), _written(option, filled.values[option.name])))
    return [token for _, tokens in sorted(groups, key=lambda group: group[0]) for token in tokens]


def applicable(proposals: Sequence[Proposal], filled: Filled) -> list[Proposal]:
    """Return the proposals that have an effect: fp32 and an accumulation of 1 leave the script unchanged."""
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
    """Split arguments into fields and the remaining free arguments, with as many fields as possible.

    Composing the fields and appending the free arguments gives exactly `args`."""
    for end in range(min(len(args), MOST_TAKEN_APART), 0, -1):
        values, ticked, remaining = _match_words(options, applicable(proposals, form), args[:end])
        filled, free = replace(form, values=values, ticked=ticked), [*remaining, *args[end:]]
        if [*compose(options, proposals, filled, free), *free] == list(args):
            return filled, free
    return replace(form, values={}, ticked=()), list(args)


def named(options: Sequence[Option], free: Sequence[str]) -> set[str]:
    """Return the names of the options that these arguments set, also by an abbreviation."""
    return {option.name for option in options if given(option, options, free) is not None}


def given(option: Option, options: Sequence[Option], args: Sequence[str]) -> str | None:
    """Return the last value that the arguments give to one of the options; of a bare switch, the argument itself.

    None where they do not set it, or where that is by its place among them."""
    if option.kind in ("positional", "positionals"):
        return None
    all_flags = {flag for other in options for flag in _flags(other)}
    is_bare = option.kind == "switch" and "=" not in (option.on or "")
    texts = [
        token if is_bare else text
        for token, after in zip(args, [*args[1:], ""], strict=False)
        if (text := _value(token, after, _flags(option), all_flags)) is not None
    ]
    return texts[-1] if texts else None


def _flags(option: Option) -> set[str]:
    return {flag.partition("=")[0] for flag in (*option.flags, option.on, option.off) if flag}


def _value(token: str, after: str, flags: set[str], all_flags: set[str]) -> str | None:
    """Return the value after one of the flags, as in `--lr=1`, `--lr 1`, `-b8` and Hydra's `++lr=1`."""
    head, equals, text = token.partition("=")
    if _names(head, flags) or (equals and head.lstrip("+") in flags):
        return text if equals else after
    is_joined = token[:1] == "-" and token[:2] in flags and head not in all_flags
    return token[2:] if is_joined else None


def problem(option: Option, text: str) -> str | None:
    """Return why a text cannot be this option's value; None where it can or that is uncertain."""
    if "{" in text or option.type not in ("int", "float"):
        return None
    number = int if option.type == "int" else float
    tokens = words_of(text) if option.kind in ("values", "repeated", "positionals") else [text]
    for token in tokens:
        try:
            number(token)
        except ValueError:
            return f"{option.flag} takes {'a whole number' if number is int else 'a number'}, got {token[:40]!r}."
    return None


def words_of(text: str) -> list[str]:
    """Split several values as typed in a shell; an unclosed quotation mark is taken literally."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _written(option: Option, value: Any) -> list[str]:
    if option.kind in ("values", "repeated", "positionals") and isinstance(value, str):
        value = words_of(value)
    return written(option, value)


def _sort_key(option: Option) -> int:
    """Return the sort key of an option's arguments.

    Positional arguments come first, lists before `--x=1`, and a subcommand after the global options."""
    is_command = option.kind == "positional" and option.name in ("command", "subcommand")
    inner = {"positional": 0, "positionals": 1, "values": 2}.get(option.kind, 3)
    return 4 if is_command else inner + (5 if option.command else 0)


def _names(token: str, flags: set[str]) -> bool:
    if token in flags:
        return True
    is_short = len(token) < SHORTEST_ABBREVIATION or not token.startswith("--")
    return not is_short and sum(flag.startswith(token) for flag in flags) == 1


def _match_words(
    options: Sequence[Option], proposals: Sequence[Proposal], args: Sequence[str]
) -> tuple[dict[str, Any], list[str], list[str]]:
    values: dict[str, Any] = {}
    ticked: list[str] = []
    remaining: list[str] = []
    tokens = list(args)
    while tokens:
        token = tokens.pop(0)
        proposal = next((p for p in proposals if p.argument == token), None)
        option = None if proposal else _option_of(options, token, values)
        if proposal is not None:
            ticked.append(key_of(proposal))
        elif option is None:
            remaining.append(token)
        elif option.kind == "switch":
            values[option.name] = token == option.on
        elif option.kind == "values":
            several = []
            while tokens and not tokens[0].startswith("-"):
                several.append(tokens.pop(0))
            values[option.name] = shlex.join(several)
        elif option.kind == "repeated":
            before = words_of(values.get(option.name, ""))
            values[option.name] = shlex.join([*before, token.partition("=")[2]])
        else:
            values[option.name] = token if option.kind == "positional" else token.partition("=")[2]
    return values, ticked, remaining


def _option_of(options: Sequence[Option], token: str, values: Mapping[str, Any]) -> Option | None:
    """Return the option whose field could have produced this token."""
    head, equals, _ = token.partition("=")
    for option in options:
        if option.kind == "switch" and token in (option.on, option.off):
            return option
        if option.kind == "values" and token == option.flag:
            return option
        if option.kind in ("value", "override", "repeated") and equals and head == option.flag:
            return option
        if option.kind == "positional" and option.name not in values and not token.startswith("-"):
            return option
    return None
