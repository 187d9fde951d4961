"""Preview a run before it is launched: its figures, the command of every node, and warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dashboard.planning.resolve import ClusterNodes, Command, Resolved, recipe_options
from dashboard.script_reader.options import Option
from domain.choices import RECIPES
from domain.masking.masking import masked_spec
from domain.scheduling import resizing
from domain.slurm import GatewayPaths, Submission, submission
from domain.spec import RunSpec


@dataclass(frozen=True)
class Preview:
    """A run as it would be started."""

    lr: float | None
    global_batch_size: int | None
    world_size: int
    commands: list[Command]
    warnings: list[str]
    not_passed: list[str]
    """Those of the warnings that name a value that does not arrive at the script."""


@dataclass(frozen=True)
class Size:
    """The figures of an attempt on `nodes` nodes; `lr` after scaling."""

    nodes: int
    world_size: int
    batch_size: int | None
    accumulate: int
    global_batch_size: int | None
    lr: float | None


@dataclass(frozen=True)
class ElasticPreview(Preview):
    """A run that may start with fewer nodes; the other fields are those of all nodes."""

    sizes: list[Size]
    """The possible sizes, fewest nodes first."""


@dataclass(frozen=True)
class SlurmPreview(Preview):
    """A run that Slurm schedules; the commands are those on the nodes of its job."""

    job: Submission


@dataclass(frozen=True)
class Recipe:
    """A recipe that ships with Rankzero, with its options."""

    name: str
    options: list[Option]


def preview(resolved: Resolved, code_is_sent: bool = False, problem: str | None = None) -> Preview:
    """Describe a run without starting it; a request beyond the nodes' capacity is only a warning, and so is `problem`:
    that it names what is not there.

    `code_is_sent`: the client uploads the code, so it does not matter whether it is on this machine."""
    spec, refusal = resolved.spec, None if code_is_sent else resolved.refusal
    planned = Preview(
        lr=spec.scaled_lr,
        global_batch_size=resolved.figures().global_batch_size,
        world_size=spec.world_size,
        commands=resolved.commands,
        warnings=[*resolved.warnings, *([str(refusal)] if refusal else []), *([problem] if problem else [])],
        not_passed=resolved.not_passed,
    )
    if spec.pool == "slurm":
        return SlurmPreview(**vars(planned), job=slurm_job(spec, resolved.cluster))
    return ElasticPreview(**vars(planned), sizes=_sizes(resolved)) if spec.elastic else planned


def recipes() -> list[Recipe]:
    """Return the recipes that ship with Rankzero."""
    return [Recipe(name, recipe_options(name)) for name in RECIPES]


def slurm_job(spec: RunSpec, cluster: ClusterNodes) -> Submission:
    """Return the job that the gateway would submit, with placeholder paths where no gateway has joined."""
    gateway: dict[str, Any] = next(iter(cluster.gateways), {})
    names = ("server", "data", "output", "python", "training_python")
    paths = gateway.get("place") or {name: f"<{name}>" for name in names}
    partitions = gateway.get("partitions", [])
    default = next((partition["name"] for partition in partitions if partition["is_default"]), None)
    chosen = spec.slurm.partition or default
    has_gpus = any(partition["gpus_per_node"] > 0 for partition in partitions if partition["name"] == chosen)
    return submission(masked_spec(spec), "<run>", 1, 0, GatewayPaths(**paths), has_gpus)


def _sizes(resolved: Resolved) -> list[Size]:
    return [
        Size(
            spec.nodes, spec.world_size, spec.batch_size, spec.accumulate,
            resolved.figures(spec).global_batch_size, spec.scaled_lr,
        )
        for spec in resizing.sizes(resolved.spec)
    ]  # fmt: skip
