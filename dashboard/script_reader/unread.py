"""Name the libraries by which a script takes arguments that its source does not list."""

from __future__ import annotations

from collections.abc import Collection

from dashboard.script_reader.source import ScriptProgram

ENTRIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "absl": ("absl", ("absl.flags.DEFINE", "absl.app.run")),
    "OmegaConf": ("OmegaConf", ("omegaconf.OmegaConf.from_cli",)),
    "Hydra": ("Hydra", ("hydra.main",)),
    "click": ("click", ("click.command", "click.group", "click.Command")),
    "typer": ("its function's signature", ("typer.run", "typer.Typer")),
    "fire": ("its function's signature", ("fire.Fire",)),
    "tyro": ("its function's signature", ("tyro.cli", "tyro.extras")),
    "jsonargparse": ("its function's signature", ("jsonargparse.CLI", "jsonargparse.auto")),
    "LightningCLI": ("LightningCLI", ("lightning.pytorch.cli.LightningCLI", "pytorch_lightning.cli.LightningCLI")),
    "HfArgumentParser": ("its dataclasses", ("transformers.HfArgumentParser", "trl.TrlParser")),
    "simple-parsing": ("its dataclasses", ("simple_parsing.parse", "simple_parsing.ArgumentParser")),
    "ml_collections": ("", ("ml_collections.config_flags.DEFINE", "ml_collections.config_flags.config_flags.DEFINE")),
    "draccus": ("", ("draccus.wrap", "draccus.parse")),
    "pyrallis": ("", ("pyrallis.wrap", "pyrallis.parse")),
    "gin": ("", ("gin.parse",)),
    "docopt": ("", ("docopt.docopt",)),
    "plac": ("", ("plac.call",)),
    "chz": ("", ("chz.entrypoint", "chz.nested_entrypoint")),
    "cyclopts": ("", ("cyclopts.run", "cyclopts.App")),
    "defopt": ("", ("defopt.run",)),
    "sacred": ("", ("sacred.Experiment",)),
}
"""How each library is called (the beginnings of full names), and the reader that may have read its options."""
ALTERNATIVES = {"its function's signature": ("its dataclasses",), "its dataclasses": ("argparse",)}
"""Further readers that read the options of the same calls."""
OF_CLASSES = ("add_class_arguments", "add_function_arguments", "add_dataclass_arguments", "add_subclass_arguments")
"""Methods by which a parser of jsonargparse takes the options of the program's own classes."""
COMPUTED = "argparse, with names that are computed"


def unread_libraries(program: ScriptProgram, parsers: Collection[str]) -> tuple[str, ...]:
    """Return the libraries that a program calls and whose reader found no option."""
    names = {source.dotted(call.func) for source, call in program.calls()}
    names |= {
        source.dotted(decorator)
        for source in program.sources
        for node in source.definitions().values()
        for decorator in node.decorator_list
    }
    unread = [
        library
        for library, (reader, beginnings) in ENTRIES.items()
        if not {reader, *ALTERNATIVES.get(reader, ())} & set(parsers)
        and any(name.startswith(beginnings) for name in names)
    ]
    methods = {name.rpartition(".")[2] for name in names}
    unread += ["jsonargparse"] if methods & set(OF_CLASSES) and "jsonargparse" not in unread else []
    is_computed = not parsers and "add_argument" in methods and methods & {"parse_args", "parse_known_args"}
    return tuple(unread) or ((COMPUTED,) if is_computed else ())
