"""Which run a process joins, with the environment that each scheduler gives it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from domain.watching.commands import is_torchrun, shares_output
from domain.watching.joins import Join, joined_by

PYTHON = ("python", "train.py", "--lr", "0.1")
TORCHRUN = ("torchrun", "--nproc-per-node", "4", "train.py")

STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_CLUSTER_NAME": "lab",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_NTASKS": "8",
}
BATCH = {
    "SLURM_JOB_ID": "4711",
    "SLURM_CLUSTER_NAME": "lab",
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "8",
    "ENVIRONMENT": "BATCH",
}
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
INDEXED = POD | {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "trainer-1", "MASTER_ADDR": "trainer-0.trainer"}
PYTORCH_JOB = POD | {
    "HOSTNAME": "trainer-worker-0",
    "MASTER_ADDR": "trainer-master-0",
    "MASTER_PORT": "23456",
    "WORLD_SIZE": "2",
    "RANK": "1",
    "PET_NODE_RANK": "1",
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "1",
    "PET_MASTER_ADDR": "trainer-master-0",
    "PET_MASTER_PORT": "23456",
}
TRAIN_JOB = POD | {
    "JOB_COMPLETION_INDEX": "1",
    "HOSTNAME": "tune-node-0-1",
    "PET_NNODES": "2",
    "PET_NODE_RANK": "1",
    "PET_NPROC_PER_NODE": "8",
    "PET_MASTER_ADDR": "tune-node-0-0.tune",
    "PET_MASTER_PORT": "29500",
}
SKYPILOT = {
    "SKYPILOT_TASK_ID": "sky-managed-2026-11-01-10-00-00-000000_tune_3-0",
    "SKYPILOT_NODE_RANK": "1",
    "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2\n",
    "SKYPILOT_NUM_GPUS_PER_NODE": "4",
}
DSTACK = {
    "DSTACK_RUN_NAME": "wet-mango-1",
    "DSTACK_RUN_ID": "3f2c",
    "DSTACK_NODE_RANK": "1",
    "DSTACK_NODES_NUM": "2",
    "DSTACK_MASTER_NODE_IP": "10.0.0.1",
}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "prterun-a-77@1"}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "PWD": "/home/ada/run"}
CHILD = {
    "TORCHELASTIC_RUN_ID": "c8f5b8d2-4f38-4c0e-8f1a-2b7a9d3c1e55",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "RANK": "3",
    "LOCAL_RANK": "3",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "41234",
}
ADDRESS = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "4", "RANK": "3"}

ONE = {"key": None, "is_lasting": False, "process": 0, "processes": 1, "rank": 0, "restart": 0}

ROWS: list[tuple[str, dict[str, str], tuple[str, ...], dict[str, Any]]] = [
    ("a terminal", {}, PYTHON, ONE | {"ranks_here": None, "world_size": None, "scheduler": None}),
    ("a notebook", {}, (), ONE | {"ranks_here": None}),
    ("torchrun in a terminal", {}, TORCHRUN, ONE | {"ranks_here": 4, "world_size": 4, "rank": None}),
    (
        "srun python",
        STEP,
        PYTHON,
        {
            "key": "slurm lab 4711.0",
            "is_lasting": True,
            "process": 1,
            "processes": 2,
            "ranks_here": 1,
            "world_size": 2,
            "rank": 1,
            "scheduler": "Slurm job 4711",
            "restart": 0,
        },
    ),
    (
        "srun torchrun on each node",
        STEP,
        ("torchrun", "--nnodes=2", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=n0:29500", "train.py"),
        {"key": "slurm lab 4711.0", "process": 1, "processes": 2, "ranks_here": 4, "world_size": 8, "rank": None},
    ),
    (
        "srun of a shell that starts torchrun",
        STEP,
        ("bash", "-c", "cd code && torchrun --nnodes=2 --nproc-per-node=4 --master-addr=n0 train.py"),
        {"key": "slurm lab 4711.0", "process": 1, "processes": 2, "ranks_here": 4, "world_size": 8, "rank": None},
    ),
    ("srun of a requeued job", STEP | {"SLURM_RESTART_COUNT": "2"}, PYTHON, {"key": "slurm lab 4711.0", "restart": 2}),
    ("the next srun", STEP | {"SLURM_STEP_ID": "1"}, PYTHON, {"key": "slurm lab 4711.1", "restart": 0}),
    (
        "srun with several ranks for each task",
        STEP | {"WORLD_SIZE": "8"},
        PYTHON,
        {"ranks_here": 4, "world_size": 8, "rank": None, "process": 1},
    ),
    (
        "srun, each task a world of its own",
        STEP | {"WORLD_SIZE": "1", "MASTER_ADDR": "localhost"},
        PYTHON,
        {"key": "slurm lab 4711.0", "ranks_here": 1, "world_size": 1},
    ),
    (
        "srun --pty bash",
        STEP | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_PTY_PORT": "40123"},
        PYTHON,
        ONE | {"scheduler": "Slurm job 4711"},
    ),
    (
        "a notebook within a job",
        STEP | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        (),
        ONE | {"scheduler": "Slurm job 4711"},
    ),
    ("a shell of salloc", {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "8"}, PYTHON, ONE | {"scheduler": "Slurm job 4711"}),
    (
        "a batch script",
        BATCH,
        TORCHRUN,
        {
            "is_lasting": True,
            "process": 0,
            "processes": 1,
            "ranks_here": 4,
            "world_size": 4,
            "rank": None,
            "scheduler": "Slurm job 4711",
        },
    ),
    (
        "a batch script that starts the first of several torchruns",
        BATCH,
        ("torchrun", "--nnodes=2", "--node-rank=0", "--master-addr=n0", "--master-port=29400", "train.py"),
        {"key": "rendezvous n0:29400", "is_lasting": False, "process": 0, "processes": 2},
    ),
    (
        "an Indexed Job",
        INDEXED | {"WORLD_SIZE": "2", "POD_NAMESPACE": "lab"},
        PYTHON,
        {
            "key": "kubernetes lab/trainer",
            "is_lasting": False,
            "process": 1,
            "processes": 2,
            "ranks_here": 1,
            "world_size": 2,
            "rank": 1,
            "scheduler": "Kubernetes job trainer",
        },
    ),
    (
        "an Indexed Job with torchrun",
        INDEXED,
        ("torchrun", "--nnodes=2", "--nproc-per-node=8", "--node-rank=1", "--master-addr=trainer-0.trainer", "a.py"),
        {"key": "kubernetes trainer", "process": 1, "processes": 2, "ranks_here": 8, "world_size": 16, "rank": None},
    ),
    (
        "an Indexed Job whose pods train alone",
        POD | {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "seeds-1"},
        PYTHON,
        ONE | {"scheduler": "Kubernetes job seeds"},
    ),
    (
        "a PyTorchJob",
        PYTORCH_JOB,
        PYTHON,
        {
            "key": "kubernetes trainer",
            "is_lasting": False,
            "process": 1,
            "processes": 2,
            "ranks_here": 1,
            "world_size": 2,
            "rank": 1,
            "scheduler": "PyTorchJob trainer",
        },
    ),
    (
        "a PyTorchJob's master",
        PYTORCH_JOB | {"HOSTNAME": "trainer-master-0", "RANK": "0", "PET_NODE_RANK": "0"},
        PYTHON,
        {"key": "kubernetes trainer", "process": 0, "rank": 0},
    ),
    (
        "a PyTorchJob with torchrun, which reads the variables",
        PYTORCH_JOB | {"WORLD_SIZE": "16", "PET_NPROC_PER_NODE": "8"},
        ("torchrun", "train.py"),
        {"key": "kubernetes trainer", "process": 1, "processes": 2, "ranks_here": 8, "world_size": 16, "rank": None},
    ),
    (
        "a PyTorchJob of an older operator",
        {name: value for name, value in PYTORCH_JOB.items() if not name.startswith("PET_")},
        PYTHON,
        {"key": "kubernetes trainer", "process": 1, "processes": 2, "ranks_here": 1, "rank": 1},
    ),
    (
        "an elastic PyTorchJob",
        POD
        | {
            "HOSTNAME": "trainer-worker-1",
            "PET_RDZV_ENDPOINT": "trainer-worker-0:23456",
            "PET_RDZV_BACKEND": "c10d",
            "PET_NNODES": "1:4",
            "PET_NPROC_PER_NODE": "2",
        },
        ("torchrun", "train.py"),
        {"key": "kubernetes trainer", "process": 1, "processes": None, "ranks_here": 2, "world_size": None},
    ),
    (
        "a TrainJob",
        TRAIN_JOB,
        ("torchrun", "train.py"),
        {"key": "kubernetes tune-node-0", "process": 1, "processes": 2, "ranks_here": 8, "world_size": 16},
    ),
    ("a pod", POD | {"HOSTNAME": "debug-x7"}, PYTHON, ONE | {"scheduler": "Kubernetes pod debug-x7"}),
    (
        "SkyPilot on several nodes",
        SKYPILOT,
        ("torchrun", "--nnodes=2", "--nproc-per-node=4", "--node-rank=1", "--master-addr=10.0.0.1", "src/train.py"),
        {
            "key": f"skypilot {SKYPILOT['SKYPILOT_TASK_ID']} train.py",
            "is_lasting": True,
            "process": 1,
            "processes": 2,
            "ranks_here": 4,
            "world_size": 8,
            "scheduler": f"SkyPilot task {SKYPILOT['SKYPILOT_TASK_ID']}",
        },
    ),
    (
        "dstack on several nodes",
        DSTACK,
        ("torchrun", "--nnodes=2", "--nproc-per-node=4", "--node-rank=1", "--master-addr=10.0.0.1", "-m", "my.train"),
        {
            "key": "dstack 3f2c my.train",
            "is_lasting": True,
            "process": 1,
            "processes": 2,
            "ranks_here": 4,
            "scheduler": "dstack run wet-mango-1",
        },
    ),
    (
        "mpirun python",
        OPEN_MPI,
        PYTHON,
        {
            "key": "mpi prterun-a-77@1 4",
            "is_lasting": False,
            "process": 3,
            "processes": 4,
            "ranks_here": 1,
            "world_size": 4,
            "rank": 3,
            "scheduler": "Open MPI",
        },
    ),
    ("mpirun in a job of Slurm", STEP | OPEN_MPI, PYTHON, {"key": "mpi prterun-a-77@1 4", "process": 3, "rank": 3}),
    ("mpirun torchrun on each node", OPEN_MPI, TORCHRUN, {"process": 3, "ranks_here": 4, "world_size": 4}),
    ("Hydra", HYDRA, PYTHON, {"key": "mpi /home/ada/run 4", "process": 3, "processes": 4, "scheduler": "MPI"}),
    ("Hydra with an address", HYDRA | {"MASTER_ADDR": "n0", "MASTER_PORT": "1"}, PYTHON, {"key": "mpi n0:1 4"}),
    ("srun with PMI", STEP | {"PMI_RANK": "1", "PMI_SIZE": "2"}, PYTHON, {"key": "slurm lab 4711.0"}),
    (
        "torchrun on each node by hand",
        {},
        ("python", "-m", "torch.distributed.run", "--nnodes", "2", "--node_rank", "1", "--master_addr", "n0", "a.py"),
        {"key": "rendezvous n0:29500", "is_lasting": False, "process": 1, "processes": 2, "ranks_here": 1, "rank": 1},
    ),
    (
        "torchrun with c10d",
        {},
        ("torchrun", "--nnodes=1:4", "--nproc-per-node=gpu", "--rdzv-id=7", "--rdzv-endpoint=n0:29400", "train.py"),
        {"key": "rendezvous n0:29400 7", "process": None, "processes": None, "ranks_here": None, "rank": None},
    ),
    (
        "torchrun with variables",
        {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_NPROC_PER_NODE": "4", "PET_RDZV_ENDPOINT": "n0:29400"},
        ("torchrun", "train.py"),
        {"key": "rendezvous n0:29400", "process": 1, "processes": 2, "ranks_here": 4, "world_size": 8},
    ),
    (
        "torchrun on two nodes that names its own host",
        {},
        ("torchrun", "--nnodes=2", "--node-rank=0", "train.py"),
        {"key": "rendezvous host0:29500", "process": 0},
    ),
    (
        "accelerate launch on each node",
        {},
        ("accelerate", "launch", "--num_machines=2", "--machine_rank=1", "--num_processes=8",
         "--main_process_ip=n0", "--main_process_port=29500", "train.py", "--num_machines=9"),
        {"key": "rendezvous n0:29500", "process": 1, "processes": 2, "ranks_here": 4, "world_size": 8},
    ),
    ("accelerate launch", {}, ("accelerate", "launch", "train.py"), ONE | {"ranks_here": None, "rank": None}),
    ("deepspeed", {}, ("deepspeed", "--num_gpus=4", "train.py"), ONE | {"ranks_here": 4, "rank": None}),
    ("deepspeed over ssh", {}, ("deepspeed", "--hostfile=hosts", "train.py"), ONE | {"ranks_here": None, "rank": None}),
    (
        "deepspeed on each node",
        {},
        ("deepspeed", "--no_ssh", "--num_nodes=2", "--node_rank=1", "--master_addr=n0", "--num_gpus=4", "train.py"),
        {"key": "rendezvous n0:29500", "process": 1, "processes": 2, "ranks_here": 4},
    ),
    ("mpirun below us", {}, ("mpirun", "-np", "4", "python", "train.py"), ONE | {"ranks_here": 4, "rank": None}),
    ("mpirun on other hosts", {}, ("mpirun", "-np", "4", "-H", "a,b", "python", "train.py"), ONE | {"rank": None}),
    ("srun below us", BATCH, ("srun", "python", "train.py"), {"process": 0, "processes": 1, "rank": None}),
    (
        "one by one with an address",
        ADDRESS,
        PYTHON,
        {
            "key": "address 10.0.0.1:29500 4",
            "is_lasting": False,
            "process": 3,
            "processes": 4,
            "ranks_here": 1,
            "world_size": 4,
            "rank": 3,
            "scheduler": None,
        },
    ),
    ("on one host", ADDRESS | {"MASTER_ADDR": "localhost"}, PYTHON, {"key": "address host0:29500 4"}),
    ("a world of one", ADDRESS | {"WORLD_SIZE": "1", "RANK": "0"}, PYTHON, ONE),
    (
        "torchrun's child that watches itself",
        CHILD,
        (),
        {
            "key": f"torchrun {CHILD['TORCHELASTIC_RUN_ID']}",
            "is_lasting": True,
            "process": 3,
            "processes": 4,
            "ranks_here": 1,
            "world_size": 4,
            "rank": 3,
        },
    ),
    (
        "torchrun's child, started again",
        CHILD | {"TORCHELASTIC_RESTART_COUNT": "1"},
        (),
        {"key": f"torchrun {CHILD['TORCHELASTIC_RUN_ID']}", "restart": 1},
    ),
    (
        "torchrun's child of an id that may come again",
        CHILD | {"TORCHELASTIC_RUN_ID": "7", "MASTER_ADDR": "n0"},
        PYTHON,
        {"key": "torchrun 7 n0:41234", "is_lasting": False, "process": 3},
    ),
    (
        "torchrun's child in a task of Slurm",
        STEP | CHILD,
        PYTHON,
        {"key": "slurm lab 4711.0", "is_lasting": True, "process": 3, "processes": 4, "rank": 3},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("env", "argv", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_process_joins_by_what_its_scheduler_tells(
    env: dict[str, str], argv: tuple[str, ...], expected: dict[str, Any]
):
    join = joined_by(env, argv, None, "host0")
    assert {name: getattr(join, name) for name in expected} == expected


@pytest.mark.parametrize(("env", "argv"), [row[1:3] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_key_of_ones_own_replaces_that_of_the_scheduler(env: dict[str, str], argv: tuple[str, ...]):
    own, theirs = joined_by(env, argv, "mine", "host0"), joined_by(env, argv, None, "host0")
    assert (own.key, own.is_lasting) == ("run mine", True)
    if theirs.key:
        assert asdict(own) == asdict(theirs) | {"key": own.key, "is_lasting": True}


def test_with_a_key_of_ones_own_processes_without_numbers_take_the_first_free_place():
    assert joined_by({}, PYTHON, "mine", "host0") == Join(
        key="run mine", is_lasting=True, process=None, processes=None, ranks_here=None, world_size=None, rank=0,
        scheduler=None, restart=0,
    )  # fmt: skip


def test_with_a_key_of_ones_own_the_pods_of_a_job_keep_their_numbers():
    env = POD | {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "trainer-1"}
    assert joined_by(env, PYTHON, "mine", "host0").process == 1


def test_all_nodes_of_a_run_share_its_key():
    for env, names in [(STEP, ["SLURM_PROCID"]), (INDEXED, ["JOB_COMPLETION_INDEX", "HOSTNAME"])]:
        first = env | {name: env[name].replace("1", "0") for name in names}
        assert joined_by(first, PYTHON, None, "a").key == joined_by(env, PYTHON, None, "b").key
        assert joined_by(first, PYTHON, None, "a").process == 0


def test_the_commands_that_a_batch_script_starts_after_each_other_are_runs_of_their_own():
    train, evaluate = (joined_by(BATCH, ("python", "train.py", lr), None, "n0").key for lr in ("1", "2"))
    assert train != evaluate
    again = joined_by(BATCH | {"SLURM_RESTART_COUNT": "1"}, ("python", "train.py", "1"), None, "n1")
    assert (again.key, again.restart) == (train, 1)


@pytest.mark.parametrize(
    ("env", "argv"),
    [
        ({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "x", "SLURM_NTASKS": ""}, PYTHON),
        ({"OMPI_COMM_WORLD_RANK": "-1"}, ()),
        (POD | {"JOB_COMPLETION_INDEX": "½"}, ("bash", "-c", "torchrun 'x")),
        ({"WORLD_SIZE": "many", "MASTER_ADDR": ""}, ("torchrun",)),
        ({}, ("torchrun", "--nnodes=:", "--nproc-per-node=$GPUS", "--node-rank")),
        ({"TORCHELASTIC_RUN_ID": "", "RANK": "0"}, ("python", "-m")),
        ({"PMI_RANK": "0"}, ("accelerate", "launch", "--num_machines=0", "--num_processes=4")),
    ],
)
def test_whatever_stands_in_the_variables_the_command_is_not_held_up(env: dict[str, str], argv: tuple[str, ...]):
    joined_by(env, argv, None, "host0")


@pytest.mark.parametrize(
    ("command", "is_shared"),
    [
        ("torchrun --nproc-per-node 2 train.py", True),
        ("torchrun --nproc-per-node auto train.py", True),
        ("torchrun --nproc-per-node 1 train.py", False),
        ("python -m torch.distributed.run --nproc-per-node=4 train.py", True),
        ("accelerate launch --num_processes 2 train.py", True),
        ("deepspeed --num_gpus 8 train.py", True),
        ("mpirun -np 2 python train.py", False),
        ("srun rankzero watch -- python train.py", False),
        ("python train.py --launcher torchrun", False),
    ],
)
def test_ranks_of_torchs_launchers_share_their_output(command: str, is_shared: bool) -> None:
    """mpirun and srun set no RANK, by which the ranks' own logs are told apart."""
    assert shares_output(command.split(), {}) is is_shared
    assert is_torchrun(command.split()) is (command.startswith("torchrun") or "distributed.run" in command)
