"""Count the parameters that the training's optimizer steps: the size of the model for estimates of its arithmetic."""

from __future__ import annotations

from typing import Any

from . import process_state

SHARDED = "FlatParameter"
"""The parameter of torch's first FSDP: a rank sees its own part alone."""


def note_parameters(optimizer: Any, state: process_state.ProcessState) -> None:
    """Note the number of elements of all parameters; a DTensor counts as a whole."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not any(type(parameter).__name__ == SHARDED for parameter in parameters):
        state.note("parameters", step=state.step, count=sum(int(parameter.numel()) for parameter in parameters))
