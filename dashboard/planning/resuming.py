"""Resume a run with changes: a new run from one of its checkpoints, with another learning rate or length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboard.planning.wiring import Wiring
from dashboard.script_reader import targets
from domain.spec import RunSpec
from domain.views import CheckpointView, RunView

LENGTHS = ("epochs", "max_steps")


def last_good(run: RunView, checkpoints: Sequence[CheckpointView]) -> CheckpointView | None:
    """Return the last complete checkpoint from before the loss broke; None without any, or while it is finite."""
    since = run.loss_not_finite_since
    usable = [
        checkpoint
        for checkpoint in checkpoints
        if checkpoint.complete and checkpoint.step is not None and since is not None and checkpoint.step < since
    ]
    return max(usable, key=lambda checkpoint: (checkpoint.step or 0, checkpoint.created_at), default=None)


def reference(run: RunView, checkpoint: CheckpointView, checkpoints: Sequence[CheckpointView]) -> str:
    """Return RUN:CHECKPOINT as a spec names it: by its name, or its id where the name is not unique."""
    is_alone = sum(other.name == checkpoint.name for other in checkpoints) == 1
    return f"{run.id}:{checkpoint.name if is_alone else checkpoint.id}"


def current(spec: RunSpec) -> dict[str, float | None]:
    """Return the learning rate and lengths that can be changed, with what the run has; None where that is unknown."""
    wiring = Wiring(spec, targets.script_of(spec))
    known = {"lr": wiring.rate(), **{name: wiring.value(name) for name in LENGTHS}}
    return {name: value for name, value in known.items() if wiring.can_set(name)}


def changed(spec: RunSpec, changes: Mapping[str, float], resume: str | None) -> RunSpec:
    """Return the spec of the new run: its program gets the changes and the checkpoint. Raises ValidationError."""
    wiring = Wiring(spec, targets.script_of(spec))
    for name, value in changes.items():
        if name == "lr":
            wiring.set_rate(value)
        else:
            wiring.set(name, value)
    if resume is not None:
        wiring.set("resume", resume)
    return wiring.changed()
