"""Parse a script and the modules of its folder that it imports, without executing them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dashboard.paths import is_file
from dashboard.script_reader.parsing import parsed
from dashboard.script_reader.values import constants_of

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


def as_written(node: ast.AST | None) -> str:
    """Return `a.b.c` for a chain of names; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


@dataclass(frozen=True)
class ScriptProgram:
    """A script with the modules that it imports from its folder."""

    script: SourceFile
    others: list[SourceFile] = field(default_factory=list)
    folder: Path | None = None
    """The script's folder, for the configuration files beside it."""

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


def read_program(folder: Path, entry: str, search: Path | None = None) -> ScriptProgram:
    """Parse a script and its imports from `search` (default: the script's folder). Raises UnreadableScript."""
    path = folder / entry
    text = _text(path)
    tree = _parsed(text, path.name)
    script = SourceFile(path.name, text, tree, tree.body)
    return ScriptProgram(script, list(_followed(script, path.parent, search or path.parent)), path.parent)


def module_file(folder: Path, dotted: str) -> Path | None:
    """Return the file of `package.module` below a folder, if it exists."""
    base = folder.joinpath(*dotted.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if is_file(path)), None)


def _followed(script: SourceFile, beside: Path, search: Path) -> Iterator[SourceFile]:
    left_bytes = MOST_FOLLOWED_BYTES
    for path, names in list(_imports(script, beside, search).items())[:MOST_MODULES]:
        name = str(path.relative_to(search)) if path.is_relative_to(search) else path.name
        try:
            text = _text(path)
            left_bytes -= len(text)
            if left_bytes < 0:
                return
            tree = _parsed(text, name)
        except UnreadableScript:
            continue
        yield SourceFile(name, text, tree, reached(tree, names), is_script=False)


def _imports(script: SourceFile, beside: Path, search: Path) -> dict[Path, set[str] | None]:
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
                add(module_file(search, alias.name), used.get(alias.asname or alias.name, set()))
        elif isinstance(node, ast.ImportFrom) and node.level < 2:
            base = beside if node.level else search
            names = {alias.name for alias in node.names}
            if node.module:
                add(module_file(base, node.module), None if "*" in names else names)
            for alias in node.names:  # from package import module
                inner = f"{node.module}.{alias.name}" if node.module else alias.name
                if alias.name.isidentifier():
                    add(module_file(base, inner), used.get(alias.asname or alias.name, set()))
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


def _text(path: Path) -> str:
    if not is_file(path):
        raise UnreadableScript(f"{path.name} is not a file that can be read here.")
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise NoProgram(f"{path.name} is larger than 1 MiB, the limit for a training script.")
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableScript(f"{path.name} cannot be read here: {error.strerror}.") from error
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
