"""Options are read from scripts in the styles people write them, without running anything."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from dashboard.script_reader.options import Option, written
from dashboard.script_reader.reading import Script, read_script
from dashboard.script_reader.source import UnreadableScript


def script(folder: Path, source: str, **others: str) -> Script:
    """What a script says that lies in a folder with other files (`config__yaml` is config.yaml)."""
    (folder / "train.py").write_text(dedent(source))
    for name, text in others.items():
        path = folder / name.replace("__", ".").replace("_slash_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return read_script(folder, "train.py")


def options(folder: Path, source: str, **others: str) -> dict[str, Option]:
    return {option.name: option for option in script(folder, source, **others).options}


def test_argparse_with_groups_switches_lists_and_later_defaults(tmp_path: Path) -> None:
    by_name = options(
        tmp_path,
        """
        import argparse
        def parser():
            p = argparse.ArgumentParser()
            g = p.add_argument_group("training")
            g.add_argument("--ema", action=argparse.BooleanOptionalAction, default=True, help="100%% (%(default)s)")
            g.add_argument("--milestones", nargs="+", type=int, default=[30, 60])
            g.add_argument("--tag", action="append")
            x = p.add_mutually_exclusive_group()
            x.add_argument("--shuffle", type=bool, default=True)
            x.add_argument("--crop", type=lambda v: int(v), default=2 ** 8)
            p.add_argument("--version", action="version")
            p.add_argument("rest", nargs=argparse.REMAINDER)
            add = p.add_argument
            add("--width", type=int, default=1, help="a" + f" wide {p} one")
            p.set_defaults(width=64)
            return p
        """,
    )
    assert list(by_name) == ["ema", "milestones", "tag", "shuffle", "crop", "width"]
    assert (by_name["ema"].on, by_name["ema"].off, by_name["ema"].help) == ("--ema", "--no-ema", "100% (True)")
    assert (by_name["milestones"].kind, by_name["milestones"].default) == ("values", [30, 60])
    assert written(by_name["milestones"], ["1", "2"]) == ["--milestones", "1", "2"]
    assert written(by_name["tag"], ["a", "b"]) == ["--tag=a", "--tag=b"]
    assert written(by_name["shuffle"], False) == ["--shuffle="], "bool('False') would be true"
    assert by_name["crop"].default == 256
    assert (by_name["width"].default, by_name["width"].help) == (64, "a wide … one")


def test_argparse_subcommands_keep_their_options_apart(tmp_path: Path) -> None:
    by_name = script(
        tmp_path,
        """
        p = ArgumentParser()
        p.add_argument("--debug", action="store_true")
        sub = p.add_subparsers(dest="what", required=True)
        t = sub.add_parser("train")
        t.add_argument("--lr", type=float, default=0.1)
        e = sub.add_parser("eval")
        e.add_argument("--lr", type=float, default=0.2)
        """,
    ).options
    assert [(o.name, o.command) for o in by_name] == [
        ("debug", None), ("command", None), ("lr", "train"), ("lr", "eval"),
    ]  # fmt: skip
    assert by_name[1].choices == ("train", "eval") and by_name[1].required


def test_a_parser_in_a_module_beside_the_script_is_followed(tmp_path: Path) -> None:
    by_name = options(
        tmp_path,
        """
        import lib.more
        from config import get_parser
        args = get_parser().parse_args()
        lib.more.add(args)
        """,
        config__py="""
        import argparse
        def base(p):
            p.add_argument("--lr", type=float, default=0.1)
        def get_parser():
            p = argparse.ArgumentParser()
            base(p)
            return p
        def other():
            argparse.ArgumentParser().add_argument("--not-this")
        if __name__ == "__main__":
            argparse.ArgumentParser().add_argument("--nor-this")
        """,
        lib_slash_more__py="""
        def add(p):
            p.add_argument("--more")
        def unused(p):
            p.add_argument("--unused")
        """,
    )
    assert set(by_name) == {"lr", "more"}


def test_a_module_that_changes_is_read_again_after_a_while(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("dashboard.script_reader.reading.REMEMBERED_FOR_S", -1e6)
    assert set(options(tmp_path, "import config\nconfig.f()", config__py="def f(p): p.add_argument('--a')")) == {"a"}
    (tmp_path / "config.py").write_text("def f(p): p.add_argument('--bbb')")
    assert {option.name for option in read_script(tmp_path, "train.py").options} == {"bbb"}


def test_click_options_arguments_and_switches(tmp_path: Path) -> None:
    by_name = options(
        tmp_path,
        """
        import click
        @click.command()
        @click.argument("data", type=click.Path(exists=True))
        @click.option("-b", "--batch-size", default=64, show_default=True, help="per GPU")
        @click.option("--opt", "optimizer", type=click.Choice(["sgd", "adam"]), default="sgd")
        @click.option("--amp/--no-amp", default=True)
        @click.option("--verbose", is_flag=True)
        @click.option("--layer", type=click.IntRange(1, 9), multiple=True)
        @click.option("--size", nargs=2, type=int, required=True)
        def main(**kw): ...
        """,
    )
    assert list(by_name) == ["data", "batch_size", "optimizer", "amp", "verbose", "layer", "size"]
    assert (by_name["data"].kind, by_name["data"].type, by_name["data"].required) == ("positional", "Path", True)
    assert (by_name["batch_size"].type, by_name["batch_size"].default) == ("int", 64)
    assert (by_name["optimizer"].flag, by_name["optimizer"].choices) == ("--opt", ("sgd", "adam"))
    assert (by_name["amp"].on, by_name["amp"].off, by_name["amp"].default) == ("--amp", "--no-amp", True)
    assert (by_name["verbose"].on, by_name["verbose"].off) == ("--verbose", None)
    assert (by_name["layer"].kind, by_name["layer"].type) == ("repeated", "int")
    assert (by_name["size"].kind, by_name["size"].required) == ("values", True)


def test_commands_of_a_click_group_are_chosen_first(tmp_path: Path) -> None:
    by_name = script(
        tmp_path,
        """
        import click
        @click.group()
        @click.option("--seed", type=int)
        def cli(seed): ...
        @cli.command()
        @click.option("--lr", type=float)
        def train(lr): ...
        @cli.command("check")
        def anything(): ...
        """,
    ).options
    assert [(o.name, o.command, o.choices) for o in by_name] == [
        ("command", None, ("train", "check")), ("seed", None, None), ("lr", "train", None),
    ]  # fmt: skip


def test_typer_signatures_old_and_new(tmp_path: Path) -> None:
    by_name = options(
        tmp_path,
        """
        from enum import Enum
        from typing import Annotated, Literal, Optional
        import typer
        app = typer.Typer()
        class Precision(str, Enum):
            full = "fp32"
            half = "bf16"
        @app.command()
        def main(
            ctx: typer.Context,
            data: str,
            lr: Annotated[float, typer.Option("--lr", "-l", help="the rate")] = 3e-4,
            epochs: int = typer.Option(10, help="passes"),
            name: str = typer.Option(...),
            precision: Precision = Precision.half,
            sampler: Literal["random", "fixed"] = "random",
            resume: Optional[str] = None,
            compile_model: bool = False,
            force: Annotated[bool, typer.Option("--force")] = False,
            tags: list[str] = typer.Option([]),
        ): ...
        """,
    )
    assert list(by_name)[:3] == ["data", "lr", "epochs"]
    assert by_name["data"].kind == "positional" and by_name["data"].required
    assert (by_name["lr"].flags, by_name["lr"].default, by_name["lr"].help) == (("--lr", "-l"), 3e-4, "the rate")
    assert (by_name["epochs"].flag, by_name["epochs"].default) == ("--epochs", 10)
    assert by_name["name"].required
    assert (by_name["precision"].choices, by_name["precision"].default) == (("fp32", "bf16"), "bf16")
    assert by_name["sampler"].choices == ("random", "fixed")
    assert (by_name["resume"].type, by_name["resume"].required) == ("str", False)
    assert (by_name["compile_model"].on, by_name["compile_model"].off) == (
        "--compile-model",
        "--no-compile-model",
    )
    assert (by_name["force"].on, by_name["force"].off) == ("--force", None)
    assert by_name["tags"].kind == "repeated"


def test_dataclasses_of_hf_and_the_trainers_own_arguments(tmp_path: Path) -> None:
    by_name = options(
        tmp_path,
        """
        from dataclasses import dataclass, field
        from transformers import HfArgumentParser, TrainingArguments
        @dataclass
        class Data:
            train_file: str
            max_length: int = field(default=512, metadata={"help": "Longest sequence"})
            layers: list[int] = field(default_factory=list)
            pack: bool = True
        @dataclass
        class Mine(TrainingArguments):
            learning_rate: float = 1e-3
            note: str | None = None
        data, training = HfArgumentParser((Data, Mine)).parse_args_into_dataclasses()
        """,
    )
    assert by_name["train_file"].required and not by_name["layers"].required
    assert (by_name["max_length"].default, by_name["max_length"].help) == (512, "Longest sequence")
    assert by_name["layers"].kind == "values"
    assert written(by_name["pack"], False) == ["--pack=False"]
    assert by_name["per_device_train_batch_size"].default == 8
    assert by_name["learning_rate"].default == 1e-3, "a field written again replaces the Trainer's"
    assert {"note", "output_dir", "resume_from_checkpoint"} <= set(by_name)


def test_tyro_classes_within_classes(tmp_path: Path) -> None:
    by_name = options(
        tmp_path,
        """
        import dataclasses, tyro
        @dataclasses.dataclass
        class Optim:
            lr: float = 1e-3
        @dataclasses.dataclass
        class Args:
            optim: Optim
            batch_size: int = 8
            "Samples per process"
            amp: bool = False
        args = tyro.cli(Args)
        """,
    )
    assert [option.flag for option in by_name.values()] == ["--optim.lr", "--batch-size", "--amp"]
    assert by_name["batch_size"].help == "Samples per process"
    assert by_name["amp"].off == "--no-amp"


def test_fire_takes_the_functions_parameters(tmp_path: Path) -> None:
    by_name = options(tmp_path, "import fire\ndef train(data, lr=0.1, *, amp=False): ...\nfire.Fire(train)")
    assert [(o.flag, o.required) for o in by_name.values()] == [
        ("--data", True),
        ("--lr", False),
        ("--amp", False),
    ]
    assert (by_name["lr"].type, by_name["amp"].kind) == ("float", "switch")


def test_globals_above_a_configurator(tmp_path: Path) -> None:
    by_name = options(
        tmp_path,
        """
        out_dir = 'out'
        gradient_accumulation_steps = 5 * 8 # used to simulate larger batch sizes
        batch_size = 12 # the micro-batch size
        learning_rate = 6e-4
        compile = True
        device = pick()
        _private = 1
        config_keys = [k for k, v in globals().items() if isinstance(v, int)]
        exec(open('configurator.py').read())
        later = 3
        """,
    )
    assert list(by_name) == ["out_dir", "gradient_accumulation_steps", "batch_size", "learning_rate", "compile"]
    assert (by_name["gradient_accumulation_steps"].default, by_name["batch_size"].help) == (
        40,
        "the micro-batch size",
    )
    assert written(by_name["compile"], False) == ["--compile=False"]
    assert written(by_name["learning_rate"], "{lr}") == ["--learning_rate={lr}"]


def test_lightnings_command_line_with_the_scripts_model_and_data(tmp_path: Path) -> None:
    by_name = options(
        tmp_path,
        """
        from lightning.pytorch.cli import LightningCLI
        class Net(LightningModule):
            def __init__(self, width: int = 64, lr: float = 0.02): ...
        class Data(LightningDataModule):
            def __init__(self, root: str, batch_size: int = 32): ...
        LightningCLI(Net, datamodule_class=Data)
        """,
    )
    assert by_name["subcommand"].choices[0] == "fit"
    assert by_name["model.lr"].default == 0.02 and by_name["data.batch_size"].default == 32
    assert by_name["data.root"].required
    assert "trainer.max_epochs" in by_name


def test_hydra_values_come_from_the_yaml_beside_the_script(tmp_path: Path) -> None:
    by_name = options(
        tmp_path,
        """
        import hydra
        @hydra.main(version_base=None, config_path="conf", config_name="config")
        def main(cfg): ...
        """,
        conf_slash_config__yaml="""
        defaults:
          - model: small
          - _self_
        data: ???
        batch_size: 32
        optim: {lr: 0.1, nesterov: true}
        """,
        conf_slash_model_slash_small__yaml="width: 64",
        conf_slash_model_slash_large__yaml="width: 512",
    )
    assert (by_name["model"].choices, by_name["model"].default) == (("large", "small"), "small")
    assert written(by_name["optim.lr"], "0.2") == ["optim.lr=0.2"]
    assert written(by_name["optim.nesterov"], False) == ["optim.nesterov=false"]
    assert by_name["data"].required and by_name["model.width"].default == 64


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"def (:\n", "line 1"),
        (b"\x7fELF\0\0", "binary"),
        (b"x = 1\n" * 300_000, "larger than 1 MiB"),
        (b"x = " + b"-" * 100_000 + b"1", "cannot be read"),
    ],
)
def test_file_that_is_no_script_is_refused_in_one_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "train.py").write_bytes(content)
    with pytest.raises(UnreadableScript, match=sentence):
        read_script(tmp_path, "train.py")


@pytest.mark.parametrize("entry", ["missing.py", ".", "x" * 5000, "a\0b"])
def test_folder_is_refused_as_a_script(tmp_path: Path, entry: str) -> None:
    with pytest.raises(UnreadableScript):
        read_script(tmp_path, entry)


def test_a_module_is_read_as_python_would_start_it(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/settings.py").write_text("def add(p): p.add_argument('--lr')")
    (tmp_path / "pkg/__main__.py").write_text("from pkg.settings import add\nadd(p)")
    assert [o.name for o in read_script(tmp_path, module="pkg").options] == ["lr"]
    with pytest.raises(UnreadableScript, match=r"no module pkg\.other"):
        read_script(tmp_path, module="pkg.other")


def test_argparse_choices_of_enums_ranges_and_dictionaries(tmp_path: Path) -> None:
    by_name = options(
        tmp_path,
        """
        import argparse, enum, json
        class Norm(enum.Enum):
            BATCH = "batch"
            GROUP = "group"
        class Level(enum.IntEnum):
            LOW = enum.auto()
            HIGH = enum.auto()
        MODELS = {"small": build_small, "large": build_large}
        p = argparse.ArgumentParser(description="100% of it")
        p.add_argument("--norm", type=Norm, choices=list(Norm), default=Norm.GROUP)
        p.add_argument("--norm-by-name", type=lambda text: Norm[text], choices=Norm, default=Norm.BATCH)
        p.add_argument("--values", choices=[n.value for n in Norm])
        p.add_argument("--names", choices=[n.name for n in Norm], default=Norm.BATCH.name)
        p.add_argument("--level", type=Level.__getitem__, choices=Level, default=Level.LOW)
        p.add_argument("--model", choices=MODELS, default="small")
        p.add_argument("--head", choices=sorted(MODELS.keys()))
        p.add_argument("--depth", type=int, choices=range(2, 12, 3), default=5,
                       help="%(default)d of %(metavar)s", metavar="N")
        p.add_argument("--port", type=int, choices=range(1024, 65536))
        p.add_argument("--extra", type=json.loads, default="{}")
        p.add_argument("--workers", type=int, default=count(), help="(default: %(default)s)")
        p.add_argument("--old-name", type=int, default=3, help=argparse.SUPPRESS)
        p.add_argument("--opt-in", default=argparse.SUPPRESS)
        """,
    )
    assert {name: option.choices for name, option in by_name.items() if option.choices} == {
        "norm": ("batch", "group"), "norm_by_name": ("BATCH", "GROUP"), "values": ("batch", "group"),
        "names": ("BATCH", "GROUP"), "level": ("LOW", "HIGH"), "model": ("small", "large"), "head": ("small", "large"),
        "depth": (2, 5, 8, 11),
    }  # fmt: skip
    assert [by_name[n].default for n in ("norm", "norm_by_name", "names", "level")] == [
        "group",
        "BATCH",
        "BATCH",
        "LOW",
    ]
    assert (by_name["norm"].type, by_name["extra"].type) == ("str", "json")
    assert (by_name["depth"].help, by_name["workers"].help) == ("5 of N", "(default: …)")
    assert "old_name" not in by_name and by_name["opt_in"].default is None


def test_choices_that_follow_from_themselves_are_unknown(tmp_path: Path) -> None:
    source = "from m import A\nA = sorted(A)\nB = sorted(C)\nC = list(B)\np.add_argument('--a', choices=A)"
    assert options(tmp_path, source + "\np.add_argument('--b', choices=B)")["a"].choices is None


def test_absl_flags_of_every_kind(tmp_path: Path) -> None:
    reading = script(
        tmp_path,
        """
        from absl import app, flags
        FLAGS = flags.FLAGS
        flags.DEFINE_float("lr", 1e-3, "the rate", lower_bound=0.0)
        flags.DEFINE_integer("batch_size", default=32, help="per device")
        flags.DEFINE_enum("model", "small", ["small", "large"], "which")
        flags.DEFINE_bool("compile", False, "use it")
        flags.DEFINE_multi_string("tag", [], "tags")
        flags.DEFINE_list("layers", ["1", "2"], "several")
        flags.DEFINE_string("data", None, "folder", required=True)
        flags.DEFINE_string("out", None, "folder")
        flags.mark_flags_as_required(["out"])
        app.run(main)
        """,
    )
    by_name = {option.name: option for option in reading.options}
    assert reading.parsers == ("absl",) and reading.unread == ()
    assert (by_name["lr"].default, by_name["lr"].type, by_name["lr"].help) == (1e-3, "float", "the rate")
    assert by_name["model"].choices == ("small", "large") and by_name["batch_size"].default == 32
    assert written(by_name["compile"], True) == ["--compile"] and written(by_name["compile"], False) == ["--nocompile"]
    assert written(by_name["tag"], ["a", "b"]) == ["--tag=a", "--tag=b"] and by_name["layers"].default == "1,2"
    assert by_name["data"].required and by_name["out"].required


def test_omegaconf_settings_that_are_merged_with_the_command_line(tmp_path: Path) -> None:
    by_name = options(
        tmp_path,
        """
        from dataclasses import dataclass
        from omegaconf import OmegaConf
        @dataclass
        class Data:
            batch_size: int = 4
            shuffle: bool = True
        base = OmegaConf.create({"lr": 1e-3, "model": {"width": 64, "act": None}, "path": "???", "n": count()})
        cfg = OmegaConf.merge(base, OmegaConf.load("more.yaml"), OmegaConf.structured(Data), OmegaConf.from_cli())
        """,
        more__yaml="trainer:\n  epochs: 3\n",
    )
    assert {"lr", "model.width", "model.act", "path", "n", "trainer.epochs", "batch_size", "shuffle"} == set(by_name)
    assert by_name["path"].required and written(by_name["model.width"], "8") == ["model.width=8"]
    assert written(by_name["shuffle"], False) == ["shuffle=false"]
