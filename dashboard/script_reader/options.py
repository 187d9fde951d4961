"""One option of a training script, as far as its source says, and how a value for it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["value", "switch", "values", "repeated", "positional", "positionals", "override"]
"""How it is written: `--x=1`, `--x`, `--x 1 2`, `--x=1 --x=2`, `1`, `1 2`, `x=1`."""


@dataclass(frozen=True)
class Option:
    """One option of a script; `default` is None where the source does not say it plainly."""

    flags: tuple[str, ...]
    name: str
    type: str | None
    default: Any
    choices: tuple[Any, ...] | None
    help: str | None
    required: bool
    kind: Kind = "value"
    on: str | None = None
    """What turns a switch on, if anything does."""
    off: str | None = None
    """What turns a switch off, if anything does."""
    command: str | None = None
    """The subcommand it belongs to."""

    @property
    def flag(self) -> str:
        """The name it is best known by."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])


def written(option: Option, value: Any) -> list[str]:
    """The arguments that give the option this value; several values as a list or tuple."""
    if option.kind == "switch":
        argument = option.on if value else option.off
        return [argument] if argument else []
    values = [str(text) for text in (value if isinstance(value, list | tuple) else [value])]
    if option.kind in ("positional", "positionals"):
        return values
    if option.kind == "values":
        return [option.flag, *values]
    if option.kind == "override":
        return [f"{option.flag}={text}" for text in values]
    if not option.flag.startswith("--"):
        return [word for text in values for word in (option.flag, text)]
    return [f"{option.flag}={text}" for text in values]


def default_of(options: Sequence[Option], *names: str) -> Any:
    """The default of the first option that has one of these names."""
    return next((o.default for o in options if o.name in names and o.default is not None), None)
