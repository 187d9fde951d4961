"""Launchers' options are read as the launchers read them."""

from __future__ import annotations

import os
from unittest import mock

import pytest
from torch.distributed.run import get_args_parser, parse_min_max_nnodes

from domain.watching.commands import address_of, command_of, script_of

TORCHRUNS: list[tuple[list[str], dict[str, str]]] = [
    (["train.py"], {}),
    (["--standalone", "--nproc-per-node", "2", "train.py", "--nnodes", "9"], {}),
    (["--nnodes=2", "--nproc_per_node=4", "--node_rank=1", "--master_addr=n0", "--master_port=1", "train.py"], {}),
    (["--nnodes", "2", "--nnodes", "3", "--rdzv-id", "a", "--rdzv-endpoint", "n0:29400", "-m", "pkg.train"], {}),
    (["--nnodes=3:3", "--nproc-per-node=gpu", "--no-python", "bash", "train.sh"], {}),
    (["train.py"], {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "8", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "n0"}),
    (["--nproc-per-node=2", "train.py"], {"PET_NPROC_PER_NODE": "8", "PET_RDZV_ENDPOINT": "n0:1", "PET_NNODES": "1:4"}),
]


@pytest.mark.parametrize(("options", "env"), TORCHRUNS)
def test_torchrun_is_read_as_torchrun_reads_itself(options: list[str], env: dict[str, str]):
    with mock.patch.dict(os.environ, env):
        theirs = get_args_parser().parse_args(options)
    least, most = parse_min_max_nnodes(theirs.nnodes)
    ours = command_of(["torchrun", *options], env)
    assert ours is not None
    assert ours.nodes == (1 if theirs.standalone else least if least == most else None)
    assert ours.ranks_here == (int(theirs.nproc_per_node) if theirs.nproc_per_node.isdigit() else None)
    assert (ours.node_rank or 0) == int(theirs.node_rank)
    if ours.nodes != 1:
        static = f"{theirs.master_addr or '127.0.0.1'}:{theirs.master_port or 29500}"
        assert ours.rendezvous == (theirs.rdzv_endpoint or static)
        assert (ours.rendezvous_id or "none") == theirs.rdzv_id


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "train.py", "torchrun", "--nnodes=2"],
        ["python", "-m", "pkg.train", "--launcher", "torchrun"],
        ["bash", "train.sh"],
        ["./train.py", "srun"],
        [],
    ],
)
def test_what_a_script_is_given_is_no_launcher(argv: list[str]):
    assert command_of(argv, {}) is None


@pytest.mark.parametrize(
    "argv",
    [
        ["numactl", "--localalloc", "torchrun", "--nproc-per-node=2", "train.py"],
        ["env", "OMP_NUM_THREADS=1", "/opt/env/bin/torchrun", "--nproc-per-node=2", "train.py"],
        ["bash", "-lc", "source env.sh && torchrun --nproc-per-node=2 train.py"],
        ["uv", "run", "python", "-u", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py"],
    ],
)
def test_a_launcher_is_found_behind_other_programs(argv: list[str]):
    command = command_of(argv, {})
    assert command is not None and command.ranks_here == 2


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        (["python", "src/train.py", "--config", "other.py"], "train.py"),
        (["./train.py"], "train.py"),
        (["python", "-m", "torch.distributed.run", "-m", "pkg.train"], "pkg.train"),
        (["torchrun", "--nproc-per-node=2", "-m", "pkg.train"], "pkg.train"),
        (["bash", "-c", "cd code && python train.py"], "train.py"),
        (["/opt/bin/my-train", "--lr", "1"], "my-train"),
        ([], ""),
    ],
)
def test_the_script_of_a_command(argv: list[str], script: str):
    assert script_of(argv) == script


def test_this_node_has_its_name_where_others_could_not_tell_it_by_its_address():
    assert [address_of(name, "1", "me") for name in ("localhost", "127.0.1.1", "::1", "", None)] == ["me:1"] * 5
    assert [address_of(text, None, "me") for text in ("n0:1", "n0", "localhost:1")] == ["n0:1", "n0:", "me:1"]
