"""How values of the form reach a script, and the changes to its spec that pass them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dashboard.script_reader.proposals import is_whole_batch, option_for
from dashboard.script_reader.reading import Script
from domain.choices import RECIPES
from domain.spec import RunSpec


@dataclass
class Wiring:
    """How values of the form reach the script, and the changes to the spec that pass them."""

    spec: RunSpec
    script: Script | None
    changes: dict[str, Any] = field(default_factory=dict)

    def value(self, name: str) -> int | None:
        """Return the value the script trains with; None where it is unknown or cannot be changed."""
        if self.reaches(name):
            own_value = getattr(self.spec, name)
            return own_value if own_value is not None else self._default(name)
        if name == "batch_size" and self.script and is_whole_batch(self.script.proposals):
            return None
        position = self._position_of(name)
        if position is not None:
            text = self.spec.args[position].rpartition("=")[2]
            return int(text) if text.isdigit() and int(text) > 0 else None
        return self._default(name) if self._proposal(name) else None

    def rate(self) -> float | None:
        """Return the learning rate of one GPU that the script trains with; None as for `value`."""
        if self.reaches("lr"):
            return self.spec.lr if self.spec.lr is not None else self._default_rate()
        position = self._position_of("lr")
        if position is None:
            return self._default_rate() if self._proposal("lr") else None
        with suppress(ValueError):
            rate = float(self.spec.args[position].rpartition("=")[2])
            return rate if 0 < rate < math.inf else None
        return None

    def set_rate(self, rate: float) -> None:
        """Set the learning rate; one that the script or its arguments named is not scaled."""
        if self.spec.lr is None or not self.reaches("lr"):
            self.changes["lr_scaling"] = "none"
        self.set("lr", rate)

    def reaches(self, name: str) -> bool:
        """Whether the form's value already reaches the script."""
        is_passed = any(f"{{{name}}}" in argument for argument in self.spec.args)
        return self.spec.target in RECIPES or is_passed or self._is_read(name)

    def set(self, name: str, value: object) -> None:
        """Set the value, and pass it to the script where it was not passed."""
        self.changes[name] = value
        if self.reaches(name):
            return
        args: list[str] = list(self.changes.get("args", self.spec.args))
        position = self._position_of(name)
        if position is not None:
            flag, equals, _ = args[position].rpartition("=")
            args[position] = f"{flag}{equals}{{{name}}}"
        elif (proposal := self._proposal(name)) is not None:
            args.append(proposal)
        self.changes["args"] = args

    def can_set(self, name: str) -> bool:
        """Whether the value reaches the script or can be passed to it."""
        return self.reaches(name) or self._position_of(name) is not None or self._proposal(name) is not None

    def changed(self) -> RunSpec:
        """Return the spec with the changes."""
        return RunSpec.model_validate(self.spec.model_dump() | self.changes)

    def _is_read(self, name: str) -> bool:
        return self.script is not None and name in self.script.variables

    def _default(self, name: str) -> int | None:
        option = option_for(name, self.script.options) if self.script else None
        default = option.default if option is not None else None
        return default if type(default) is int and default > 0 else None

    def _default_rate(self) -> float | None:
        option = option_for("lr", self.script.options) if self.script else None
        default: Any = option.default if option is not None else None
        is_number = isinstance(default, int | float) and not isinstance(default, bool)
        return float(default) if is_number and 0 < default < math.inf else None

    def _position_of(self, name: str) -> int | None:
        """Return the index of the argument that holds the value."""
        option = option_for(name, self.script.options) if self.script else None
        for number, argument in enumerate(self.spec.args if option else ()):
            flag, equals, _ = argument.partition("=")
            if option is not None and flag in option.flags:
                return number if equals else min(number + 1, len(self.spec.args) - 1)
        return None

    def _proposal(self, name: str) -> str | None:
        """Return the argument that would pass the value."""
        proposals: Sequence[Any] = self.script.proposals if self.script else ()
        return next((p.argument for p in proposals if p.field == name and p.only_when is None), None)
