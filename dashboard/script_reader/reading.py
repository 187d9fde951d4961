"""Read a script in a folder: its options, the proposals for them, and its launcher."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from dashboard.paths import MayRead, is_file
from dashboard.script_reader import (
    absl_reader,
    argparse_reader,
    click_reader,
    dataclass_reader,
    settings_reader,
    signature_reader,
)
from dashboard.script_reader.launchers import Guess, guess
from dashboard.script_reader.options import Option
from dashboard.script_reader.proposals import Proposal, propose
from dashboard.script_reader.source import (
    ScriptProgram,
    SourceFile,
    UnreadableScript,
    keywords,
    module_file,
    read_program,
    value,
)
from dashboard.script_reader.unread import unread_libraries
from domain.clock import SYSTEM_CLOCK


def read_script(
    folder: Path, entry: str | None = None, module: str | None = None, may_read: MayRead = is_file
) -> Script:
    """Read a script in a folder, or the module that `-m` would start, with the files that it names and that may be
    read. Raises UnreadableScript."""
    key, stamp = (str(folder), entry, module, may_read), _stamp(folder, entry, module)
    remembered = _remembered.get(key)
    started_at = SYSTEM_CLOCK.now()
    if remembered and remembered[0] == stamp and started_at < remembered[1]:
        return remembered[2]
    script = script_in(_program(folder, entry, module, may_read))
    took_s = SYSTEM_CLOCK.now() - started_at
    while len(_remembered) >= MOST_REMEMBERED:
        _remembered.pop(next(iter(_remembered), key), None)
    _remembered[key] = (stamp, started_at + REMEMBERED_FOR_S + 50 * took_s, script)
    return script


READERS = {
    "argparse": argparse_reader.read,
    "absl": absl_reader.read,
    "click": click_reader.read,
    "its function's signature": signature_reader.read,
    "its dataclasses": dataclass_reader.read,
    "LightningCLI": dataclass_reader.read_frameworks,
    "its configurator": settings_reader.read_globals,
    "Hydra": settings_reader.read_hydra,
    "OmegaConf": settings_reader.read_omegaconf,
}
OWN_NAMES = {
    "warmup_steps": re.compile(r"warm_?up", re.IGNORECASE),
    "precision": re.compile(r"precision|dtype|amp|fp16|bf16|half", re.IGNORECASE),
    "strategy": re.compile(r"strategy|fsdp|shard|parallel", re.IGNORECASE),
    "lr": re.compile(r"(^|_)lr($|_)|learning_?rate", re.IGNORECASE),
}
"""How scripts name their options for values of the form that few scripts take."""
READS_ARGUMENTS = re.compile(
    r"argv|[Pp]arse|\b(fire|tyro|typer|click|hydra|omegaconf|draccus|simple_parsing)\b|RANKZERO_\W"
)
"""Source that may take arguments, or our variables, which cannot be read from it."""
ANY_VARIABLE = re.compile(r"RANKZERO_(?![A-Z])")
"""Source that puts the names of our variables together, and may so read each of them."""
SHARDING = re.compile(r"fsdp|fully_?shard", re.IGNORECASE)
MOST_OPTIONS = 1000
MOST_REMEMBERED = 64


@dataclass(frozen=True)
class Script:
    """The facts that a script's source states."""

    name: str
    parsers: tuple[str, ...]
    """The parsers that its options were read from."""
    options: list[Option]
    proposals: list[Proposal]
    guess: Guess
    unread: tuple[str, ...]
    """The libraries by which it takes arguments that could not be read from its text."""
    may_take_more: bool
    """Whether it may take arguments that could not be read from its text."""
    shards: bool
    """Whether its text mentions FSDP, so that it may shard its parameters."""
    variables: frozenset[str]
    """The values that its text reads from our environment variables, such as `RANKZERO_LR`."""
    constants: dict[str, int | float]
    """`batch_size` and `lr` from its text, where they are certain."""

    def may_take(self, field: str) -> bool:
        """Whether a field in OWN_NAMES may reach it: by an option of its own or by our variables."""
        named = any(OWN_NAMES[field].search(option.name.replace("-", "_")) for option in self.options)
        shards = field == "strategy" and self.shards
        return named or shards or field in self.variables or self.may_take_more

    def option(self, name: str) -> Option | None:
        """Return the option of that name, if there is one."""
        return next((option for option in self.options if option.name == name), None)


REMEMBERED_FOR_S = 5.0
"""Seconds that a reading is cached: files beside the script may change without touching it."""
Stamp = tuple[tuple[str, int, int], ...]
_remembered: dict[tuple[str, str | None, str | None, MayRead], tuple[Stamp, float, Script]] = {}


def script_in(program: ScriptProgram) -> Script:
    """Read a parsed program. Raises UnreadableScript."""
    try:
        options, parsers = options_in(program)
        return Script(
            name=program.script.name,
            parsers=tuple(parsers),
            options=options,
            proposals=propose(options, program),
            guess=guess(program, options),
            unread=(unread := unread_libraries(program, parsers)),
            may_take_more=bool(unread) or _may_take_more(program, options),
            shards=any(SHARDING.search(source.text) for source in program.sources),
            variables=frozenset(_variables(program)),
            constants=constants_in(program),
        )
    except RecursionError as error:
        raise UnreadableScript(f"{program.script.name} is nested too deeply to be read.") from error


def options_in(program: ScriptProgram) -> tuple[list[Option], list[str]]:
    """Return all options, each name once, and the parsers that define them."""
    by_key: dict[tuple[str | None, str], Option] = {}
    parsers = []
    for parser, read in READERS.items():
        options = read(program)
        if options:
            parsers.append(parser)
        for option in options:
            by_key.setdefault((option.command, option.name), option)
    return list(by_key.values())[:MOST_OPTIONS], parsers


def _program(folder: Path, entry: str | None, module: str | None, may_read: MayRead) -> ScriptProgram:
    if module is None:
        return read_program(folder, entry or "", may_read=may_read)
    file = module_file(folder, f"{module}.__main__", may_read) or module_file(folder, module, may_read)
    if file is None:
        raise UnreadableScript(f"There is no module {module} in {folder}.")
    return read_program(folder, str(file.relative_to(folder)), search=folder, may_read=may_read)


def _may_take_more(program: ScriptProgram, options: list[Option]) -> bool:
    return not options and any(READS_ARGUMENTS.search(source.text) for source in program.sources)


def _variables(program: ScriptProgram) -> set[str]:
    names = "BATCH_SIZE LR EPOCHS MAX_STEPS PRECISION ACCUMULATE SEED RESUME STRATEGY WARMUP_STEPS".split()
    texts = [source.text for source in program.sources]
    is_any = any(ANY_VARIABLE.search(text) for text in texts)
    return {name.lower() for name in names if is_any or any(f"RANKZERO_{name}" in text for text in texts)}


def _stamp(folder: Path, entry: str | None, module: str | None) -> Stamp:
    """Return a value that changes when the script or its folder does."""
    start = folder / entry if entry else folder.joinpath(*(module or "").split("."))
    stamps = []
    for path in (start, start.parent):
        try:
            status = path.stat()
            stamps.append((str(path), status.st_mtime_ns, status.st_size))
        except (OSError, ValueError):
            continue
    return tuple(stamps)


# Read batch size and learning rate that are plain numbers in a script without options for them.

LOADER = "torch.utils.data.DataLoader"
OPTIMIZERS = "torch.optim."
SCHEDULERS = "torch.optim.lr_scheduler."


def constants_in(program: ScriptProgram) -> dict[str, int | float]:
    """Return `batch_size` and `lr`, each only if all data loaders or all optimizers have the same value."""
    batch_sizes = [_number(source, call, "batch_size") for source, call in program.calls() if _loads(source, call)]
    rates = [_number(source, call, "lr") for source, call in program.calls() if _optimizes(source, call)]
    constants = {"batch_size": _agreed(batch_sizes), "lr": _agreed(rates)}
    return {name: number for name, number in constants.items() if number is not None}


def _loads(source: SourceFile, call: ast.Call) -> bool:
    return source.dotted(call.func) == LOADER


def _optimizes(source: SourceFile, call: ast.Call) -> bool:
    name = source.dotted(call.func)
    return name.startswith(OPTIMIZERS) and not name.startswith(SCHEDULERS)


def _number(source: SourceFile, call: ast.Call, keyword: str) -> int | float | None:
    """Return the number of a keyword argument; None where it is no literal or its name is assigned twice."""
    argument = keywords(call).get(keyword)
    if argument is None or any(_is_bound_again(source, node) for node in ast.walk(argument)):
        return None
    number = value(argument, source.constants)
    return number if type(number) in (int, float) and number > 0 else None


def _is_bound_again(source: SourceFile, node: ast.AST) -> bool:
    """Whether a name is assigned more than once, or is also a function's parameter."""
    if not isinstance(node, ast.Name):
        return False
    stored = [n for n in source.nodes if isinstance(n, ast.Name) and n.id == node.id and isinstance(n.ctx, ast.Store)]
    return len(stored) != 1 or any(isinstance(n, ast.arg) and n.arg == node.id for n in source.nodes)


def _agreed(numbers: list[int | float | None]) -> int | float | None:
    return numbers[0] if len(set(numbers)) == 1 else None
