"""Read options defined by dataclasses: HfArgumentParser, simple-parsing, tyro, Tap."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from dashboard.script_reader.options import Option
from dashboard.script_reader.signature_reader import Parameter, parameters, plain_option
from dashboard.script_reader.source import ScriptProgram, SourceFile, as_written, keywords, text, value

PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")
DEEPEST = 4


def read(program: ScriptProgram) -> list[Option]:
    """Return the options of every class that is given to a parser."""
    options: list[Option] = []
    for source in program.sources:
        for style, name in _classes_parsed(source):
            options += of_class(name, program, style)
    return options


def of_class(name: str, program: ScriptProgram, style: str, prefix: str = "", depth: int = 0) -> list[Option]:
    """Return the options of a class and its bases; those of TrainingArguments for one of its subclasses."""
    last = name.rpartition(".")[2]
    match = program.definition(last)
    if match is None or not isinstance(match[1], ast.ClassDef) or depth > DEEPEST:
        return training_arguments() if last in TRAINING_ARGUMENTS else []
    source, definition = match[0], match[1]
    options: list[Option] = []
    for base in definition.bases:
        options += of_class(ast.unparse(base), program, style, prefix, depth + 1)
    for field in fields(definition, source):
        nested = ast.unparse(field.annotation) if field.annotation is not None else ""
        inner = program.definition(nested) if style == "tyro" and nested.isidentifier() else None
        if inner is not None and _is_dataclass(inner[1]):
            options += of_class(nested, program, style, f"{prefix}{field.name.replace('_', '-')}.", depth + 1)
        else:
            options.append(plain_option(field, source, program, style, prefix))
    # An overridden field replaces its base's.
    return list({option.name: option for option in options}.values())


def fields(definition: ast.ClassDef, source: SourceFile) -> Iterator[Parameter]:
    """Yield the annotated fields, each with its help from the metadata or the string below it."""
    for node, after in zip(definition.body, [*definition.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if "ClassVar" in ast.unparse(node.annotation) or node.target.id.startswith("_"):
            continue
        default, help_ = _default_and_help(node.value, source)
        if help_ is None and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            help_ = text(after.value, {})
        yield Parameter(node.target.id, node.annotation, default, help_)


def _default_and_help(node: ast.expr | None, source: SourceFile) -> tuple[ast.expr | None, str | None]:
    """Return default and help of `field(default=…, metadata={"help": …})`; a factory is an unknown default."""
    if not isinstance(node, ast.Call):
        return node, None
    arguments = keywords(node)
    metadata = arguments.get("metadata")
    helps = [arguments["help"]] if "help" in arguments else []
    if isinstance(metadata, ast.Dict):
        helps += [v for k, v in zip(metadata.keys, metadata.values, strict=True) if k and value(k, {}) == "help"]
    last = as_written(node.func).rpartition(".")[2]
    if last not in ("field", "HfArg", "arg"):
        return node, None
    default = arguments.get("default") or arguments.get("default_factory") or (node.args[0] if node.args else None)
    return default, text(helps[0], source.constants) if helps else None


def _classes_parsed(source: SourceFile) -> Iterator[tuple[str, str]]:
    """Yield (style, class) for `HfArgumentParser((A, B))`, `parser.add_arguments(A, …)`, `tyro.cli(A)`, `A(Tap)`."""
    for call in source.calls:
        last = as_written(call.func).rpartition(".")[2]
        classes = [
            *call.args[:1],
            *(k.value for k in call.keywords if k.arg in ("dataclass_types", "config_class")),
        ]
        if not classes:
            continue
        if last in (*PARSERS, "add_arguments") or source.dotted(call.func) == "simple_parsing.parse":
            yield from (("hf", name) for name in _names(classes[0]))
        elif source.dotted(call.func) == "tyro.cli":
            yield from (("tyro", name) for name in _names(classes[0]))
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and any(source.dotted(base) == "tap.Tap" for base in node.bases):
            yield "tap", node.name


def _names(node: ast.expr) -> list[str]:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    return [ast.unparse(part) for part in parts if isinstance(part, ast.Name | ast.Attribute)]


def _is_dataclass(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list)


# Options of frameworks that are listed here: Hugging Face's TrainingArguments, LightningCLI.

TRAINING_ARGUMENTS = (
    "TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig",
    "ORPOConfig", "KTOConfig", "CPOConfig", "SentenceTransformerTrainingArguments",
)  # fmt: skip
_HF: tuple[tuple[str, str, Any, str], ...] = (
    ("output_dir", "str", None, "Where checkpoints and predictions are written"),
    ("per_device_train_batch_size", "int", 8, "Samples per device and forward pass while training"),
    ("per_device_eval_batch_size", "int", 8, "Samples per device while evaluating"),
    ("gradient_accumulation_steps", "int", 1, "Forward passes per optimizer step"),
    ("learning_rate", "float", 5e-5, "The initial learning rate"),
    ("num_train_epochs", "float", 3.0, "Epochs to train for"),
    ("max_steps", "int", -1, "Optimizer steps to train for; overrides the epochs when above 0"),
    ("warmup_steps", "float", 0, "Steps over which the learning rate rises"),
    ("weight_decay", "float", 0.0, "Weight decay"),
    ("lr_scheduler_type", "str", "linear", "The learning rate's schedule"),
    ("logging_steps", "float", 500, "Steps between two log lines"),
    ("save_steps", "float", 500, "Steps between two checkpoints"),
    ("save_total_limit", "int", None, "Checkpoints that are kept"),
    ("bf16", "bool", False, "Mixed precision with bfloat16"),
    ("fp16", "bool", False, "Mixed precision with float16"),
    ("gradient_checkpointing", "bool", False, "Trade time for memory"),
    ("seed", "int", 42, "Random seed"),
    ("resume_from_checkpoint", "str", None, "Checkpoint folder to start from"),
)
_TRAINER: tuple[tuple[str, str, Any, str], ...] = (
    ("seed_everything", "int", None, "Random seed"),
    ("trainer.max_epochs", "int", None, "Epochs to train for"),
    ("trainer.max_steps", "int", -1, "Optimizer steps to train for"),
    ("trainer.accumulate_grad_batches", "int", 1, "Forward passes per optimizer step"),
    ("trainer.precision", "str", None, "32-true, bf16-mixed, 16-mixed"),
    ("trainer.strategy", "str", "auto", "ddp, fsdp, deepspeed"),
    ("trainer.accelerator", "str", "auto", "cpu, gpu, auto"),
    ("trainer.devices", "str", "auto", "Devices per node"),
    ("trainer.num_nodes", "int", 1, "Nodes"),
    ("trainer.log_every_n_steps", "int", 50, "Steps between two logged points"),
    ("trainer.gradient_clip_val", "float", None, "Largest norm of the gradient"),
    ("trainer.default_root_dir", "str", None, "Where logs and checkpoints are written"),
    ("ckpt_path", "str", None, "Checkpoint to start from"),
)


def training_arguments() -> list[Option]:
    """Return the common options of scripts that parse Hugging Face's TrainingArguments."""
    return [_table_option(row, "--{}=True", "--{}=False") for row in _HF]


def read_frameworks(program: ScriptProgram) -> list[Option]:
    """Return the options of LightningCLI: its commands, the Trainer's, the model's and the data module's."""
    for source in program.sources:
        for call in source.calls:
            if as_written(call.func).rpartition(".")[2] == "LightningCLI":
                return _lightning(call, program)
    return []


def _lightning(call: ast.Call, program: ScriptProgram) -> list[Option]:
    arguments = keywords(call)
    options = [_table_option(row, "--{}=true", "--{}=false") for row in _TRAINER]
    classes = dict(zip(("model", "data"), call.args, strict=False))
    classes |= {name: arguments[f"{key}_class"] for name, key in (("model", "model"), ("data", "datamodule"))
                if f"{key}_class" in arguments}  # fmt: skip
    for prefix, node in classes.items():
        options += _of_constructor(ast.unparse(node), program, f"{prefix}.")
    if value(arguments.get("run"), {}) is False:
        return [option for option in options if option.name != "ckpt_path"]
    commands = ("fit", "validate", "test", "predict")
    help_text = "Command of Lightning; fit trains"
    return [
        Option(("subcommand",), "subcommand", "str", None, commands, help_text, True, "positional"),
        *options,
    ]


def _of_constructor(name: str, program: ScriptProgram, prefix: str) -> list[Option]:
    match = program.definition(name)
    if match is None or not isinstance(match[1], ast.ClassDef):
        return []
    source, definition = match
    constructors = [n for n in definition.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    return [
        plain_option(parameter, source, program, "lightning", prefix)
        for function in constructors
        for parameter in parameters(function)
    ]


def _table_option(row: tuple[str, str, Any, str], on: str, off: str) -> Option:
    name, type_, default, help_text = row
    option = Option((f"--{name}",), name, type_, default, help=help_text)
    return option.as_switch(on.format(name), off.format(name)) if type_ == "bool" else option
