"""Reads files of torch.save that hold objects of a framework beside tensors, without that framework.

torch's weights-only loader reads them. In place of each class and function that it does not know it gets a class that
takes anything and does nothing: nothing of the file's choice is imported or called.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..sources import CheckpointRefused
from .torch_files import load as load_plain

KNOWN: Mapping[str, type] = {"deepspeed.runtime.zero.config.ZeroStageEnum": int}
"""Classes whose value is read -> what it is. All others only have the attributes that a file gives them."""


class StandIn:
    """An object of a class that is not imported."""

    def __new__(cls, *_args: Any) -> StandIn:
        return object.__new__(cls)

    def __init__(self, *_args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)


def load(path: Path) -> Any:
    """Load a file; its tensors stay in it, mapped into memory. Raises CheckpointRefused, OSError."""
    if not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):
        raise CheckpointRefused(
            f"{path.name} holds objects of its framework, which torch {torch.__version__} cannot leave out: upgrade "
            "the Python that trains to torch 2.6 or newer."
        )
    unknown: list[str] = []
    with suppress(ValueError, RuntimeError):  # of another format, or damaged: the loader says so
        unknown = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    with torch.serialization.safe_globals([_stand_in(name) for name in unknown]):
        return load_plain(path)


def _stand_in(name: str) -> type:
    module, _, own_name = name.rpartition(".")
    return type(own_name, (KNOWN.get(name, StandIn),), {"__module__": module, "__qualname__": own_name})
