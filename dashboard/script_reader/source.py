"""Parse a script and the modules of its folder that it imports, without executing them."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dashboard.paths import MayRead, is_file, open_if


@dataclass(frozen=True)
class SourceFile:
    """One file: the statements that can run in the training, and the meaning of its names."""

    name: str
    text: str
    tree: ast.Module
    roots: list[ast.stmt]
    is_script: bool = True

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes that may run, in the order of the text."""
        walked = [node for root in self.roots for node in ast.walk(root)]
        return sorted(walked, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call, in the order of the text."""
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def constants(self) -> dict[str, Any]:
        """Module-level names with a literal value."""
        return constants_of(self.tree.body)

    @cached_property
    def imported(self) -> dict[str, str]:
        """The full names of imported names: `torch.multiprocessing` for `mp`."""
        names = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    names[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom):
                origin = "." * node.level + (node.module or "")
                names |= {a.asname or a.name: f"{origin}.{a.name}" for a in node.names}
        return names

    @cached_property
    def modules(self) -> set[str]:
        """The full names of all imports in the file."""
        names = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        return names

    def dotted(self, node: ast.AST | None) -> str:
        """Return the full name of an expression, torch.multiprocessing.spawn for `mp.spawn`; empty without a name."""
        first, dot, remainder = as_written(node).partition(".")
        return f"{self.imported.get(first, first)}{dot}{remainder}"

    def definitions(self) -> dict[str, Definition]:
        """Return the functions and classes that may run, by name; module-level ones take precedence."""
        by_name = {node.name: node for node in reversed(self.nodes) if isinstance(node, Definition)}
        return by_name | {node.name: node for node in self.roots if isinstance(node, Definition)}


@dataclass(frozen=True)
class ScriptProgram:
    """A script with the modules that it imports from its folder."""

    script: SourceFile
    others: list[SourceFile] = field(default_factory=list)
    folder: Path | None = None
    """The script's folder, for the configuration files beside it."""
    may_read: MayRead = is_file

    @property
    def sources(self) -> list[SourceFile]:
        """All files, the script first."""
        return [self.script, *self.others]

    def calls(self) -> Iterator[tuple[SourceFile, ast.Call]]:
        """Yield every call in the program, with its file."""
        return ((source, call) for source in self.sources for call in source.calls)

    def definition(self, name: str) -> tuple[SourceFile, Definition] | None:
        """Return a function or class of the program by its name, with its file."""
        for source in self.sources:
            if (definition := source.definitions().get(name.rpartition(".")[2])) is not None:
                return source, definition
        return None


LARGEST_FILE_BYTES = 1024 * 1024
MOST_MODULES = 40
MOST_FOLLOWED_BYTES = 1024 * 1024
"""Bytes of imported modules that are read; a framework copied into the folder is beyond it."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class UnreadableScript(Exception):
    """A file that cannot be read as a script; the message is a sentence for the user."""

    is_of_content = False
    """Whether the file exists and its content is the problem."""


class NoProgram(UnreadableScript):
    """An existing file that is not a readable Python program."""

    is_of_content = True


def as_written(node: ast.AST | None) -> str:
    """Return `a.b.c` for a chain of names; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def read_program(folder: Path, entry: str, search: Path | None = None, may_read: MayRead = is_file) -> ScriptProgram:
    """Parse a script and its imports from `search` (default: the script's folder). Raises UnreadableScript."""
    path = folder / entry
    text = _text(path, may_read)
    tree = _parsed(text, path.name)
    script = SourceFile(path.name, text, tree, tree.body)
    others = list(_followed(script, path.parent, search or path.parent, may_read))
    return ScriptProgram(script, others, path.parent, may_read)


def module_file(folder: Path, dotted: str, may_read: MayRead = is_file) -> Path | None:
    """Return the file of `package.module` below a folder, if it exists and may be read."""
    base = folder.joinpath(*dotted.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if may_read(path)), None)


def _followed(script: SourceFile, beside: Path, search: Path, may_read: MayRead) -> Iterator[SourceFile]:
    left_bytes = MOST_FOLLOWED_BYTES
    for path, names in list(_imports(script, beside, search, may_read).items())[:MOST_MODULES]:
        name = str(path.relative_to(search)) if path.is_relative_to(search) else path.name
        try:
            text = _text(path, may_read)
            left_bytes -= len(text)
            if left_bytes < 0:
                return
            tree = _parsed(text, name)
        except UnreadableScript:
            continue
        yield SourceFile(name, text, tree, reached(tree, names), is_script=False)


def _imports(script: SourceFile, beside: Path, search: Path, may_read: MayRead) -> dict[Path, set[str] | None]:
    """Return the imported files of the folder, each with the imported names (None: all of them)."""
    files: dict[Path, set[str] | None] = {}
    used = _attributes(script)

    def add(path: Path | None, names: set[str] | None) -> None:
        if path is not None:
            earlier = files.get(path, set())
            files[path] = None if names is None or earlier is None else earlier | names

    for node in script.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                add(module_file(search, alias.name, may_read), used.get(alias.asname or alias.name, set()))
        elif isinstance(node, ast.ImportFrom) and node.level < 2:
            base = beside if node.level else search
            names = {alias.name for alias in node.names}
            if node.module:
                add(module_file(base, node.module, may_read), None if "*" in names else names)
            for alias in node.names:  # from package import module
                inner = f"{node.module}.{alias.name}" if node.module else alias.name
                if alias.name.isidentifier():
                    add(module_file(base, inner, may_read), used.get(alias.asname or alias.name, set()))
    return files


def _attributes(script: SourceFile) -> dict[str, set[str]]:
    """Return the attributes used of each module: get_parser for `config.get_parser`."""
    used: dict[str, set[str]] = {}
    for node in script.nodes:
        if isinstance(node, ast.Attribute):
            used.setdefault(as_written(node.value), set()).add(node.attr)
    return used


def reached(tree: ast.Module, imported: set[str] | None) -> list[ast.stmt]:
    """Return a module's statements that can run when these names are imported, without its `if __name__` block."""
    body = [statement for statement in tree.body if not _is_main_guard(statement)]
    defined = {node.name: node for node in body if isinstance(node, Definition)}
    pending = [node for node in body if not isinstance(node, Definition)]
    included: set[str] = set()
    names = set(defined) if imported is None else imported
    names = set(names)
    while True:
        for node in pending:
            names |= {node.id for node in ast.walk(node) if isinstance(node, ast.Name)}
        pending = [defined[name] for name in sorted(names & set(defined) - included)]
        included |= {node.name for node in pending if isinstance(node, Definition)}
        if not pending:
            return [node for node in body if not isinstance(node, Definition) or node.name in included]


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in {
        name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)
    }


def _text(path: Path, may_read: MayRead) -> str:
    try:
        if (file := open_if(may_read, path)) is None:
            raise UnreadableScript(f"{path.name} is not a file that can be read here.")
        with file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise UnreadableScript(f"{path.name} cannot be read here: {error.strerror}.") from error
    if len(content) > LARGEST_FILE_BYTES:
        raise NoProgram(f"{path.name} is larger than 1 MiB, the limit for a training script.")
    if b"\0" in content:
        raise NoProgram(f"{path.name} is not a Python program: it contains binary data.")
    return content.decode("utf-8-sig", errors="replace")


def _parsed(text: str, name: str) -> ast.Module:
    try:
        return parsed(text)
    except SyntaxError as error:
        raise NoProgram(f"{name} cannot be read as Python: line {error.lineno}: {error.msg}.") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise NoProgram(f"{name} cannot be read as Python.") from error


# Parse Python without running it, one text at a time.

_ONE_AT_A_TIME = threading.Lock()
"""CPython 3.11 counts a syntax tree's depth across threads: two parses at once may raise a SystemError."""


def parsed(text: str | bytes) -> ast.Module:
    """Return the syntax tree of a program. Raises the errors of `ast.parse`."""
    with _ONE_AT_A_TIME:
        return ast.parse(text)


def parsed_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression. Raises the errors of `ast.parse`."""
    with _ONE_AT_A_TIME:
        return ast.parse(text, mode="eval").body


# Read literal values, texts and types from source code, without evaluating it.

PLAIN_TYPES = ("int", "float", "str", "bool", "Path")
LARGEST_EXPONENT = 64
LONGEST_TEXT = 500


def literal(node: ast.expr | None, constants: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return (is it known, its value) for literals, names of constants and arithmetic on numbers."""
    if node is None:
        return False, None
    if isinstance(node, ast.Name):
        return node.id in constants, constants.get(node.id)
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, constants)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        return _wrapped(node, constants)
    if isinstance(node, ast.List | ast.Tuple):
        items = [literal(item, constants) for item in node.elts]
        return all(is_known for is_known, _ in items), [item for _, item in items]
    try:
        return True, ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None


def value(node: ast.expr | None, constants: Mapping[str, Any]) -> Any:
    """Return a value that a form can show, None where it is unknown."""
    is_known, constant = literal(node, constants)
    return plain(constant) if is_known else None


def plain(constant: Any) -> Any:
    """Return a constant as None, bool, number, text or a list of those; None for other types."""
    if isinstance(constant, list | tuple | set | frozenset):
        return [plain(item) for item in constant]
    return constant if constant is None or isinstance(constant, bool | int | float | str) else None


def constants_of(body: list[ast.stmt]) -> dict[str, Any]:
    """Return module-level names that are assigned a literal, with their values."""
    constants: dict[str, Any] = {}
    for node in body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target: ast.expr = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        else:
            continue
        is_known, constant = literal(node.value, constants)
        if is_known and isinstance(target, ast.Name):
            constants[target.id] = constant
    return constants


def text(node: ast.expr | None, constants: Mapping[str, Any]) -> str | None:
    """Return a help text on one line, with an ellipsis for parts that are known only at run time."""
    if node is None:
        return None
    line = " ".join(_pieces(node, constants).split())
    return line[:LONGEST_TEXT] if line.strip(" …") else None


def type_name(node: ast.expr | None, default: Any) -> str | None:
    """Return the type's name (int, float, str, bool, Path or the script's own), else that of the default."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
    if name in PLAIN_TYPES:
        return name
    if isinstance(default, bool | int | float):  # also with a checking function of the script's own
        return type(default).__name__
    return "str" if node is None else name


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """Return a call's keyword arguments by name."""
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def called(node: ast.expr) -> ast.expr:
    """Return the function of a call, or the expression itself: a decorator with or without parentheses."""
    return node.func if isinstance(node, ast.Call) else node


def command_name(decorator: ast.expr, owners: set[str]) -> str | None:
    """Return the name in `@cli.command("name")`, empty for the function's own; None for another decorator."""
    function = called(decorator)
    if not (isinstance(function, ast.Attribute) and function.attr == "command"):
        return None
    if not (isinstance(function.value, ast.Name) and function.value.id in owners):
        return None
    arguments = decorator.args if isinstance(decorator, ast.Call) else []
    return str(value(arguments[0], {}) or "") if arguments else ""


def _wrapped(node: ast.Call, constants: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return the literal inside `Path("runs")`, `str("x")` and the like; `list(range(3))` is unknown."""
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in ("Path", "PosixPath", "str", "tuple", "list") and len(node.args) == 1 and not node.keywords:
        return literal(node.args[0], constants)
    return False, None


def _arithmetic(node: ast.BinOp, constants: Mapping[str, Any]) -> tuple[bool, Any]:
    left, right = literal(node.left, constants)[1], literal(node.right, constants)[1]
    if type(left) not in (int, float) or type(right) not in (int, float):
        return False, None
    try:
        return _computed(node.op, left, right)
    except (ArithmeticError, ValueError):
        return False, None


def _computed(operator: ast.operator, left: Any, right: Any) -> tuple[bool, Any]:
    if isinstance(operator, ast.Mult):
        return True, left * right
    if isinstance(operator, ast.Add):
        return True, left + right
    if isinstance(operator, ast.Sub):
        return True, left - right
    if isinstance(operator, ast.Div):
        return True, left / right
    if isinstance(operator, ast.FloorDiv):
        return True, left // right
    if isinstance(operator, ast.Pow) and abs(left) <= 1024 and abs(right) <= LARGEST_EXPONENT:
        return True, left**right
    return False, None


def _pieces(node: ast.expr, constants: Mapping[str, Any]) -> str:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _pieces(node.left, constants) + _pieces(node.right, constants)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _pieces(node.left, constants)
    if isinstance(node, ast.JoinedStr):
        return "".join(_pieces(part, constants) for part in node.values)
    constant = value(node, constants)
    return "…" if constant is None else str(constant)
