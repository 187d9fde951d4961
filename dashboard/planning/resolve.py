"""Check a spec and make it complete, in ordered steps: the one place where a person's spec is changed."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from dashboard.paths import is_visible_folder
from dashboard.planning import environments, interpreters
from dashboard.planning.launch_warnings import launch_warnings
from dashboard.planning.passing import not_passed, passed, passes
from dashboard.script_reader import command
from dashboard.script_reader.options import Option
from dashboard.script_reader.proposals import is_whole_batch, option_for
from dashboard.script_reader.reading import Script, read_script
from dashboard.script_reader.source import UnreadableScript
from dashboard.script_reader.targets import script_or_problem
from dashboard.snapshots.code_packing import PackedCode, check_code_of
from dashboard.snapshots.git_address import CodeRefused, is_git_address
from db.slurm.slurm_jobs import GATEWAY
from domain.choices import RECIPES
from domain.launch import plan
from domain.masking.masking import MASK, masked_args, masked_env
from domain.requests.errors import InvalidRequest
from domain.scheduling.fit import Fit, devices_per_node, fit
from domain.scheduling.models import Allocation, Kind, NodeState, Pools, ResourceRequest
from domain.spec import RunSpec
from domain.views import NodeView


def resolve(spec: RunSpec, cluster: ClusterNodes, code: PackedCode | None = None) -> Resolved:
    """Return the spec with its open values filled in; the form, the API, previews and launches use this alike."""
    submitted, script = spec, _script(spec, code)
    situation = Situation(cluster, script, code)
    for step in STEPS:
        spec = spec.model_copy(update=dict(step(spec, situation)))
    return Resolved(submitted, spec, cluster, script)


def _script(spec: RunSpec, code: PackedCode | None) -> Script | UnreadableScript:
    """Read the script of a spec: of a clone in its stored code, else where its path is."""
    if code and is_git_address(spec.target):
        spec = spec.model_copy(update=_stored(code))
    return script_or_problem(spec)


def _stored(code: PackedCode) -> Changes:
    return {"snapshot": code.packed.sha256, "entry": code.entry}


MOST_COMMANDS = 64
"""Commands in a preview; those of further nodes differ only in the rank."""
Changes = Mapping[str, object]


class ClusterNodes:
    """All registered nodes at one moment, read when a step needs them: many launches need none."""

    def __init__(self, read: Callable[[], Sequence[NodeView]] = tuple) -> None:
        self._read = read

    @cached_property
    def nodes(self) -> Sequence[NodeView]:
        """The nodes as people see them."""
        return self._read()

    @cached_property
    def states(self) -> list[NodeState]:
        """The nodes as the scheduler sees them."""
        return [_state(node) for node in self.nodes]

    def eligible(self, spec: RunSpec) -> list[NodeState]:
        """Return the nodes with the requested names, labels and kind of device."""
        pools = Pools(self.states)
        return [pools.nodes[index] for index in pools.of(ResourceRequest.of(spec)).members]

    def device_kind(self, spec: RunSpec) -> Kind:
        """Return the kind of device that the run would get."""
        return next((node.kind for node in self.eligible(spec)), "cpu")

    @property
    def has_gpus(self) -> bool:
        """Whether a connected node has a GPU; also true where no node is connected."""
        online = [node for node in self.nodes if node.state == "alive"]
        return {device.kind for node in online for device in node.devices} != {"cpu"}

    @property
    def gateways(self) -> list[dict[str, Any]]:
        """The facts that the Slurm gateways report: their paths and partitions."""
        return [node.info.get("slurm") or {} for node in self.nodes if node.pool == GATEWAY]

    @property
    def shares_disk(self) -> bool:
        """Whether a worker may run on this machine and see the same paths."""
        return not self.nodes or any(node.hostname == socket.gethostname() for node in self.nodes)


@dataclass(frozen=True)
class Situation:
    """The facts that the steps use beside the spec."""

    cluster: ClusterNodes
    script: Script | UnreadableScript
    code: PackedCode | None
    """The code as it was stored for a launch; None before."""


def _number_of_devices(spec: RunSpec, situation: Situation) -> Changes:
    if spec.gpus_per_node is not None:  # then the nodes need not be read
        return {}
    return {"gpus_per_node": devices_per_node(spec, situation.cluster.states)}


def _batch_size_and_rate(spec: RunSpec, situation: Situation) -> Changes:
    """The recipe's own batch size and learning rate; of a script, only a rate that a scaling rule needs."""
    if spec.target not in RECIPES:
        return _rate_to_scale(spec, situation.script)
    defaults = {option.name: option.default for option in recipe_options(spec.target)}
    return {name: defaults.get(name) for name in ("batch_size", "lr") if getattr(spec, name) is None}


def _arguments(spec: RunSpec, situation: Situation) -> Changes:
    """The arguments with those that pass the spec's values to the script's own options."""
    return passed(spec, situation.script) if isinstance(situation.script, Script) else {}


def _python(spec: RunSpec, situation: Situation) -> Changes:
    if (
        spec.python or spec.snapshot or spec.environment != "auto" or spec.target in RECIPES
    ):  # then the nodes need not be read
        return {}
    python = interpreters.python_to_use(spec, situation.cluster.nodes)
    return {"python": str(python)} if python else {}


def _code(spec: RunSpec, situation: Situation) -> Changes:
    """The stored snapshot and the entry in it; before a launch the entry, `<entry>` where a folder's is not named."""
    if situation.code:
        return _stored(situation.code)
    if spec.entry or spec.module or spec.workdir or spec.target in RECIPES:
        return {}
    has_many_files = is_visible_folder(spec.target) or is_git_address(spec.target)
    return {"entry": "<entry>" if has_many_files else PurePosixPath(spec.target).name}


def recipe_options(name: str) -> list[Option]:
    """Return the options of a recipe: its own, then those that all recipes share."""
    path = plan.recipe_path(name)
    return read_script(path.parent, path.name).options


def _rate_to_scale(spec: RunSpec, script: Script | UnreadableScript) -> dict[str, float]:
    """Return the script's own learning rate, if a scaling rule needs it and it can be passed."""
    if spec.lr is not None or spec.lr_scaling == "none" or not isinstance(script, Script):
        return {}
    option = option_for("lr", script.options) if passes("lr", spec, script) else None
    is_number = option is not None and isinstance(option.default, int | float) and option.default > 0
    return {"lr": float(option.default)} if option and is_number else {}


STEPS: tuple[Callable[[RunSpec, Situation], Changes], ...] = (
    _number_of_devices,
    _batch_size_and_rate,
    _arguments,
    _python,
    _code,
)


@dataclass(frozen=True)
class Command:
    """The command of one node."""

    node_rank: int
    argv: list[str]
    env: dict[str, str]


@dataclass(frozen=True)
class Resolved:
    """A complete spec, and what follows from it."""

    submitted: RunSpec
    """The spec as it was submitted."""
    spec: RunSpec
    cluster: ClusterNodes
    script: Script | UnreadableScript

    @cached_property
    def fit(self) -> Fit:
        """Whether the registered nodes can hold it."""
        return fit(self.spec, self.cluster.states)

    @cached_property
    def commands(self) -> list[Command]:
        """The commands of the first nodes, with secrets masked."""
        kind = self.cluster.device_kind(self.spec)
        python, torchrun = interpreters.programs(self.spec.python)
        commands, hidden = [], dict.fromkeys(self.spec.secrets, MASK)
        for rank in range(min(self.spec.nodes, MOST_COMMANDS)):
            context = plan.TaskContext(
                node_rank=rank, device_kind=kind, python=python, torchrun=torchrun,
                resume_path=plan.resume_placeholder(self.spec),
            )  # fmt: skip
            launch = plan.plan(self.spec, context)
            commands.append(Command(rank, masked_args(launch.argv), masked_env(launch.env) | hidden))
        return commands

    @cached_property
    def warnings(self) -> list[str]:
        """Reasons to think again, one sentence each."""
        fit_warning, python = self.fit.warning, interpreters.advice(self.spec)
        warnings = [
            *([fit_warning] if fit_warning else []),
            *self.not_passed,
            *launch_warnings(self.spec, self.script),
            *([python] if python else []),
        ]
        if self.cluster.nodes and self.spec.nodes > MOST_COMMANDS:
            warnings.append(f"Only the commands of the first {MOST_COMMANDS} nodes are shown.")
        return warnings

    @cached_property
    def not_passed(self) -> list[str]:
        """The values of the submitted spec that do not arrive at the script, one sentence each."""
        return [] if self.spec.target in RECIPES else not_passed(self.submitted, self.script)

    @cached_property
    def refusal(self) -> InvalidRequest | None:
        """Why the target cannot be launched; None where it can, as far as that is seen here."""
        try:
            check_target(self.submitted, self.cluster)
        except InvalidRequest as error:
            return error
        return None

    def figures(self, spec: RunSpec | None = None) -> RunSpec:
        """Return the spec, or one of its sizes, with the batch size and rate that the script sets, for display."""
        spec = spec or self.spec
        return spec.model_copy(update=_own_figures(spec, self.script))


def _own_figures(spec: RunSpec, script: Script | UnreadableScript) -> dict[str, float]:
    """Return the script's own batch size and rate where it trains with them, for the figures of a preview only."""
    if isinstance(script, UnreadableScript):
        return {}
    batch_size, lr = _own_number(spec, "batch_size", script), _own_number(spec, "lr", script)
    figures: dict[str, float] = {}
    if type(batch_size) is int and not is_whole_batch(script.proposals):
        figures["batch_size"] = batch_size
    if lr is not None and spec.lr_scaling == "none":
        figures["lr"] = float(lr)
    return figures


def _own_number(spec: RunSpec, field: str, script: Script) -> int | float | None:
    """Return the script's default or constant, unless the spec or its arguments set the value."""
    option = option_for(field, script.options)
    if getattr(spec, field) is not None:
        return None
    if option is None:
        return script.constants.get(field)
    is_given = option.name in command.named(script.options, spec.args) and not spec.hands_over(field)
    is_number = type(option.default) in (int, float) and option.default > 0
    return option.default if is_number and not is_given else None


def check_target(spec: RunSpec, cluster: ClusterNodes) -> None:
    """Raise InvalidRequest where the target, its entry or its module cannot be launched."""
    if spec.target not in RECIPES:
        check_code_of(spec, lambda: cluster.shares_disk)
    elif spec.entry or spec.module or spec.snapshot:
        raise CodeRefused("target", "a recipe takes no entry, module or snapshot; name a folder.")
    else:
        environments.of_recipe(spec.environment)


def _state(node: NodeView) -> NodeState:
    return NodeState(
        node_id=node.id,
        name=node.name,
        free=tuple(d.id for d in node.devices if not d.has_run and not d.foreign and d.quarantine is None),
        allocations=tuple(Allocation(d.run_id or "", (d.id,)) for d in node.devices if d.has_run),
        foreign=sum(d.foreign for d in node.devices),
        quarantined=sum(not d.has_run and not d.foreign and d.quarantine is not None for d in node.devices),
        in_quarantine=node.quarantine is not None,
        kind="cuda" if node.devices and node.devices[0].kind == "cuda" else "cpu",
        labels=node.labels,
        contact=node.state,
        draining=node.draining,
        pool=node.pool,
        protocol=node.protocol,
    )
