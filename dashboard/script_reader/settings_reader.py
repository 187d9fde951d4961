"""Read options that are settings: globals before a configurator (nanoGPT), Hydra's YAML, OmegaConf's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from dashboard.paths import MayRead, open_if
from dashboard.script_reader.dataclass_reader import of_class
from dashboard.script_reader.options import Option
from dashboard.script_reader.source import ScriptProgram, SourceFile, called, keywords, literal, plain, value

LARGEST_SETTINGS_BYTES = 256 * 1024


def read_globals(program: ScriptProgram) -> list[Option]:
    """Return `--batch_size=12` for each literal global above `exec(open('configurator.py').read())`."""
    source = program.script
    end = next((n for n, node in enumerate(source.tree.body) if _executes_configurator(node)), None)
    if end is None:
        return []
    options: dict[str, Option] = {}
    for node in source.tree.body[:end]:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            is_known, default = literal(node.value, source.constants)
            if is_known and isinstance(default, bool | int | float | str) and not name.startswith("_"):
                options[name] = _global(name, default, _comment(source, node))
    return list(options.values())


def read_hydra(program: ScriptProgram) -> list[Option]:
    """Return `optimizer.lr=0.1` for each value in the YAML that `@hydra.main` names."""
    for source in program.sources:
        for call in source.calls:
            if source.dotted(call.func) == "hydra.main" and program.folder is not None:
                arguments = keywords(call)
                names = [arguments.get("config_path"), arguments.get("config_name")]
                names = [n or a for n, a in zip(names, [*call.args[:2], None, None], strict=False)]
                path, name = (value(node, source.constants) for node in names)
                if isinstance(name, str):
                    return list(_overrides(program, str(path or "."), name.removesuffix(".yaml")))
    return []


def read_omegaconf(program: ScriptProgram) -> list[Option]:
    """Return `model.width=64` for each value of the settings that are merged with `OmegaConf.from_cli()`."""
    names = {source.dotted(call.func) for source, call in program.calls()}
    if "omegaconf.OmegaConf.from_cli" not in names:
        return []
    options: dict[str, Option] = {}
    for source, call in program.calls():
        function = source.dotted(call.func).removeprefix("omegaconf.OmegaConf.")
        if function in ("create", "load", "structured") and call.args:
            options |= {option.name: option for option in _merged(function, call.args[0], source, program)}
    return list(options.values())


def _merged(function: str, node: ast.expr, source: SourceFile, program: ScriptProgram) -> Iterator[Option]:
    """Yield the options of settings in the script itself, in a YAML file beside it, or in a dataclass."""
    if function == "structured":
        for option in of_class(ast.unparse(called(node)), program, "tyro"):
            name = option.flag.removeprefix("--").replace("-", "_")
            changed = replace(option, flags=(name,), name=name, kind="override", on=None, off=None)
            yield changed.as_switch(f"{name}=true", f"{name}=false") if option.type == "bool" else changed
        return
    settings = _settings(node, source) if function == "create" else value(node, source.constants)
    if isinstance(settings, str) and program.folder is not None:
        settings = _yaml(program.folder / settings, program.may_read)
    if isinstance(settings, dict):
        yield from _flat(settings, "")


def _settings(node: ast.expr, source: SourceFile) -> dict[str, Any]:
    """Return a dictionary as it is written in the source; values known only at run time are None."""
    if isinstance(node, ast.Name):
        constant = source.constants.get(node.id)
        return constant if isinstance(constant, dict) else {}
    if not isinstance(node, ast.Dict):
        return {}
    keys = [value(key, source.constants) for key in node.keys]
    return {
        key: _settings(item, source) if isinstance(item, ast.Dict) else value(item, source.constants)
        for key, item in zip(keys, node.values, strict=True)
        if isinstance(key, str)
    }


def _executes_configurator(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    return ast.unparse(node.value.func) == "exec" and "configurator" in ast.unparse(node.value)


def _global(name: str, default: bool | int | float | str, help_text: str | None) -> Option:
    flag = f"--{name}"
    option = Option((flag,), name, type(default).__name__, default, help=help_text)
    return option.as_switch(f"{flag}=True", f"{flag}=False") if isinstance(default, bool) else option


def _comment(source: SourceFile, node: ast.stmt) -> str | None:
    """Return the comment at the end of a statement's line."""
    lines = source.text.splitlines()
    if node.end_lineno is None or node.end_lineno > len(lines):
        return None
    remainder = lines[node.end_lineno - 1].encode()[node.end_col_offset or 0 :].decode(errors="replace").strip()
    return remainder.lstrip("# ")[:500] or None if remainder.startswith("#") else None


def _overrides(program: ScriptProgram, subfolder: str, name: str) -> Iterator[Option]:
    assert program.folder is not None
    folder, may_read = program.folder / subfolder, program.may_read
    settings = _yaml(folder / f"{name}.yaml", may_read)
    for group, chosen in _defaults(settings):
        others = sorted(path.stem for path in (folder / group).glob("*.yaml") if may_read(path))
        yield Option((group,), group, "str", chosen, tuple(others) or None, f"The file in {group}/", False, "override")
        yield from _flat(_yaml(folder / group / f"{chosen}.yaml", may_read), f"{group}.")
    yield from _flat({key: item for key, item in settings.items() if key not in ("defaults", "hydra")}, "")


def _defaults(settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the groups of the defaults list that are of the form `group: file`."""
    listed = settings.get("defaults")
    for entry in listed if isinstance(listed, list) else []:
        for group, chosen in (entry if isinstance(entry, dict) else {}).items():
            if isinstance(group, str) and isinstance(chosen, str) and group.replace("_", "").isalnum():
                yield group, chosen.removesuffix(".yaml")


def _flat(settings: dict[str, Any], prefix: str) -> Iterator[Option]:
    for key, item in settings.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict):
            yield from _flat(item, f"{name}.")
        elif plain(item) is not None or item is None:
            required = item == "???"
            default = None if required or isinstance(item, list) else item
            kind = type(default).__name__ if default is not None else "str"
            option = Option((name,), name, kind, default, required=required, kind="override")
            yield option.as_switch(f"{name}=true", f"{name}=false") if kind == "bool" else option


def _yaml(path: Path, may_read: MayRead) -> dict[str, Any]:
    try:
        if (file := open_if(may_read, path)) is None:
            return {}
        with file:
            content = file.read(LARGEST_SETTINGS_BYTES + 1)
        settings = yaml.safe_load(content.decode(errors="replace")) if len(content) <= LARGEST_SETTINGS_BYTES else {}
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return settings if isinstance(settings, dict) else {}
