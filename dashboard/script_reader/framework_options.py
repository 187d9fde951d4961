"""Options of frameworks that are listed here: Hugging Face's TrainingArguments, LightningCLI."""

from __future__ import annotations

import ast
from typing import Any

from dashboard.script_reader.options import Option
from dashboard.script_reader.signature_reader import parameters, plain_option
from dashboard.script_reader.source import ScriptProgram, as_written
from dashboard.script_reader.values import keywords, value

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


def read(program: ScriptProgram) -> list[Option]:
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
