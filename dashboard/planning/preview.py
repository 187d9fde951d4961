"""Preview a run before it is launched: its figures, the command of every node, and warnings."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dashboard.planning import interpreters, launch_warnings, script_defaults
from dashboard.planning.eligible_nodes import nodes_for, with_devices_counted
from dashboard.planning.slurm_preview import job_of
from dashboard.script_reader import arguments
from dashboard.script_reader.arguments import Option
from dashboard.snapshots.bringing import CodeRequest, check
from dashboard.snapshots.git_address import check_address, is_git_address
from dashboard.snapshots.refusal import CodeRefused
from domain.errors import InvalidRequest
from domain.launch import plan
from domain.launch.slurm_script import Submission
from domain.masking import masked_args, masked_env, masked_spec
from domain.scheduling import resizing
from domain.spec import RunSpec
from domain.views import NodeView

MOST_COMMANDS = 64
"""Commands in a preview; those of further nodes differ only in the rank."""


@dataclass(frozen=True)
class Command:
    """The command of one node."""

    node_rank: int
    argv: list[str]
    env: dict[str, str]


@dataclass(frozen=True)
class Preview:
    """A run as it would be started."""

    lr: float | None
    global_batch_size: int | None
    world_size: int
    commands: list[Command]
    warnings: list[str]


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


def preview(spec: RunSpec, nodes: Sequence[NodeView], is_brought: bool = False) -> Preview:
    """Plan a run without starting it; a request beyond the nodes' capacity is only a warning.

    `is_brought`: the client uploads the code, so it is not looked for on this machine."""
    spec = with_recipe_defaults(with_devices_counted(spec, nodes))
    spec = interpreters.with_project_python(spec, nodes)
    python, torchrun = interpreters.programs(spec.python)
    kind = next((device.kind for node in nodes_for(spec, nodes) for device in node.devices), "cpu")
    node_ranks = range(min(spec.nodes, MOST_COMMANDS))
    plans = [
        plan.plan(_with_entry(spec), node_rank=rank, device_kind=kind, python=python, torchrun=torchrun)
        for rank in node_ranks
    ]
    planned = Preview(
        lr=spec.scaled_lr,
        global_batch_size=script_defaults.with_script_figures(spec).global_batch_size,
        world_size=spec.world_size,
        commands=[
            Command(r, masked_args(p.argv), masked_env(p.env)) for r, p in zip(node_ranks, plans, strict=True)
        ],
        warnings=_warnings(spec, nodes, is_brought),
    )
    if spec.pool == "slurm":
        return SlurmPreview(**vars(planned), job=job_of(masked_spec(spec), nodes))
    return ElasticPreview(**vars(planned), sizes=_sizes(spec)) if spec.elastic else planned


def _sizes(spec: RunSpec) -> list[Size]:
    return [
        Size(
            now.nodes, now.world_size, now.batch_size, now.accumulate,
            script_defaults.with_script_figures(now).global_batch_size, now.scaled_lr,
        )
        for now in resizing.sizes(spec)
    ]  # fmt: skip


def recipes() -> list[Recipe]:
    """Return the recipes that ship with Rankzero."""
    return [Recipe(name, recipe_options(name)) for name in plan.recipe_names()]


def recipe_options(name: str) -> list[Option]:
    """Return the options of a recipe: its own, then those that all recipes share."""
    return arguments.read_options(plan.recipe_path(name))


def with_recipe_defaults(spec: RunSpec) -> RunSpec:
    """Return the spec with the recipe's default batch size and learning rate, so that the global batch is known.

    For a script, the learning rate is filled in only where a scaling rule needs it."""
    if spec.target not in plan.recipe_names():
        return script_defaults.with_script_rate(spec)
    options = recipe_options(spec.target)
    batch_size, lr = arguments.default_of(options, "batch_size"), arguments.default_of(options, "lr")
    chosen = {
        "batch_size": batch_size if spec.batch_size is None else spec.batch_size,
        "lr": lr if spec.lr is None else spec.lr,
    }
    return spec.model_copy(update=chosen)


def check_target(spec: RunSpec, nodes: Sequence[NodeView]) -> None:
    """Check a target as far as that is cheap: nothing is cloned or packed. Raises InvalidRequest."""
    if spec.target in plan.recipe_names():
        if spec.entry or spec.module or spec.snapshot:
            raise InvalidRequest(
                "target", "target: a recipe takes no entry, module or snapshot; name a folder."
            )
    elif spec.snapshot is None:
        _check_path_or_address(spec, nodes)
    elif is_git_address(spec.target):
        _check_address(spec.target)


def _check_path_or_address(spec: RunSpec, nodes: Sequence[NodeView]) -> None:
    is_address = is_git_address(spec.target)
    if not is_address and "/" not in spec.target and not spec.target.endswith(".py"):
        recipes = ", ".join(plan.recipe_names())
        raise InvalidRequest(
            "target",
            f"target: there is no recipe {spec.target!r} (known: {recipes}); "
            "a script is named by its absolute path.",
        )
    if not is_address and not spec.target.startswith("/"):
        raise InvalidRequest("target", f"target must be an absolute path, got {spec.target!r}.")
    if spec.workdir and is_address:
        raise InvalidRequest("workdir", "workdir: a git address cannot run in place; remove the workdir.")
    if spec.workdir:
        if _shares_this_disk(nodes):
            _check_on_disk(spec)
        return
    if not is_address and not _exists(spec.target):
        raise InvalidRequest(
            "target",
            f"target: {spec.target!r} does not exist on the dashboard's machine. Launch it with `rankzero "
            "launch` where it is, or run it in place on the nodes with a workdir.",
        )
    try:
        check(CodeRequest(spec.target, spec.entry, spec.module, spec.ref))
    except CodeRefused as error:
        raise InvalidRequest(error.field, str(error)) from error


def _check_address(url: str) -> None:
    """Check a git address, also of uploaded code: it is stored and shown. Raises InvalidRequest."""
    try:
        check_address(url)
    except CodeRefused as error:
        raise InvalidRequest(error.field, str(error)) from error


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a name that is too long
        return False


def _with_entry(spec: RunSpec) -> RunSpec:
    """Return the spec with the entry inside its snapshot; `<entry>` where a folder's is not named yet."""
    if spec.entry or spec.module or spec.workdir or spec.target in plan.recipe_names():
        return spec
    is_script = not is_git_address(spec.target) and not (_exists(spec.target) and Path(spec.target).is_dir())
    return spec.model_copy(update={"entry": PurePosixPath(spec.target).name if is_script else "<entry>"})


def _check_on_disk(spec: RunSpec) -> None:
    target = Path(spec.target)
    if spec.entry is not None and target.is_dir() and not (target / spec.entry).is_file():
        raise InvalidRequest("entry", f"entry: there is no file {spec.entry!r} in {spec.target}.")
    if spec.entry is None and spec.module is None and target.is_dir():
        raise InvalidRequest(
            "entry", f"entry: {spec.target} is a folder; name the file or module to start in it."
        )
    if not target.exists():
        raise InvalidRequest("target", f"target: the script {spec.target!r} does not exist.")


def _shares_this_disk(nodes: Sequence[NodeView]) -> bool:
    """Whether a worker may run on this machine and see the same paths."""
    return not nodes or any(node.hostname == socket.gethostname() for node in nodes)


def capacity(spec: RunSpec, nodes: Sequence[NodeView]) -> list[str]:
    """Return warnings where the known nodes cannot hold the run now, or at all."""
    warnings: list[str] = []
    if spec.pool == "slurm":
        return warnings
    nodes = nodes_for(spec, nodes)
    per_node = spec.gpus_per_node or 1
    large_enough = [node for node in nodes if node.slots >= per_node]
    free = [node for node in nodes if node.free >= per_node and node.state == "alive"]
    fewest = spec.fewest_nodes if spec.elastic else spec.nodes
    requirement = f"{_count(fewest, 'node')} with {_count(per_node, 'slot')} each"
    if len(large_enough) < fewest:
        warnings.append(
            f"The run needs {requirement}; {len(large_enough)} of the known nodes have that many. It cannot start here."
        )
    elif len(free) < fewest:
        warnings.append(
            f"The run needs {requirement}; {len(free)} have them free now. It will wait in the queue."
        )
    return warnings


def _warnings(spec: RunSpec, nodes: Sequence[NodeView], is_brought: bool) -> list[str]:
    warnings = [*capacity(spec, nodes), *launch_warnings.launch_warnings(spec)]
    if advice := interpreters.advice(spec):
        warnings.append(advice)
    if len(nodes) and spec.nodes > MOST_COMMANDS:
        warnings.append(f"Only the commands of the first {MOST_COMMANDS} nodes are shown.")
    try:
        if not is_brought:
            check_target(spec, nodes)
    except InvalidRequest as error:
        warnings.append(str(error))
    return warnings


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
