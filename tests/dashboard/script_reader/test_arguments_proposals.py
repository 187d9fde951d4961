"""Which option takes what the form decides: only the one that surely does, and the launcher that fits."""

from __future__ import annotations

from textwrap import dedent

import pytest

from dashboard.script_reader.command import Filled, compose, key_of, take_apart
from dashboard.script_reader.reading import Script, script_in
from tests.dashboard.script_reader.programs import program_in


def script(source: str) -> Script:
    return script_in(program_in(dedent(source), "train.py"))


def argparse(*lines: str) -> Script:
    return script("\n".join(f"p.add_argument({line})" for line in lines))


def ticked(reading: Script) -> set[str]:
    return {proposal.argument for proposal in reading.proposals if proposal.is_ticked}


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (
            [
                "'-b', '--batch-size', type=int",
                "'--lr', '--learning-rate', type=float",
                "'--epochs', type=int",
                "'--resume', default=''",
                "'--seed', type=int",
            ],
            {
                "--batch-size={batch_size}",
                "--lr={lr}",
                "--epochs={epochs}",
                "--resume={resume}",
                "--seed={seed}",
            },
        ),
        (
            [
                "'--per_device_train_batch_size', type=int",
                "'--train_batch_size', type=int",
                "'--learning_rate', type=float",
                "'--num_train_epochs', type=float",
                "'--gradient_accumulation_steps', type=int",
            ],
            {
                "--per_device_train_batch_size={batch_size}",
                "--learning_rate={lr}",
                "--num_train_epochs={epochs}",
                "--gradient_accumulation_steps={accumulate}",
            },
        ),
        (
            ["'--batch_size', default=8", "'--max_iters', type=int"],
            {"--batch_size={batch_size}", "--max_iters={max_steps}"},
        ),
        (["'-b', type=int, dest='batch_size'"], {"-b {batch_size}"}),
        (["'total_epochs', type=int", "'save_every', type=int"], {"{epochs}"}),
        (["'--output-dir', required=True"], {"--output-dir={run_dir}"}),
        (
            ["'--data.batch_size', type=int", "'--val.batch_size', type=int"],
            {"--data.batch_size={batch_size}"},
        ),
        # What only looks alike:
        (
            [
                "'--lr-decay', type=float",
                "'--eval-batch-size', type=int",
                "'--test-batch-size', type=int",
                "'--resume-only'",
                "'--start-epoch', type=int",
                "'--epochs-per-eval', type=int",
            ],
            set(),
        ),
        (["'--resume', action='store_true'"], set()),
        (["'--resume', choices=['auto', 'never']"], set()),
        (["'--resume', type=int"], set()),
        (["'--encoder.lr', type=float", "'--decoder.lr', type=float"], set()),
        (["'--output-dir', default='out'"], set()),
    ],
)
def test_options_are_proposed_only_for_what_they_surely_take(options, arguments):
    assert ticked(argparse(*options)) == arguments


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("p.add_argument('--global-batch-size', type=int)", "batch of all GPUs together"),
        (
            "p.add_argument('-b', '--batch-size', type=int, help='the total batch size of all GPUs on a node')",
            "its help says",
        ),
        (
            "p.add_argument('--batch-size', type=int)\nargs.batch_size = int(args.batch_size / ngpus_per_node)",
            "line 2 divides",
        ),
    ],
)
def test_a_batch_for_all_gpus_is_not_filled_in_with_that_of_one(source, why):
    (proposal,) = script(source).proposals
    assert not proposal.is_ticked and why in proposal.reason


def test_nanogpt_divides_its_accumulation_by_the_ranks():
    reading = script(
        """
        gradient_accumulation_steps = 5 * 8
        batch_size = 12
        exec(open('configurator.py').read())
        gradient_accumulation_steps //= ddp_world_size
        """
    )
    assert ticked(reading) == {"--batch_size={batch_size}"}
    assert any("line 5 divides" in proposal.reason for proposal in reading.proposals)


def test_a_precision_is_asked_for_in_the_scripts_own_words():
    reading = argparse("'--dtype', choices=['float32', 'bfloat16', 'float16']", "'--bf16', action='store_true'")
    arguments = {(proposal.only_when, proposal.argument) for proposal in reading.proposals}
    assert arguments == {("bf16", "--dtype=bfloat16"), ("fp16", "--dtype=float16")}
    (only,) = argparse("'--bf16', action='store_true'").proposals
    assert (only.only_when, only.argument) == ("bf16", "--bf16")


def test_lightning_is_told_to_fit():
    reading = script("from lightning.pytorch.cli import LightningCLI\nLightningCLI(Net)")
    assert {"fit", "--trainer.max_epochs={epochs}", "--ckpt_path={resume}"} <= ticked(reading)


FORM = """
p.add_argument("data")
p.add_argument("--lr", type=float, default=0.1)
p.add_argument("--layers", nargs="+", type=int)
p.add_argument("--amp", action="store_true")
p.add_argument("--accum-steps", type=int, default=4)
p.add_argument("--tag", action="append")
"""


def composed(free: str = "", taken=("lr", "accumulate"), **given) -> list[str]:
    reading = script(FORM)
    return compose(reading.options, reading.proposals, Filled(given, taken), free.split())


def test_unchanged_value_adds_no_argument():
    assert composed(taken=()) == []
    assert composed() == ["--lr={lr}"], "an accumulation of 1 leaves the script's own"


def test_words_stand_first_and_lists_before_what_ends_them():
    assert composed(data="/d", layers="1 2", amp=True, tag="a 'b c'") == [
        "/d", "--layers", "1", "2", "--lr={lr}", "--amp", "--tag=a", "--tag=b c",
    ]  # fmt: skip


@pytest.mark.parametrize("free", ["--lr 0.5", "--lr=0.5", "--layers 9 --lr=1"])
def test_free_argument_wins(free):
    assert not any(word.startswith("--lr") for word in composed(free))


def test_arguments_are_taken_apart_into_the_fields_that_made_them():
    reading = script(FORM)
    args = ["/d", "--layers", "1", "2", "--lr={lr}", "--amp", "--tag=a", "--tag=b c", "--other"]
    filled, rest = take_apart(reading.options, reading.proposals, args, Filled())
    assert rest == ["--other"] and list(filled.ticked) == ["lr"]
    assert filled.values == {"data": "/d", "layers": "1 2", "amp": True, "tag": "a 'b c'"}


@pytest.mark.parametrize("args", [["--amp", "/d"], ["--lr", "0.1"], ["--amp", "--amp"], ["x", "y", "--layers"]])
def test_arguments_in_another_order_stay_exactly_as_they_are(args):
    reading = script(FORM)
    filled, rest = take_apart(reading.options, reading.proposals, args, Filled())
    assert [*compose(reading.options, reading.proposals, filled, rest), *rest] == args


def test_each_proposal_has_a_key_of_its_own():
    reading = argparse("'--dtype', choices=['bf16', 'fp16']", "'--lr', type=float")
    assert sorted(map(key_of, reading.proposals)) == ["lr", "precision bf16", "precision fp16"]


@pytest.mark.parametrize(
    ("source", "launcher", "strategy", "reason"),
    [
        (
            "import os\nrank = int(os.environ['LOCAL_RANK'])",
            "torchrun",
            "ddp",
            "reads LOCAL_RANK from the environment, line 2",
        ),
        (
            "import os\nif 'RANK' in os.environ and os.getenv('WORLD_SIZE'): pass",
            "torchrun",
            "ddp",
            "reads RANK",
        ),
        (
            "import torch.distributed as dist\ndist.init_process_group()",
            "torchrun",
            "ddp",
            "init_process_group, line 2",
        ),
        ("from accelerate import Accelerator\na = Accelerator()", "torchrun", "ddp", "Accelerator, line 2"),
        ("from transformers import Trainer\nTrainer(model)", "torchrun", "ddp", "Trainer of transformers"),
        (
            "import lightning as L\nL.Trainer(max_epochs=3)",
            "torchrun",
            "ddp",
            "Lightning's Trainer (line 2) joins",
        ),
        (
            "import pytorch_lightning as pl\npl.Trainer(strategy='ddp_spawn')",
            "python",
            "ddp",
            "strategy='ddp_spawn' on line 2",
        ),
        ("import torch.multiprocessing as mp\nmp.spawn(f, nprocs=2)", "python", "ddp", "mp.spawn on line 2"),
        ("from torch.multiprocessing import spawn\nspawn(f)", "python", "ddp", "spawn on line 2"),
        (
            "import torch.multiprocessing as mp\nmp.start_processes(f)",
            "python",
            "ddp",
            "mp.start_processes on line 2",
        ),
        (
            "import multiprocessing, torch.distributed as dist\ndist.init_process_group('gloo', rank=r)\n"
            "multiprocessing.Process(target=f)",
            "python",
            "ddp",
            "starts its processes itself, line 3",
        ),
        ("p.add_argument('--local_rank', type=int)", "launch", "ddp", "takes its rank as --local_rank"),
        (
            "import os\np.add_argument('--local_rank', type=int)\nos.environ['LOCAL_RANK']",
            "torchrun",
            "ddp",
            "reads LOCAL_RANK",
        ),
        ("import torch.nn as nn\nm = nn.DataParallel(m)", "python", "dp", "DataParallel, line 2"),
        ("import torch\nprint(1)", "python", "single", "No distributed code in train.py"),
        ("import composer", "torchrun", "ddp", "imports composer"),
    ],
)
def test_the_launcher_is_guessed_from_what_the_source_says(source, launcher, strategy, reason):
    guess = script(source).guess
    assert (guess.launcher, guess.strategy) == (launcher, strategy)
    assert reason in guess.reason


@pytest.mark.parametrize(
    ("source", "warning"),
    [
        (
            "import os, torch.multiprocessing as mp\nos.environ['MASTER_PORT'] = '12355'\nmp.spawn(f)",
            "MASTER_PORT itself (line 2)",
        ),
        (
            "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nos.environ['RANK']",
            "GPUs allocated to the run are ignored",
        ),
        (
            "p.add_argument('--mp', action='store_true')\nimport torch.multiprocessing as m\nif args.mp:\n m.spawn(f)",
            "only with --mp (line 3)",
        ),
        (
            "import torch.distributed as dist\ndist.init_process_group(init_method=args.dist_url)",
            "init_method=args.dist_url",
        ),
        ("import torch\nx = 1", "neither prints nor logs"),
    ],
)
def test_warning_names_its_line(source, warning):
    assert warning in " ".join(script(source).guess.warnings)


def test_a_port_that_is_only_a_default_is_no_trouble():
    reading = script("import os\nos.environ.setdefault('MASTER_PORT', '1')\nos.environ['RANK']\nprint(1)")
    assert reading.guess.warnings == []
