"""The table of causes: exceptions as libraries word them, the sentence they become, and the next step."""
# ruff: noqa: E501 (real outputs stand here as they were)

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.messages import Reason
from worker.diagnosis.causes.files import Workplace
from worker.diagnosis.causes.lookup import TABLE, explain, size_words
from worker.diagnosis.causes.tracebacks import find_failure

PLACE = Workplace("/data/runs/x/attempts/1/node0/work")


def explained(exception: str, place: Workplace = PLACE):
    text = f'Traceback (most recent call last):\n  File "/home/ana/train.py", line 41, in main\n    go()\n{exception}\n'
    failure = find_failure(text)
    assert failure is not None
    return explain(failure, "gpu-1", place)


GPU = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which 1.02 GiB is free. Process 4242 has 78.12 GiB memory in use. Of the allocated memory 60.00 GiB is allocated by "
    "PyTorch, and {idle} is reserved by PyTorch but unallocated."
)

ROWS = [
    (
        GPU.format(idle="120.50 MiB"), Reason.OUT_OF_MEMORY,
        "CUDA out of memory, 2.00 GiB requested, 1.02 GiB of 79.15 GiB free on GPU 0, train.py line 41",
        "Halve the batch per GPU and double the accumulation: the global batch stays.",
    ),
    (
        GPU.format(idle="9.50 GiB"), Reason.OUT_OF_MEMORY,
        "CUDA out of memory, 2.00 GiB requested, 1.02 GiB of 79.15 GiB free on GPU 0, train.py line 41",
        "9.50 GiB are unused between tensors: --env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may be enough.",
    ),
    (
        "MemoryError", Reason.OUT_OF_MEMORY, "not enough memory: MemoryError, train.py line 41",
        "Halve the batch per process and double the accumulation: the global batch stays. Fewer data-loader workers need less memory, too.",
    ),
    (
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000000,) and data type float64",
        Reason.OUT_OF_MEMORY, "not enough memory, 7.45 GiB requested: numpy.core._exceptions._ArrayMemoryError: Unable to",
        "Halve the batch per process",
    ),
    (
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
        Reason.OUT_OF_MEMORY, "shared memory (/dev/shm) is full, so a data loader's process died, train.py line 41", "--shm-size=8g",
    ),
    (
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Segmentation fault. ",
        Reason.SCRIPT_ERROR, "a data loader's process (pid 77) crashed (Segmentation fault), train.py line 41", "num_workers=0",
    ),
    (
        "RuntimeError: unable to write to file </torch_123_456_0>: No space left on device (28)",
        Reason.DISK_FULL, "no space left in shared memory (/dev/shm): RuntimeError: unable to write", "--shm-size=8g",
    ),
    (
        "OSError: [Errno 122] Disk quota exceeded: 'out/last.pt'",
        Reason.DISK_FULL, "the disk quota is used up: OSError: [Errno 122]", "Free space of your quota on node gpu-1",
    ),
    (
        "OSError: [Errno 24] Too many open files: 'a.jpg'", Reason.SCRIPT_ERROR, "OSError: [Errno 24] Too many open files: 'a.jpg', train.py line 41",
        "ulimit -n",
    ),
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29533, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        Reason.PORT_IN_USE, "port 29533 is in use by another program, train.py line 41", "The script chooses this port itself",
    ),
    ("OSError: [Errno 98] Address already in use", Reason.PORT_IN_USE, "a port it needs is in use by another program: OSError", "port 0"),
    (
        "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
        Reason.SCRIPT_ERROR, "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory, train.py line 41",
        "libcudnn.so.9 is part of CUDA: install the torch build",
    ),
    (
        "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
        Reason.SCRIPT_ERROR, "ImportError: libGL.so.1", "Install the system package that provides libGL.so.1 on node gpu-1.",
    ),
    (
        "ImportError: /x/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2E",
        Reason.SCRIPT_ERROR, "ImportError: /x/flash_attn", "Install matching builds",
    ),
    (
        "ImportError: cannot import name 'fully_shard' from 'torch.distributed.fsdp' (/v/lib/python3.11/site-packages/torch/distributed/fsdp/__init__.py)",
        Reason.SCRIPT_ERROR, "ImportError: cannot import name 'fully_shard'", "The installed torch is not the version that the script was written for",
    ),
    ("AttributeError: module 'torch.amp' has no attribute 'GradScaler'", Reason.SCRIPT_ERROR, "AttributeError", "The installed torch is not the version"),
    (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
        Reason.SCRIPT_ERROR, "RuntimeError: The NVIDIA driver", "Update the NVIDIA driver of node gpu-1",
    ),
    ("RuntimeError: No CUDA GPUs are available", Reason.SCRIPT_ERROR, "RuntimeError: No CUDA GPUs are available", "nvidia-smi on node gpu-1"),
    ("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", Reason.SCRIPT_ERROR, "ValueError: ProcessGroupNCCL", "switch to gloo on CPU"),
    ("RuntimeError: CUDA error: invalid device ordinal", Reason.SCRIPT_ERROR, "RuntimeError: CUDA error", "LOCAL_RANK"),
    ("RuntimeError: CUDA error: device-side assert triggered", Reason.SCRIPT_ERROR, "RuntimeError: CUDA error", "CUDA_LAUNCH_BLOCKING=1"),
    (
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroupNCCL.cpp:268, invalid usage, NCCL version 2.21.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000",
        Reason.SCRIPT_ERROR, "torch.distributed.DistBackendError: NCCL error in", "Two ranks use one GPU",
    ),
    ("KeyError: 'LOCAL_RANK'", Reason.SCRIPT_ERROR, "KeyError: 'LOCAL_RANK', train.py line 41", "Choose the launcher torchrun"),
    (
        "ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /gpt2",
        Reason.SCRIPT_ERROR, "ConnectionError: HTTPSConnectionPool", "Node gpu-1 cannot reach that address",
    ),
    ('RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory', Reason.SCRIPT_ERROR, "RuntimeError", "resume from an earlier checkpoint"),
]  # fmt: skip


@pytest.mark.parametrize(("exception", "reason", "says", "next_step"), ROWS, ids=[row[0][:40] for row in ROWS])
def test_error_of_a_library_becomes_a_sentence_and_a_next_step(
    exception: str, reason: Reason, says: str, next_step: str
) -> None:
    cause = explained(exception)
    assert cause.reason is reason
    assert cause.says.startswith(says)
    assert next_step in (cause.next_step or "")


def test_an_exception_nobody_knows_speaks_for_itself() -> None:
    cause = explained("ValueError: the picture has 3 channels")
    assert (cause.reason, cause.next_step) == (Reason.SCRIPT_ERROR, None)
    assert cause.says == "ValueError: the picture has 3 channels, train.py line 41"


COPY = "which contains a copy of the code without the files that .gitignore excludes"


@pytest.mark.parametrize(
    ("exception", "next_step"),
    [
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
            f"data/train.csv is looked up in the run's working directory, {COPY}: launch it with --link data=/path/to/data, "
            "or in place with --workdir FOLDER.",
        ),
        (
            f"FileNotFoundError: [Errno 2] No such file or directory: '{PLACE.folder}/data/train.csv'",
            f"data/train.csv is looked up in the run's working directory, {COPY}: launch it with --link data=/path/to/data, "
            "or in place with --workdir FOLDER.",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '../data/train.csv'",
            f"../data/train.csv is looked up from the run's working directory, {COPY}: pass an absolute path, or start the "
            "run in place with --workdir FOLDER.",
        ),
        (
            "FileNotFoundError: Couldn't find any class folder in data/train.",
            f"data/train is looked up in the run's working directory, {COPY}: launch it with --link data=/path/to/data, or in "
            "place with --workdir FOLDER.",
        ),
        (
            "RuntimeError: Dataset not found. You can use download=True to download it",
            f"The data set is looked up in the run's working directory, {COPY}: launch it with --link data=/path/to/data, or "
            "in place with --workdir FOLDER.",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/mnt/imagenet/train'",
            "/mnt/imagenet/train is not on node gpu-1: copy it there, or mount the file system that has it.",
        ),
    ],
)  # fmt: skip
def test_a_missing_path_is_explained_by_where_a_run_works(exception: str, next_step: str) -> None:
    cause = explained(exception)
    assert (cause.reason, cause.next_step) == (Reason.SCRIPT_ERROR, next_step)
    assert (
        cause.says
        == f"{exception.split('. ')[0].rstrip('.') if 'class folder' in exception else exception}, train.py line 41"
    )


def test_in_place_no_link_is_proposed() -> None:
    place = Workplace("/home/ana/project", in_place=True)
    cause = explained("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'", place)
    assert cause.next_step == (
        "data/train.csv is looked up in /home/ana/project, the working directory: put it there, or pass an absolute path."
    )


def test_a_missing_command_is_not_taken_for_missing_data() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/home/ana/train.py", line 4, in <module>\n    subprocess.run(["ffmpeg"])\n'
        '  File "/usr/lib/python3.11/subprocess.py", line 1955, in _execute_child\n    raise child_exception_type\n'
        "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'\n"
    )
    failure = find_failure(text)
    assert failure is not None
    cause = explain(failure, "gpu-1", PLACE).next_step
    assert cause == "Install the command ffmpeg on node gpu-1, or put its folder on the PATH of the worker there."


def test_every_row_is_well_formed() -> None:
    for cause in TABLE:
        cause.match("")
        assert cause.next_step.endswith((".", ".)")) and "\n" not in cause.next_step, cause


@pytest.mark.parametrize(("size_bytes", "words"), [(12, "12 bytes"), (2**36, "64.00 GiB"), (1536 * 1024, "1.50 MiB")])
def test_sizes_are_written_as_torch_writes_them(size_bytes: int, words: str) -> None:
    assert size_words(size_bytes) == words


@pytest.mark.parametrize(
    "exception",
    [
        "_pickle.UnpicklingError: invalid load key, 'v'.",
        "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
        "PIL.UnidentifiedImageError: cannot identify image file 'data/a.png'",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ],
)
def test_a_git_lfs_pointer_in_place_of_a_file_is_named(exception: str) -> None:
    place = replace(PLACE, lfs_pointers=("weights/base.pt", "data/a.png"))
    explanation = explained(exception, place)
    assert explanation.next_step == (
        "weights/base.pt and data/a.png are Git LFS pointers, small texts in place of the files: run `git lfs pull` in "
        "its checkout, then launch it again."
    )


def test_a_pointer_elsewhere_is_known_by_its_first_letter() -> None:
    assert "Git LFS pointer" in str(explained("_pickle.UnpicklingError: invalid load key, 'v'.").next_step)
    assert "LFS" not in str(explained("_pickle.UnpicklingError: invalid load key, 'x'.").next_step)


def test_pointers_are_no_cause_of_other_exceptions() -> None:
    explanation = explained("ValueError: lr must be positive", replace(PLACE, lfs_pointers=("weights/base.pt",)))
    assert explanation.next_step is None
