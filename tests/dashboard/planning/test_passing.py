"""The values of a launch arrive at the script's own options, or the launch says which do not and why."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from dashboard.planning.resolve import ClusterNodes, Resolved, resolve
from domain.launch.plan import TaskContext, plan
from domain.spec import RunSpec

ARGPARSE = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("-l", "--lr", "--learning-rate", dest="rate", type=float, default=3e-4)
p.add_argument("-b", "--batch_size", type=int, default=64)
p.add_argument("--num-epochs", type=int, default=10)
p.add_argument("--num_warmup_steps", type=int, default=0)
p.add_argument("--seed", type=int)
p.add_argument("--tags", nargs="*")
p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(ARGPARSE)
    return path


def resolved(path: Path, **asked: Any) -> Resolved:
    spec = RunSpec(target=str(path), gpus_per_node=2, **asked)
    return resolve(spec, ClusterNodes())


def started(path: Path, **asked: Any) -> list[str]:
    """What the script is started with."""
    argv = plan(resolved(path, **asked).spec, TaskContext()).argv
    return list(argv[argv.index(next(one for one in argv if one.endswith("train.py"))) + 1 :])


def environment(result: Resolved) -> dict[str, str]:
    return dict(plan(result.spec, TaskContext()).env)


def test_values_arrive_once_under_the_scripts_own_names(script: Path) -> None:
    asked = {"lr": 1e-3, "batch_size": 4, "epochs": 2, "seed": 7, "warmup_steps": 5, "precision": "bf16"}
    assert started(script, **asked) == [
        "--lr=0.001", "--batch_size=4", "--num-epochs=2", "--num_warmup_steps=5", "--seed=7", "--dtype=bfloat16",
    ]  # fmt: skip
    result = resolved(script, **asked)
    assert result.not_passed == [] and (result.spec.lr, result.spec.batch_size) == (1e-3, 4)


def test_arguments_stay_as_they_were_typed_behind_what_is_passed(script: Path) -> None:
    typed = ["--tags", "a b", "x='y'", '{"a": 1}', "{}", "", "{other}"]
    assert started(script, lr=1e-3, args=typed) == ["--lr=0.001", *typed]
    assert started(script, args=typed) == typed
    assert started(script, lr=1e-3, args=["--lr", "{lr}"]) == ["--lr", "0.001"]


def test_a_spec_that_is_resolved_again_stays_as_it_is(script: Path) -> None:
    once = resolved(script, lr=1e-3, max_steps=9).spec
    assert resolve(once, ClusterNodes()).spec == once


@pytest.mark.parametrize("args", [["--learning-rate", "0.5"], ["--lr=0.5"], ["-l0.5"], ["--learn=0.5"], ["-l", "0.5"]])
def test_arguments_that_set_an_option_count_and_are_what_the_run_shows(script: Path, args: list[str]) -> None:
    result = resolved(script, lr=1e-3, lr_scaling="linear", args=args)
    assert (result.spec.args, result.spec.scaled_lr) == (args, 0.5)
    assert result.not_passed == [
        "The arguments already set --lr to 0.5: the learning rate, 0.001, is not used."
    ]  # fmt: skip


def test_a_precision_in_the_arguments_is_what_the_run_shows(script: Path) -> None:
    result = resolved(script, precision="fp16", args=["--dtype", "bfloat16"])
    assert result.spec.precision == "bf16" and "already set --dtype" in result.not_passed[0]


def test_a_value_that_no_option_takes_is_said_and_not_shown_as_the_runs(script: Path) -> None:
    script.write_text("import torch\ntorch.optim.SGD(model.parameters(), lr=0.3)\n")
    result = resolved(script, lr=0.001, max_steps=70, accumulate=2)
    assert result.not_passed[1] == (
        "No known option of train.py sets the learning rate: 0.001 reaches it only as RANKZERO_LR in the environment. "
        "Its source has 0.3."
    )
    assert len(result.not_passed) == 3 and set(result.not_passed) <= set(result.warnings)
    assert (result.spec.lr, result.spec.max_steps, result.spec.accumulate) == (None, None, 1)
    assert result.figures().lr == 0.3
    variables = environment(result)
    assert [variables[f"RANKZERO_{name}"] for name in ("LR", "MAX_STEPS", "ACCUMULATE")] == ["0.001", "70", "2"]


def test_a_variable_that_the_script_reads_is_its_value(script: Path) -> None:
    script.write_text('import os\nlr = float(os.environ["RANKZERO_LR"])\n')
    result = resolved(script, lr=0.001)
    assert (result.spec.lr, result.spec.args, result.not_passed) == (0.001, [], [])
    script.write_text('import os\nvalues = {n: os.environ[f"RANKZERO_{n}"] for n in names}\n')
    assert resolved(script, lr=0.001).spec.lr == 0.001


def test_a_batch_of_all_ranks_is_not_passed_as_that_of_one(script: Path) -> None:
    script.write_text('p.add_argument("--batch-size", type=int, default=8, help="total batch over all GPUs")')
    result = resolved(script, batch_size=4)
    assert result.spec.args == [] and "for all GPUs together" in result.not_passed[0]


def test_options_of_a_subcommand_follow_it(script: Path) -> None:
    script.write_text(
        dedent(
            """
            p = argparse.ArgumentParser()
            sub = p.add_subparsers(dest="what")
            t = sub.add_parser("train")
            t.add_argument("--lr", type=float, default=0.1)
            """
        )
    )
    assert started(script, lr=1e-3, args=["train"]) == ["train", "--lr=0.001"]
    assert "RANKZERO_LR" in resolved(script, lr=1e-3).not_passed[0]
    script.write_text("from lightning.pytorch.cli import LightningCLI\nLightningCLI(Model, Data)")
    assert started(script, max_steps=9, args=["fit"]) == ["fit", "--trainer.max_steps=9"]


def test_a_value_that_is_taken_by_its_place_is_left_to_the_person(script: Path) -> None:
    script.write_text('p.add_argument("epochs", type=int)')
    result = resolved(script, epochs=3, args=["5"])
    assert result.spec.args == ["5"] and "Write {epochs} into the arguments." in result.not_passed[0]


@pytest.mark.parametrize(
    ("source", "args"),
    [
        ("from absl import flags\nflags.DEFINE_float('learning_rate', 0.1, 'x')", ["--learning_rate=0.001"]),
        (
            "from omegaconf import OmegaConf\n"
            "c = OmegaConf.merge(OmegaConf.create({'optim': {'lr': 0.1}}), OmegaConf.from_cli())",
            ["optim.lr=0.001"],
        ),
        ("import click\n@click.command()\n@click.option('--lr', default=0.1)\ndef main(lr): pass", ["--lr=0.001"]),
        ("import tyro\ndef main(learning_rate: float = 0.1): pass\ntyro.cli(main)", ["--learning-rate=0.001"]),
        ("import jsonargparse\ndef main(lr: float = 0.1): pass\njsonargparse.CLI(main)", ["--lr=0.001"]),
        ("import fire\ndef main(lr=0.1): pass\nfire.Fire(main)", ["--lr=0.001"]),
        ("from transformers import HfArgumentParser\nHfArgumentParser(TrainingArguments)", ["--learning_rate=0.001"]),
    ],
)
def test_every_library_gets_the_value_in_its_own_form(script: Path, source: str, args: list[str]) -> None:
    script.write_text(source)
    assert started(script, lr=1e-3) == args


@pytest.mark.parametrize(
    ("source", "library"),
    [
        ("import gin\ngin.parse_config_file('x.gin')", "gin"),
        ("import hydra\n@hydra.main(config_name='none')\ndef main(cfg): pass", "Hydra"),
        ("import tyro\nfrom elsewhere import Config\ntyro.cli(Config)", "tyro"),
        ("from omegaconf import OmegaConf\nc = OmegaConf.from_cli()", "OmegaConf"),
        ("import jsonargparse\nfrom elsewhere import main\njsonargparse.CLI(main)", "jsonargparse"),
        (
            "from jsonargparse import ArgumentParser\np = ArgumentParser()\np.add_class_arguments(Model, 'model')\n",
            "jsonargparse",
        ),
        (
            "import argparse\np = argparse.ArgumentParser()\nfor n in f(): p.add_argument('--' + n)\np.parse_args()",
            "argparse, with names that are computed",
        ),
    ],
)
def test_a_library_that_cannot_be_read_is_named(script: Path, source: str, library: str) -> None:
    script.write_text(source)
    sentence = resolved(script, lr=1e-3).not_passed[0]
    assert f"The options of train.py cannot be read from its source ({library})" in sentence
    assert "Write {lr} into the arguments." in sentence


def test_a_file_of_settings_stays_the_only_argument(script: Path) -> None:
    script.write_text("from transformers import HfArgumentParser\nHfArgumentParser(TrainingArguments)")
    result = resolved(script, lr=1e-3, args=["config.json"])
    assert result.spec.args == ["config.json"]
    assert "a file of settings, which train.py reads instead of --learning_rate" in result.not_passed[0]


def test_of_a_script_that_cannot_be_read_here_the_values_are_named(tmp_path: Path) -> None:
    spec = RunSpec(target="/only/there/train.py", workdir="/only/there", lr=0.1, args=["--seed={seed}"], seed=1)
    (sentence,) = resolve(spec, ClusterNodes()).not_passed
    assert sentence.endswith(
        "The learning rate, 0.1, reaches it only as RANKZERO_LR in the environment. Write {lr} into the arguments."
    )
