"""An option of a training script, and how its values are written as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal["value", "switch", "values", "repeated", "positional", "positionals", "override"]
"""Forms of an option: `--x=1`, `--x`, `--x 1 2`, `--x=1 --x=2`, `1`, `1 2`, `x=1`."""


@dataclass(frozen=True)
class Option:
    """An option of a script; `default` is None where it is not a literal in the source."""

    flags: tuple[str, ...]
    name: str
    type: str | None
    default: Any = None
    choices: tuple[Any, ...] | None = None
    help: str | None = None
    required: bool = False
    kind: Kind = "value"
    on: str | None = None
    """The argument that turns a switch on, if there is one."""
    off: str | None = None
    """The argument that turns a switch off, if there is one."""
    command: str | None = None
    """The subcommand it belongs to."""

    @property
    def flag(self) -> str:
        """The long flag, else the first one."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])

    def as_switch(self, on: str | None, off: str | None) -> Option:
        """Return the option as a switch that these arguments turn on and off."""
        return replace(self, kind="switch", on=on, off=off)


def command_option(names: tuple[str, ...]) -> Option:
    """Return the option that chooses among commands."""
    return Option(("command",), "command", "str", None, names, "The command to run", True, "positional")


def declared(declarations: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the flags that turn an option on and off, of declarations such as `--shout/--no-shout`."""
    pairs = [declaration.partition("/") for declaration in declarations]
    ons, offs = [on.strip() for on, _, _ in pairs], [off.strip() for _, _, off in pairs]
    return [on for on in ons if on.startswith("-")], [off for off in offs if off.startswith("-")]


def written(option: Option, value: Any) -> list[str]:
    """Return the arguments that set the option to a value; several values are a list or tuple."""
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
        return [token for text in values for token in (option.flag, text)]
    return [f"{option.flag}={text}" for text in values]
