"""Guess a script's launcher: torchrun, plain Python, or the old torch.distributed.launch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from dashboard.script_reader.options import Option
from dashboard.script_reader.source import ScriptProgram, SourceFile, keywords, value


def guess(program: ScriptProgram, options: list[Option]) -> Guess:
    """Return the launcher that fits the script according to its source."""
    evidence = _Evidence(program, options)
    result = (
        evidence.spawns()
        or evidence.lacks_local_rank()
        or evidence.joins()
        or evidence.data_parallel()
        or evidence.plain()
    )
    warnings = [*result.warnings, *_sets_variables(program, result), *_logs_nothing(program)]
    return replace(result, warnings=warnings)


RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
SPAWNERS = (
    "torch.multiprocessing.spawn", "torch.multiprocessing.start_processes", "torch.multiprocessing.spawn.spawn",
    "torch.distributed.launcher.api.elastic_launch", "torch.distributed.launcher.elastic_launch",
    "accelerate.notebook_launcher",
)  # fmt: skip
JOINERS = {
    "torch.distributed.init_process_group": "init_process_group",
    "torch.distributed.device_mesh.init_device_mesh": "init_device_mesh",
    "torch.distributed.init_device_mesh": "init_device_mesh",
    "accelerate.Accelerator": "Accelerator",
    "deepspeed.initialize": "deepspeed.initialize",
    "deepspeed.init_distributed": "deepspeed.init_distributed",
    "lightning.Fabric": "Fabric",
    "lightning.fabric.Fabric": "Fabric",
    "lightning_fabric.Fabric": "Fabric",
    "transformers.Trainer": "the Trainer of transformers",
    "transformers.Seq2SeqTrainer": "the Trainer of transformers",
    "trl.SFTTrainer": "the Trainer of trl",
    "trl.DPOTrainer": "the Trainer of trl",
    "trl.GRPOTrainer": "the Trainer of trl",
}
LIGHTNING = ("lightning", "pytorch_lightning")
OTHER_FRAMEWORKS = (
    "accelerate", "deepspeed", "lightning", "pytorch_lightning", "transformers", "trl", "composer", "mmengine",
    "mmcv", "detectron2", "ignite", "catalyst", "ultralytics", "fairseq", "megatron", "colossalai", "torchtune",
    "torchtitan", "ray", "horovod", "fairscale", "fastai", "torch.distributed",
)  # fmt: skip
OWN_DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Guess:
    """The launcher that seems to fit a script, and the reason."""

    launcher: Literal["torchrun", "python", "launch"]
    reason: str
    strategy: Literal["ddp", "single", "dp"] = "ddp"
    """The strategy that fits: single and dp are one process, started without torchrun."""
    is_certain: bool = True
    line: int | None = None
    devices: int | None = None
    """Processes per node that the script itself requires."""
    warnings: list[str] = field(default_factory=list)


class _Evidence:
    """The evidence in one program."""

    def __init__(self, program: ScriptProgram, options: list[Option]) -> None:
        self._program = program
        self._options = options
        self._reads = dict(_variables_read(program))

    def spawns(self) -> Guess | None:
        """Return a guess where the script starts its processes itself."""
        for source, call in self._program.calls():
            name = source.dotted(call.func)
            if name in SPAWNERS or (name.startswith("torch.multiprocessing.") and name.endswith(".spawn")):
                reason = f"It starts its processes itself: {ast.unparse(call.func)} on {_location(source, call)}."
                started, warnings = _started(source, call), self._only_with(source, call)
                return Guess("python", reason, line=call.lineno, devices=started, warnings=warnings)
            if _is_trainer(source, call) and _strategy(call) in ("ddp_spawn", "ddp_notebook", "ddp_fork"):
                evidence = f"strategy={_strategy(call)!r} on {_location(source, call)}"
                reason = f"Lightning starts the processes itself: {evidence}."
                return Guess("python", reason, line=call.lineno)
        return self._processes()

    def lacks_local_rank(self) -> Guess | None:
        """Return a guess where the script gets its rank from an argument only."""
        if "LOCAL_RANK" in self._reads or "RANK" in self._reads:
            return None
        option = next((o for o in self._options if o.name == "local_rank" and o.kind == "value"), None)
        if option is None or self._framework_joins():
            return None
        reason = f"It takes its rank as {option.flag} and never reads LOCAL_RANK: torch.distributed.launch gives it."
        return Guess("launch", reason)

    def joins(self) -> Guess | None:
        """Return a guess where the script joins ranks that torchrun starts."""
        for source, call in self._program.calls():
            if _is_trainer(source, call):
                reason = f"Lightning's Trainer ({_location(source, call)}) joins the ranks that torchrun starts."
                return Guess("torchrun", reason, line=call.lineno, devices=_fixed_devices(source, call))
        for variable in RANK_VARIABLES:
            if variable in self._reads:
                source, line = self._reads[variable]
                return Guess(
                    "torchrun",
                    f"It reads {variable} from the environment, {_line_of(source, line)}.",
                    line=line,
                )
        for source, call in self._program.calls():
            if (name := JOINERS.get(source.dotted(call.func))) is not None:
                reason = f"It joins the ranks with {name}, {_location(source, call)}."
                return Guess("torchrun", reason, line=call.lineno, warnings=_own_address(source, call))
        return None

    def data_parallel(self) -> Guess | None:
        """Return a guess where one process drives all GPUs."""
        for source, call in self._program.calls():
            if source.dotted(call.func) in ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel"):
                reason = f"One process drives all GPUs: DataParallel, {_location(source, call)}."
                return Guess("python", reason, "dp", line=call.lineno)
        return None

    def plain(self) -> Guess:
        """Return the guess for a script without distributed code."""
        imported = {name for source in self._program.sources for name in source.modules}
        framework = next((f for f in OTHER_FRAMEWORKS if any(_is_part(name, f) for name in imported)), None)
        if framework is not None:
            reason = f"It imports {framework}; torchrun starts most such scripts."
            return Guess("torchrun", reason, is_certain=False)
        read = " and ".join(source.name for source in self._program.sources[:3])
        return Guess("python", f"No distributed code in {read}: it runs as one process.", "single")

    def _processes(self) -> Guess | None:
        """Return a guess for `Process(target=…)` around init_process_group without a rank from the environment."""
        names = {source.dotted(call.func) for source, call in self._program.calls()}
        if "torch.distributed.init_process_group" not in names or "RANK" in self._reads:
            return None
        for source, call in self._program.calls():
            name = source.dotted(call.func)
            is_process = name in ("torch.multiprocessing.Process", "multiprocessing.Process")
            if is_process and "target" in keywords(call):
                return Guess("python", f"It starts its processes itself, {_location(source, call)}.", line=call.lineno)
        return None

    def _framework_joins(self) -> bool:
        joiners = {JOINERS.get(source.dotted(call.func)) for source, call in self._program.calls()}
        return any(name and name not in ("init_process_group", "init_device_mesh") for name in joiners)

    def _only_with(self, source: SourceFile, call: ast.Call) -> list[str]:
        """Return a warning where the processes are started only with a switch of the script."""
        switches = {o.name: o for o in self._options if o.kind == "switch" and o.on and o.default is not True}
        for node in source.nodes:
            if isinstance(node, ast.If) and any(
                call is inner for statement in node.body for inner in ast.walk(statement)
            ):
                test = node.test
                name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
                if name in switches:
                    return [f"It starts them only with {switches[name].on} ({_location(source, node)})."]
        return []


def _variables_read(program: ScriptProgram) -> Iterator[tuple[str, tuple[SourceFile, int]]]:
    """Yield the environment variables that are read and where, last first, so that the first occurrence wins."""
    for source in reversed(program.sources):
        for node in reversed(source.nodes):
            name = _variable(source, node)
            if name is not None:
                yield name, (source, getattr(node, "lineno", 0))


def _variable(source: SourceFile, node: ast.AST) -> str | None:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        if source.dotted(node.value) == "os.environ":
            return _constant(node.slice)
    elif isinstance(node, ast.Call) and source.dotted(node.func) in ("os.environ.get", "os.getenv"):
        return _constant(node.args[0]) if node.args else None
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return _constant(node.left) if source.dotted(node.comparators[0]) == "os.environ" else None
    return None


def _sets_variables(program: ScriptProgram, result: Guess) -> Iterator[str]:
    for source in program.sources:
        for node in source.nodes:
            if not isinstance(node, ast.Assign):
                continue
            for target in node.targets:
                if not isinstance(target, ast.Subscript) or source.dotted(target.value) != "os.environ":
                    continue
                name = _constant(target.slice)
                location = _location(source, node)
                if name == "MASTER_PORT" and value(node.value, source.constants) is not None:
                    yield f"It sets MASTER_PORT itself ({location}): two such runs on one machine collide."
                elif name == OWN_DEVICES:
                    yield f"It sets {name} itself ({location}): the GPUs allocated to the run are ignored."
                elif name in RANK_VARIABLES and result.launcher == "torchrun":
                    yield f"It sets {name} itself ({location}), which torchrun has set."


def _logs_nothing(program: ScriptProgram) -> Iterator[str]:
    """Warn where the script certainly logs nothing that could be charted."""
    for source in program.sources:
        if source.modules & {"transformers", "trl"} or any(
            _is_part(m, f) for m in source.modules for f in OTHER_FRAMEWORKS[:-1]
        ):
            return
        if any(marker in source.text for marker in ("SummaryWriter", "print", "tqdm", "log", "sys.std", "rich")):
            return
    yield "It neither prints nor logs anything: only the probe's metrics will be charted."


def _is_trainer(source: SourceFile, call: ast.Call) -> bool:
    name = source.dotted(call.func)
    return name.partition(".")[0] in LIGHTNING and name.rpartition(".")[2] in ("Trainer", "LightningCLI")


def _strategy(call: ast.Call) -> str | None:
    strategy = value(keywords(call).get("strategy"), {})
    return strategy if isinstance(strategy, str) else None


def _fixed_devices(source: SourceFile, call: ast.Call) -> int | None:
    devices = value(keywords(call).get("devices"), source.constants)
    return devices if isinstance(devices, int) and devices > 0 else None


def _started(source: SourceFile, call: ast.Call) -> int | None:
    """Return `nprocs` of mp.spawn if it is a literal number."""
    argument = keywords(call).get("nprocs") or (call.args[2] if len(call.args) > 2 else None)
    count = value(argument, source.constants)
    return count if type(count) is int and count > 0 else None


def _own_address(source: SourceFile, call: ast.Call) -> list[str]:
    """Return a warning where the rendezvous address is not torchrun's."""
    method = keywords(call).get("init_method")
    if method is None or value(method, source.constants) == "env://":
        return []
    shown = ast.unparse(method)[:60]
    return [f"Its rendezvous is init_method={shown} ({_location(source, call)}): under torchrun that is env://."]


def _is_part(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _constant(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _location(source: SourceFile, node: ast.AST) -> str:
    return _line_of(source, getattr(node, "lineno", 0))


def _line_of(source: SourceFile, line: int) -> str:
    return f"line {line}" if source.is_script else f"{source.name} line {line}"
