"""Read options defined by dataclasses: HfArgumentParser, simple-parsing, tyro, Tap."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dashboard.script_reader.framework_options import TRAINING_ARGUMENTS, training_arguments
from dashboard.script_reader.options import Option
from dashboard.script_reader.signature_reader import Parameter, plain_option
from dashboard.script_reader.source import ScriptProgram, SourceFile, as_written
from dashboard.script_reader.values import keywords, text, value

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
