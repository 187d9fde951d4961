"""Launch again with changes: the fix after a failure, with a sentence that explains it, and a resume from a checkpoint.

For an out-of-memory error: a smaller batch per GPU and more accumulation, which keep the global batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from dashboard.planning.wiring import Wiring
from dashboard.script_reader import targets
from dashboard.script_reader.reading import Script
from domain.device_memory import DeviceMemory, fitting_share
from domain.messages import Reason, State
from domain.spec import RunSpec
from domain.text import formats
from domain.views import CheckpointView, RunView


def suggest_fix(
    spec: RunSpec,
    reason: str | None,
    message: str | None,
    script: Script | None = None,
    memory: DeviceMemory | None = None,
) -> Fix | None:
    """Return the fix for a run that failed with this reason and message; `script` is its parsed source, if known.

    `memory`: what filled the failing rank's device."""
    error_text = message or ""
    if reason != Reason.OUT_OF_MEMORY or any(phrase in error_text for phrase in _NOT_THE_BATCH):
        return None
    unit = "GPU" if any(kind in error_text for kind in ("CUDA", "HIP", "XPU")) else "process"
    wiring = Wiring(spec, script)
    batch = wiring.value("batch_size")
    share = fitting_share(memory) if memory is not None else None
    if batch is None:
        return Fix(_BY_HAND.format(unit=unit) + _estimated(share, memory.batch_size if memory else None))
    fits = None if share is None else int(batch * share)
    if batch > 1 and fits != 0:
        return _smaller_batch(wiring, batch, unit, fits)
    return _without_batch(wiring, unit, batch)


LOWER_LR = 0.1
_NOT_THE_BATCH = ("shared memory", "data loader's process")
"""Messages about memory that a smaller batch does not free."""
_BY_HAND = (
    "Halve the batch per {unit} in the script and double its gradient accumulation, which keeps the global "
    "batch; with {{batch_size}} and {{accumulate}} in its arguments the form sets both."
)


@dataclass(frozen=True)
class Fix:
    """A suggested change."""

    sentence: str
    spec: RunSpec | None = None
    """The spec with the change; None where the user has to make it."""
    label: str = ""
    """Label of the button that launches it."""


def _estimated(share: float | None, batch: int | None) -> str:
    """Return a sentence on the batch that fits; empty where it is not known, or where the estimate says nothing."""
    if share is None or batch is None or share >= 1:
        return ""
    return f" About {int(batch * share)} of its {batch} samples fit at most (an estimate)."


def memory_of(run: RunView) -> DeviceMemory | None:
    """Return what filled the device of the first rank to fail; None where no snapshot was taken."""
    with suppress(ValidationError):
        memory = (run.error or {}).get("memory")
        return None if memory is None else DeviceMemory.model_validate(memory)
    return None


def fix_of(run: RunView, checkpoints: Sequence[CheckpointView] = ()) -> Fix | None:
    """Return the fix for a run that ran out of memory, lacks its environment, or whose loss is no longer finite."""
    return _of_memory(run) or _of_environment(run) or _of_broken_loss(run, checkpoints)


def _of_environment(run: RunView) -> Fix | None:
    """Suggest a launch as the nodes are, where an environment that was not requested could not be built."""
    is_built = (run.message or "").startswith("The environment of ") and run.spec.environment == "auto"
    if run.state != State.FAILED or run.reason != Reason.ENVIRONMENT or not is_built:
        return None
    sentence = "Launch it again with each node's own Python, without the lock."
    return Fix(sentence, run.spec.model_copy(update={"environment": "none"}), "Launch without the lock")


def _of_memory(run: RunView) -> Fix | None:
    if run.state != State.FAILED or run.reason != Reason.OUT_OF_MEMORY:
        return None
    return suggest_fix(run.spec, run.reason, run.message, targets.script_of(run.spec), memory_of(run))


def with_next_step(run: RunView) -> RunView:
    """Return the run with the fix as the first sentence of its next step."""
    fix = _of_memory(run)
    if fix is None:
        return run
    further = (run.next_step or "").partition(". ")[2]
    return replace(run, next_step=f"{fix.sentence} {further}".strip())


def _of_broken_loss(run: RunView, checkpoints: Sequence[CheckpointView]) -> Fix | None:
    """Suggest a launch from the last checkpoint before the loss broke, with a lower learning rate."""
    since, lr = run.loss_not_finite_since, run.spec.lr
    if since is None or run.last_loss is None:
        return None
    before = last_good(run, checkpoints)
    changes: dict[str, Any] = {"lr": lr * LOWER_LR} if lr else {}
    rate, lower = formats.learning_rate(lr), formats.learning_rate(lr and lr * LOWER_LR)
    steps = [f"lr {lower}"] if lr else []
    phrases = [f"with the learning rate at a tenth ({rate} → {lower})"] if lr else []
    if before is not None:
        changes["resume"] = reference(run, before, checkpoints)
        steps.insert(0, f"from step {before.step}")
        phrases.insert(0, f"from the checkpoint of step {before.step}")
    sentence = f"The loss is {formats.not_finite_in_words(run.last_loss, since)}; progress since then is lost."
    if not changes:
        return Fix(f"{sentence} Launch it again with a lower learning rate.")
    spec = RunSpec.model_validate(run.spec.model_dump() | changes)
    label = f"Launch again {'' if before else 'with '}{', '.join(steps)}"
    return Fix(f"{sentence} Launch it again {', '.join(phrases)}.", spec, label)


def launch_path(run_id: str) -> str:
    """Return the URL path of the launch form with the fix of a run filled in."""
    return f"/launch?from={run_id}&fix=1"


def split(batch: int, accumulate: int, most: int | None = None) -> tuple[int, int]:
    """Return a batch of at most `most` (half of it by default), and the accumulation that keeps their product.

    Where only a far smaller batch would keep it exactly, the largest keeps it approximately."""
    product, largest = batch * accumulate, most or batch // 2
    divisor = next(size for size in range(largest, 0, -1) if product % size == 0)
    return (divisor, product // divisor) if divisor * 2 >= largest else (largest, round(product / largest))


def _smaller_batch(wiring: Wiring, batch: int, unit: str, fits: int | None) -> Fix:
    """Suggest the batch that fits by estimate, or half of it where nothing shows that."""
    before = wiring.value("accumulate") or wiring.spec.accumulate
    is_estimated = fits is not None and fits < batch
    smaller, accumulate = split(batch, before, fits if is_estimated else None)
    wiring.set("batch_size", smaller)
    wiring.set("accumulate", accumulate)
    ranks = wiring.spec.world_size
    old, new = batch * before * ranks, smaller * accumulate * ranks
    verb = "Halve" if smaller * 2 == batch else "Lower"
    step = f"{verb} the batch per {unit}: {batch} → {smaller}, accumulation {before} → {accumulate}"
    step += f" (by estimate at most {fits} fit)" if is_estimated else ""
    stays = f"the global batch {'stays' if old == new else 'becomes'} {new}{'' if old == new else f' instead of {old}'}"
    label = f"Launch with batch {smaller} × accumulate {accumulate}"
    if wiring.can_set("accumulate"):
        return Fix(f"{step}; {stays}.", wiring.changed(), label)
    warning = f"if the script accumulates: no option of it is known for this, but RANKZERO_ACCUMULATE is {accumulate}"
    return Fix(f"{step}; {stays} {warning}.", wiring.changed(), label)


def _without_batch(wiring: Wiring, unit: str, batch: int) -> Fix:
    """Suggest a fix where a batch of 1 is too large: half precision, then sharded parameters."""
    spec = wiring.spec
    too_large = f"By estimate not even one sample fits beside the model on its {unit}"
    already = f"The batch per {unit} is already 1" if batch == 1 else too_large
    if spec.precision == "fp32" and unit == "GPU" and wiring.reaches("precision"):
        wiring.set("precision", "bf16")
        return Fix(f"{already}: bf16 halves the activations.", wiring.changed(), "Launch with bf16")
    if spec.strategy == "ddp" and spec.world_size > 1 and wiring.reaches("strategy"):
        wiring.set("strategy", "fsdp")
        text = f"{already}: fsdp spreads the parameters and the optimizer over the {spec.world_size} ranks."
        return Fix(text, wiring.changed(), "Launch with fsdp")
    return Fix(
        f"{already}: use bf16, fsdp over more GPUs, activation checkpointing, shorter inputs or a smaller model."
    )


# Resume a run with changes: a new run from one of its checkpoints, with another learning rate or length.

LENGTHS = ("epochs", "max_steps")


def last_good(run: RunView, checkpoints: Sequence[CheckpointView]) -> CheckpointView | None:
    """Return the last complete checkpoint from before the loss broke; None without any, or while it is finite."""
    since = run.loss_not_finite_since
    saved = [checkpoint for checkpoint in checkpoints if checkpoint.complete and checkpoint.merged_from is None]
    whole = [checkpoint for checkpoint in saved if not checkpoint.is_part]
    named = [one for one in whole if one.step is not None and not one.step_is_inferred]
    usable = [one for one in named if since is not None and (one.step or 0) < since]
    return max(usable, key=lambda checkpoint: (checkpoint.step or 0, checkpoint.created_at), default=None)


def reference(run: RunView, checkpoint: CheckpointView, checkpoints: Sequence[CheckpointView]) -> str:
    """Return RUN:CHECKPOINT as a spec names it: by its name, or its id where the name is not unique."""
    is_alone = sum(other.name == checkpoint.name for other in checkpoints) == 1
    return f"{run.id}:{checkpoint.name if is_alone else checkpoint.id}"


def current(spec: RunSpec) -> dict[str, float | None]:
    """Return the learning rate and lengths that can be changed, with what the run has; None where that is unknown."""
    wiring = Wiring(spec, targets.script_of(spec))
    values = {"lr": wiring.rate(), **{name: wiring.value(name) for name in LENGTHS}}
    return {name: value for name, value in values.items() if wiring.can_set(name)}


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
