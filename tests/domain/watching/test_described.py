"""How a command becomes a run: its script, its name, its ranks, and the command that starts it again."""

from __future__ import annotations

import pytest

from domain.watching.described import dimensions, program_of
from domain.watching.messages import WatchedCommand
from domain.watching.views import command_again, path_on_machine, resumed
from domain.watching.worlds import SeenWorld, worlds_finding


def command(*argv: str) -> WatchedCommand:
    return WatchedCommand(argv=[*argv], cwd="/home/mara", host="gpu-3", account="mara", pid=1)


@pytest.mark.parametrize(
    ("argv", "target", "module", "args"),
    [
        (["python", "train.py", "--lr", "1"], "/home/mara/train.py", None, ["--lr", "1"]),
        (["torchrun", "--nproc-per-node", "8", "src/train.py"], "/home/mara/src/train.py", None, []),
        (["python", "-m", "torch.distributed.run", "/opt/t.py", "-x"], "/opt/t.py", None, ["-x"]),
        (["torchrun", "-m", "vision.train", "--lr=1"], "/home/mara", "vision.train", ["--lr=1"]),
        (["deepspeed", "--num_gpus", "2"], "deepspeed", None, ["--num_gpus", "2"]),
        ([], "/home/mara", None, []),
    ],
)
def test_the_program_of_a_command(argv, target, module, args):
    assert program_of(command(*argv)) == (target, args, module)


@pytest.mark.parametrize(
    ("expected", "ranks", "worlds", "shape"),
    [
        (1, [None], [None], (1, 1)),
        (1, [8], [8], (1, 8)),
        (4, [2], [None], (4, 2)),  # three are still to come
        (1, [2, 2], [None, None], (2, 2)),  # more came than were expected
        (2, [None, None], [16, 16], (2, 8)),
        (2, [3, 5], [8, 8], (2, 4)),
        (2, [3, 4], [7, 7], (1, 7)),
        (2, [4, 4], [8, None], (2, 4)),
        (2, [4, 4], [4, 8], (2, 4)),  # no one world: all ranks count
        (2, [8, 8], [8, 8], (2, 8)),  # each has one of its own
    ],
)
def test_the_dimensions_give_the_world(expected, ranks, worlds, shape):
    assert dimensions(expected, ranks, worlds) == shape


def test_worlds_that_differ_are_a_finding():
    agree = [SeenWorld(0, "a", 4, 2), SeenWorld(1, "b", 4, 2)]
    assert worlds_finding(agree) is None and worlds_finding(agree[:1]) is None
    differ = worlds_finding([SeenWorld(0, "a", 4, 2), SeenWorld(1, "b", 2, None)])
    assert differ is not None and "process 0 on a one of 4 ranks and process 1 on b one of 2 ranks" in differ.evidence
    assert worlds_finding([SeenWorld(0, "a", 2, 2), SeenWorld(1, "b", 2, 2)]) is not None


@pytest.mark.parametrize(
    ("argv", "with_checkpoint"),
    [
        (["t.py", "--resume", "old.pt", "--lr", "1"], ["t.py", "--resume", "/c/new.pt", "--lr", "1"]),
        (["t.py", "--resume-from-checkpoint=old"], ["t.py", "--resume-from-checkpoint=/c/new.pt"]),
        (["t.py", "trainer.ckpt_path=1", "ckpt_path=null"], ["t.py", "trainer.ckpt_path=1", "ckpt_path=/c/new.pt"]),
        (["t.py", "--resume", "--lr", "1"], ["t.py", "--resume", "--lr", "1"]),  # a switch has no value
        (["t.py", "--from", "{resume}"], ["t.py", "--from", "/c/new.pt"]),
        (["t.py"], ["t.py"]),
    ],
)
def test_the_checkpoint_is_filled_in_where_the_command_takes_one(argv, with_checkpoint):
    assert resumed(argv, "/c/new.pt") == with_checkpoint
    assert resumed(argv, None) == argv


def test_the_command_to_type_is_quoted_and_has_its_options():
    again = command_again(["python", "a b.py"], "/d/it's", "n", "vision", ["x"], None, look_only=True)
    assert again == (
        """cd '/d/it'"'"'s' && rankzero watch --name n --project vision --tag x --look-only -- python 'a b.py'"""
    )
    assert command_again([], "/d", "n", "default", [], None, look_only=False) is None


def test_a_checkpoint_lies_where_the_script_wrote_it():
    assert path_on_machine("/d", "workdir/ckpt/last.pt") == "/d/ckpt/last.pt"
    assert path_on_machine("/d", "workdir/checkpoint-40.tar") == "/d/checkpoint-40"
    assert path_on_machine("/d", "workdir/m.pth.tar") == "/d/m.pth.tar"
    assert path_on_machine("/d", "work/last.pt") is None
