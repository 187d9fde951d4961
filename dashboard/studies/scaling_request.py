"""Turn a request for a scaling study into the specs of its sizes, or refuse it with the rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from dashboard.planning.passing import passes
from dashboard.planning.resolve import Resolved
from dashboard.script_reader.reading import Script
from dashboard.service.service import Service
from db.studies import studies
from domain.choices import RECIPES
from domain.launch.plan import program_name
from domain.requests.errors import InvalidRequest
from domain.scaling.batches import scaled_rate
from domain.scaling.measurement import TIMES_AS_LONG, WARMUP_STEPS
from domain.scaling.plan import DEFAULT_SIZES, Layout, Mode, PlannedPoint, ScalingPlan, layout, run_spec
from domain.spec import RunSpec
from domain.text.formats import as_list, count, plural

OPEN_SIZE = ("nodes", "gpus_per_node", "elastic", "min_nodes")
"""Fields of the spec that each size of a study sets."""


class StudyRequest(BaseModel):
    """A scaling study as a person requests it."""

    model_config = ConfigDict(extra="forbid")

    spec: RunSpec
    """`gpus_per_node` is the most devices of a node that it uses."""
    gpus: Annotated[list[Annotated[int, Field(ge=1, le=65536)]], Field(min_length=1, max_length=32)] | None = None
    """Numbers of devices; None: 1, 2, 4 and 8, as far as the nodes have them."""
    global_batches: (
        Annotated[list[Annotated[int, Field(ge=1, le=1_000_000_000)]], Field(min_length=1, max_length=16)] | None
    ) = None
    """Global batches that are each measured on every number of devices."""
    mode: Mode | None = None
    """weak: the batch of each rank stays, the default; strong: the global batch stays, as each of `global_batches`."""
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """Steps of each run that are measured, after the warm-up; with several global batches, of the largest one."""


def create(service: Service, request: StudyRequest, like: str | None = None) -> str:
    """Store the study and its code; return its id. Raises InvalidRequest."""
    _check_study(request)
    with service.resolved(request.spec, like) as resolved:
        sizes = _layouts(request.gpus, _capacities(resolved))
        open_size = {name: getattr(resolved.submitted, name) for name in OPEN_SIZE}
        base = resolved.spec.model_copy(update=open_size)
        points = _points(request, resolved, base, sizes, resolved.cluster.device_kind(base))
        for point in points:
            run_spec(base, point)
        mode: Mode = "strong" if request.global_batches else request.mode or "weak"
        plan = ScalingPlan(mode=mode, steps=request.steps, points=points)
        return studies.create(service.store, base, plan, service.clock())


def _points(
    request: StudyRequest, resolved: Resolved, base: RunSpec, sizes: Sequence[Layout], kind: str
) -> list[PlannedPoint]:
    """Return each size, in strong scaling with each global batch, as the store keeps it."""
    is_strong = request.global_batches or request.mode == "strong"
    batches = strong_batches(request.global_batches, resolved, sizes) if is_strong else []
    batch_choices: Sequence[int | None] = batches or [None]
    points = [
        PlannedPoint(
            devices=size.devices, nodes=size.nodes, strategy=strategy, kind=kind, changes={},
            **(of_batch(batch, batches, request.steps, resolved) if batch else {}),
        )
        for batch in batch_choices
        for size, strategy in _compared(sizes, base, kind, len(batches))
    ]  # fmt: skip
    changes = [_changes(point, point.steps or request.steps, resolved, len(batches)) for point in points]
    return [one.model_copy(update={"changes": own}) for one, own in zip(points, changes, strict=True)]


def _check_study(request: StudyRequest) -> None:
    spec = request.spec
    if request.global_batches and request.mode == "weak":
        raise InvalidRequest(
            "mode",
            "mode: each of several global batches stays on more devices, which is strong; leave weak out.",
        )
    if not spec.probe:
        raise InvalidRequest("probe", "probe: a scaling study is measured by the probe; switch it on.")
    if spec.nodes > 1:
        raise InvalidRequest(
            "nodes",
            "nodes: a scaling study chooses the nodes itself; name the numbers of devices with --gpus.",
        )
    if spec.strategy == "single":
        raise InvalidRequest(
            "strategy",
            "strategy: a single process does not use more devices; choose ddp, fsdp or dp to compare sizes.",
        )
    if spec.resume:
        raise InvalidRequest("resume", "resume: a scaling study begins at the first step; leave it out.")


def _capacities(resolved: Resolved) -> list[int]:
    """Devices of each eligible node, at most `gpus_per_node`; a Slurm cluster has as many as are requested."""
    spec = resolved.submitted
    most = spec.gpus_per_node
    if spec.pool == "slurm":
        return [most or DEFAULT_SIZES[-1]] * 64
    sizes = [node.size for node in resolved.cluster.eligible(spec) if not node.pool]
    return [min(size, most or size) for size in sizes]


def _layouts(gpus: Sequence[int] | None, capacities: Sequence[int]) -> list[Layout]:
    numbers = sorted(set(gpus or DEFAULT_SIZES))
    sizes = [(devices, layout(devices, capacities)) for devices in numbers]
    too_large = [devices for devices, size in sizes if size is None]
    if too_large and (gpus or len(too_large) == len(numbers)):
        nodes = as_list((plural(size, "slot") for size in capacities), 8) or "none"
        raise InvalidRequest(
            "gpus",
            f"gpus: {too_large[0]} devices must lie on one node, or equally many on each of several; the eligible "
            f"nodes have {nodes}. Name smaller numbers with --gpus, or start another worker.",
        )
    return [size for _, size in sizes if size is not None]


def _compared(sizes: Sequence[Layout], base: RunSpec, kind: str, batches: int) -> list[tuple[Layout, str]]:
    """Each size with its strategy; for recipes on GPUs also a single process, and DataParallel on one node, unless
    several global batches are compared."""
    compared: list[tuple[Layout, str]] = [(size, base.strategy) for size in sizes]
    if kind != "cuda" or base.strategy != "ddp" or base.target not in RECIPES or batches > 1:
        return compared
    single = [(size, "single") for size in sizes if size.devices == 1]
    several = [(size, "dp") for size in sizes if size.nodes == 1 and size.devices > 1]
    return [*single, *compared, *several]


def _changes(point: PlannedPoint, steps: int, resolved: Resolved, batches: int) -> dict[str, Any]:
    """Return the fields of the spec for a point of which `steps` are measured."""
    spec, batch = resolved.spec, point.global_batch_size
    changes: dict[str, Any] = {
        "name": f"{program_name(spec)} on {point.devices}"
        + (f", batch {batch}" if batches > 1 else "")
        + (f" ({point.strategy})" if point.strategy != spec.strategy else ""),
        "nodes": point.nodes,
        "gpus_per_node": point.devices // point.nodes,
        "elastic": False,
        "min_nodes": None,
        "max_restarts": 0,
        "wait_for_nodes": False,
        "on_hang": "end",
        "strategy": point.strategy,
    }
    if point.strategy != spec.strategy:
        changes["launcher"] = None
    changes |= _length(resolved, steps)
    if batch is not None:
        changes["batch_size"] = batch // (point.devices * spec.accumulate)
    if point.lr is not None:
        changes |= {"lr": point.lr, "lr_scaling": "none"}
    return changes


def _length(resolved: Resolved, steps: int) -> dict[str, int]:
    """Return the lengths that a run takes from its spec, so long that it is stopped when enough is measured."""
    most = TIMES_AS_LONG * (WARMUP_STEPS + steps)
    epochs = max(most, resolved.spec.epochs or 0)  # an epoch has at least a step
    return {name: length for name, length in (("max_steps", most), ("epochs", epochs)) if takes(resolved, name)}


# The global batches of a study, each with its steps and learning rate, or a refusal with the rule.


def strong_batches(requested: Sequence[int] | None, resolved: Resolved, sizes: Sequence[Layout]) -> list[int]:
    """Return the global batches in ascending order, by default that of the smallest size. Raises InvalidRequest."""
    spec = resolved.spec
    if not takes(resolved, "batch_size") or not (requested or spec.batch_size):
        raise InvalidRequest(
            "batch_size",
            "batch_size: the study divides a global batch among the ranks, so the script must take it: give "
            "--batch-size and hand it over, for example with -- --batch-size '{batch_size}'.",
        )
    of_smallest = (spec.batch_size or 1) * spec.accumulate * sizes[0].devices
    batches = sorted(set(requested or [of_smallest]))
    for size in sizes:
        _check_divided(batches, size.devices, spec.accumulate, "global_batches" if requested else "batch_size")
    return batches


def of_batch(batch: int, batches: Sequence[int], steps: int, resolved: Resolved) -> dict[str, Any]:
    """Return what is stored of a point's global batch: `steps` are those of the largest one."""
    rate = scaled_rate(resolved.spec, batch, batches) if takes(resolved, "lr") else None
    return {"global_batch_size": batch, "lr": rate, "steps": _steps(batch, max(batches), steps)}


def takes(resolved: Resolved, field: str) -> bool:
    """Whether a field of the spec reaches the program: a recipe's, by a placeholder, a variable or an option."""
    spec, script = resolved.spec, resolved.script
    if isinstance(script, Script):
        return passes(field, spec, script)
    return spec.target in RECIPES or spec.hands_over(field)


def _steps(batch: int, largest: int, steps: int) -> int:
    """Steps after the warm-up with which a run has seen as many samples as one with the largest batch."""
    return math.ceil((WARMUP_STEPS + steps) * largest / batch) - WARMUP_STEPS


def _check_divided(batches: Sequence[int], ranks: int, accumulate: int, field: str) -> None:
    for batch in batches:
        if batch % (ranks * accumulate):
            steps = f" and {accumulate} accumulation steps" if accumulate > 1 else ""
            raise InvalidRequest(
                field,
                f"{field}: the global batch of {count(batch)} cannot be divided among {ranks} ranks{steps}; "
                f"choose a multiple of {ranks * accumulate}.",
            )
