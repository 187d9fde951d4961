"""Propose which option takes which value of the form: batch size, learning rate, epochs, checkpoint…"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dashboard.script_reader.options import Option, written
from dashboard.script_reader.source import ScriptProgram
from domain.catalogue import InputKind
from domain.launch.plan import RESUME_OPTIONS
from domain.spec import FIELDS, PASSED


def propose(options: Sequence[Option], program: ScriptProgram | None = None) -> list[Proposal]:
    """Return a proposal for each value of the form that an option certainly takes."""
    proposals = [proposal for field in NAMES if (proposal := _for_field(field, options, program)) is not None]
    return [*_commands(options), *proposals, *_precisions(options)]


NAMES: dict[str, str] = {
    **{name: FIELDS[name].script_options for name in PASSED if name != "precision"},
    "resume": " ".join(RESUME_OPTIONS),
    "run_dir": "output_dir out_dir outdir save_dir checkpoint_dir ckpt_dir work_dir results_dir exp_dir run_dir "
    "default_root_dir",
}
"""Exact names of the options that take each value of the form, the most specific names first."""
GLOBAL_BATCH = "global_batch_size total_batch_size effective_batch_size".split()
PRECISIONS = {
    "bf16": ("bf16", "bfloat16", "bf16-mixed", "bf16_mixed"),
    "fp16": ("fp16", "float16", "16-mixed", "half"),
}
LABELS = {name: f"the {FIELDS[name].label[0].lower()}{FIELDS[name].label[1:]}" for name in PASSED} | {
    "resume": "the checkpoint to start from", "run_dir": "the run's own directory", "command": "what to do",
}  # fmt: skip
_ALL_GPUS = re.compile(
    r"\b(global|total|effective|overall)\b[\w\s-]{0,20}\bbatch|all (the )?(gpus|devices|ranks|processes|workers|nodes)"
    r"|across (gpus|devices|ranks)",
    re.IGNORECASE,
)
_WORLD = re.compile(r"world_size|n_?gpus|num_gpus|nprocs|num_processes|device_count|get_world_size|n_devices")


@dataclass(frozen=True)
class Proposal:
    """An argument that would pass a value of the form to the script."""

    field: str
    """The form's field: batch_size, lr, …"""
    option: str
    """The option's name."""
    argument: str
    reason: str
    is_ticked: bool = True
    """Whether it is ticked by default."""
    only_when: str | None = None
    """The precision it applies to; None: always."""


def option_for(field: str, options: Sequence[Option]) -> Option | None:
    """Return the option that takes a value of the form; None where it is ambiguous."""
    candidates = [option for option in options if _can_take(field, option)]
    for name in NAMES[field].split():
        exact = [option for option in candidates if name in _bare_names(option)]
        if exact:
            return exact[0]
    for name in NAMES[field].split():
        inner = [o for o in candidates if _last_part(o) == name and not re.search(r"val|eval|test", o.name)]
        if inner:
            return inner[0] if len(inner) == 1 else None
    return None


def is_whole_batch(proposals: Sequence[Proposal]) -> bool:
    """Whether the script's batch size is that of all GPUs together."""
    return any(proposal.field == "batch_size" and not proposal.is_ticked for proposal in proposals)


def is_for_all_ranks(option: Option, program: ScriptProgram | None) -> str | None:
    """Return the evidence that an option's number is for all ranks together; None without any."""
    if option.help and _ALL_GPUS.search(option.help):
        return f"its help says “{option.help}”"
    for source in program.sources if program else []:
        for node in source.nodes:
            if _divides(node, option.name):
                return f"{source.name} line {getattr(node, 'lineno', 0)} divides it among the processes"
    return None


def _for_field(field: str, options: Sequence[Option], program: ScriptProgram | None) -> Proposal | None:
    option = option_for(field, options)
    if option is None:
        return _global_batch(options) if field == "batch_size" else None
    argument = " ".join(written(option, f"{{{field}}}"))
    reason = f"{_shown(option)} takes {LABELS[field]}"
    reason += f" (“{option.help}”)." if option.help else "."
    if field in ("batch_size", "accumulate") and (explanation := is_for_all_ranks(option, program)):
        return Proposal(
            field, option.name, argument, f"{_shown(option)} is for all GPUs together: {explanation}.", False
        )
    if field == "run_dir" and not _leaves_directory(option):
        sentence = f"{_shown(option)} is {option.default!r} by default, inside the run's own directory."
        return Proposal(field, option.name, argument, sentence, False)
    return Proposal(field, option.name, argument, reason)


def _global_batch(options: Sequence[Option]) -> Proposal | None:
    for option in options:
        if option.name in GLOBAL_BATCH and _can_take("batch_size", option):
            reason = f"{_shown(option)} is the batch of all GPUs together; the form's is that of one GPU."
            return Proposal("batch_size", option.name, written(option, "{batch_size}")[0], reason, False)
    return None


def _can_take(field: str, option: Option) -> bool:
    if option.kind not in ("value", "positional", "override") or option.command in (
        "eval",
        "test",
        "predict",
    ):
        return False
    if field in FIELDS and FIELDS[field].kind is InputKind.NUMBER:
        return option.type in ("int", "float", "str", None) or option.type not in ("bool", "Path")
    return option.type not in ("bool", "int", "float") and not option.choices


def _bare_names(option: Option) -> set[str]:
    """Return the option's names with underscores, without those inside a group (`data.batch_size`)."""
    names = {option.name, *(flag.lstrip("-") for flag in option.flags if not re.fullmatch(r"-\w", flag))}
    return {name.replace("-", "_").lower() for name in names}


def _last_part(option: Option) -> str | None:
    head, dot, last = option.name.rpartition(".")
    return last.replace("-", "_").lower() if dot and head else None


def _leaves_directory(option: Option) -> bool:
    """Whether the script would write outside of the run's directory by default."""
    default = option.default
    return not isinstance(default, str) or default == "" or default.startswith(("/", "~"))


def _commands(options: Sequence[Option]) -> Iterator[Proposal]:
    for option in options:
        words = [w for w in option.choices or () if w in ("fit", "train")]
        if option.kind == "positional" and option.name in ("command", "subcommand") and words:
            yield Proposal("command", option.name, words[0], f"The command to run; {words[0]} trains.")


def _precisions(options: Sequence[Option]) -> Iterator[Proposal]:
    """Yield proposals for bf16 and fp16, as far as the script supports them; fp32 needs none."""
    for precision, spellings in PRECISIONS.items():
        for option in options:
            argument = _precision_argument(option, precision, spellings)
            if argument is not None:
                reason = f"{_shown(option)} takes the precision when {precision} is chosen."
                yield Proposal("precision", option.name, argument, reason, only_when=precision)
                break


def _precision_argument(option: Option, precision: str, spellings: tuple[str, ...]) -> str | None:
    if option.kind == "switch" and option.name == precision and option.on:
        return option.on
    name = option.name.rpartition(".")[2]
    if option.kind not in ("value", "override") or name not in FIELDS["precision"].script_options.split():
        return None
    if option.name == "trainer.precision":
        return written(option, f"{precision.removeprefix('fp')}-mixed")[0]
    spelling = next((spelling for spelling in spellings if spelling in (option.choices or ())), None)
    spelling = spelling or next(
        (spelling for spelling in spellings if spelling in str(option.help or "").lower().split("'")), None
    )
    return written(option, spelling)[0] if spelling else None


def _divides(node: ast.AST, name: str) -> bool:
    """`args.batch_size / ngpus_per_node`, `accumulation //= world_size`."""
    if isinstance(node, ast.BinOp):
        left, right, operator = node.left, node.right, node.op
    elif isinstance(node, ast.AugAssign):
        left, right, operator = node.target, node.value, node.op
    else:
        return False
    if not isinstance(operator, ast.Div | ast.FloorDiv):
        return False
    is_option = (isinstance(left, ast.Name) and left.id == name) or (
        isinstance(left, ast.Attribute) and left.attr == name
    )
    return is_option and _WORLD.search(ast.unparse(right)) is not None


def _shown(option: Option) -> str:
    return option.flag if option.kind != "positional" else option.name
