"""Causes in the script's use of PyTorch, CUDA and the other ranks."""

from __future__ import annotations

from domain.messages import Reason
from worker.diagnosis.causes.cause import Cause

INSTALL_MATCHING = (
    "Install matching builds (pip install torch torchvision torchaudio in one command) in the "
    "Python that "
    "trains, or choose another one with --python."
)
NO_GPU = "Check nvidia-smi on node {node}; if there is no GPU, switch to gloo on CPU (torch.cuda.is_available())."
SAME_ON_ALL_RANKS = (
    "Build the same model on every rank: the same arguments, the same seed, nothing that depends on the rank."
)
BROKEN_DEVICE = r"uncorrectable (?:ECC|NVLink)|fallen off the bus"
"""No program causes these."""

CUDA = (
    Cause(
        r"driver version is insufficient for CUDA runtime"
        r"|NVIDIA driver on your system is too old(?: \(found version (?P<found>\d+)\))?",
        "Update the NVIDIA driver of node {node}, or install a torch built for an older CUDA in the Python "
        "that trains.",
    ),
    Cause(
        r"Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device|no GPUs found|no NVIDIA GPU",
        NO_GPU,
    ),
    Cause(
        r"Torch not compiled with CUDA enabled|Distributed package doesn't have NCCL",
        "This torch is built without CUDA: choose a Python with a CUDA build (--python), or switch to gloo on CPU "
        "if torch.cuda.is_available() is False.",
    ),
    Cause(
        r"no kernel image is available|not compatible with the current PyTorch installation",
        "This torch does not support that GPU: install a build that lists its compute capability "
        "(torch.cuda.get_arch_list()).",
    ),
    Cause(
        r"invalid device ordinal",
        "Each rank sees this run's GPUs only, numbered from 0: use "
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])).",
    ),
    Cause(
        r"device-side assert triggered",
        "Most often a class label or an index is out of range: run once with --env CUDA_LAUNCH_BLOCKING=1 "
        "for the true line.",
    ),
    Cause(
        r"illegal memory access|unspecified launch failure|misaligned address",
        "Run once with --env CUDA_LAUNCH_BLOCKING=1: the traceback then shows the operation that fails.",
    ),
    Cause(
        rf"{BROKEN_DEVICE}|\bXid\b",
        "The GPU of node {node} is broken or needs a reset: drain the node, and resume on another one.",
    ),
    Cause(
        r"busy or unavailable",
        "Another program holds the GPU in exclusive mode: check nvidia-smi on node {node}.",
    ),
    Cause(
        r"Cannot re-initialize CUDA in forked subprocess",
        "Use CUDA only after the data loader's processes are started, or give it multiprocessing_context='spawn'.",
    ),
    Cause(
        r"CUDNN_STATUS_(?:NOT_INITIALIZED|EXECUTION_FAILED|INTERNAL_ERROR)|CUBLAS_STATUS_NOT_INITIALIZED",
        "The GPU may have run out of memory: try half the batch per GPU with twice the accumulation.",
    ),
)
NCCL = (
    Cause(
        r"Duplicate GPU detected",
        "Two ranks use one GPU: add torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group().",
    ),
    Cause(
        r"(?:Mismatched NCCL version|NCCL version mismatch)",
        "Use the same torch (and so the same NCCL) on all nodes: choose one Python for all with --python.",
    ),
    Cause(
        r"ncclSystemError[\s\S]*(?:shared memory|/dev/shm)",
        "Give the node more shared memory (a container: --shm-size=8g or --ipc=host), or set --env NCCL_SHM_DISABLE=1.",
        says="NCCL found no space in shared memory (/dev/shm): {text}{place}",
    ),
    Cause(
        r"ncclUnhandledCudaError[\s\S]*out of memory",
        "Halve the batch per GPU and double the accumulation, which keeps the global batch.",
        says="CUDA out of memory in NCCL{place}",
        reason=Reason.OUT_OF_MEMORY,
    ),
    Cause(
        r"No route to host|Network is unreachable|NET/Socket : no interface|couldn't find.*interface",
        "Name the interface that joins the nodes: --env NCCL_SOCKET_IFNAME=eth0 and --env GLOO_SOCKET_IFNAME=eth0.",
    ),
    Cause(
        r"ncclInvalidUsage|ncclInvalidArgument|ncclInternalError|ncclUnhandledCudaError",
        "Run once with --env NCCL_DEBUG=INFO: NCCL then logs what failed.",
    ),
)
DDP = (
    Cause(
        r"collective mismatch|mismatch between collectives|data size doesn't match expected size",
        "The ranks called different collectives, or gave them tensors of different sizes: launch it with --env "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL, which names them.",
    ),
    Cause(
        r"Expected to have finished reduction in the prior iteration",
        "Some parameters got no gradient: leave them out of the model, or pass find_unused_parameters=True to "
        "DistributedDataParallel.",
    ),
    Cause(r"appears not to match (?:sizes|strides)|DDP expects same model across all ranks", SAME_ON_ALL_RANKS),
    Cause(
        r"Expected to mark a variable ready only once",
        "Pass static_graph=True to DistributedDataParallel, or checkpoint activations with use_reentrant=False.",
    ),
    Cause(
        r"environment variable (?P<name>\w+) expected, but not set|KeyError: '(?P<key>RANK|LOCAL_RANK"
        r"|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'",
        "Choose the launcher torchrun: it sets RANK, WORLD_SIZE, MASTER_ADDR and the rest for every process.",
    ),
    Cause(
        r"Default process group has not been initialized",
        "Call torch.distributed.init_process_group() first; the launcher torchrun sets the variables it reads.",
    ),
    Cause(
        r"An attempt has been made to start a new process before",
        'Put the script\'s main part below `if __name__ == "__main__":`.',
    ),
    Cause(
        r"Unexpected key\(s\) in state_dict: \"module\.|Missing key\(s\) in state_dict: \"module\.",
        "The checkpoint's names and the model's differ by `module.`: save and load model.module.state_dict().",
    ),
    Cause(
        r"size mismatch for|Error\(s\) in loading state_dict",
        "The checkpoint belongs to a model with other dimensions: launch the script with the options of that training.",
    ),
    Cause(
        r"PytorchStreamReader failed|failed finding central directory|Ran out of input"
        r"|unexpected EOF, expected",
        "The file is incomplete, as after a crash while it was written: resume from an earlier checkpoint.",
    ),
    Cause(
        r"Weights only load failed",
        "Save plain tensors and numbers only, or allow the classes it names with "
        "torch.serialization.add_safe_globals().",
    ),
)
IMPORTS = (
    Cause(
        r"^ModuleNotFoundError: No module named '(?P<module>[^']+)'",
        "Install {module} in the Python that trains, or choose another Python with --python; your own "
        "module must be in the folder that is launched.",
    ),
    Cause(
        r"(?P<library>lib(?:cu|nv|nccl|cupti)[\w.-]*\.so[\w.]*): cannot open shared object file",
        "{library} is part of CUDA: install the torch build for node {node}'s CUDA, or choose another Python "
        "with --python.",
    ),
    Cause(
        r"(?P<library>[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "Install the system package that provides {library} on node {node}.",
    ),
    Cause(
        r"undefined symbol|operator torchvision::\w+ does not exist|Couldn't load custom C\+\+ ops",
        INSTALL_MATCHING,
    ),
    Cause(
        r"version `(?P<version>GLIBC\w*_[\d.]+)' not found",
        "The package is built for a newer system than node {node}'s: build it there, or use conda.",
    ),
    Cause(
        r"compiled using NumPy 1|numpy\.core\.multiarray failed|_ARRAY_API not found|numpy\.dtype size changed",
        'A package was built for another NumPy version: install "numpy<2", or a newer version of that package.',
    ),
    Cause(
        r"cannot import name '\w+' from '(?P<package>\w+)[\w.]*' \(.*/(?:site|dist)-packages/"
        r"|module '(?P<module>torch|torchvision|transformers|numpy)[\w.]*' has no attribute",
        "The installed {package}{module} is not the version that the script was written for: install "
        "that one, or choose another "
        "Python with --python.",
    ),
    Cause(
        r"Failed to find C compiler|InvalidCxxCompiler|No working C\+\+ compiler|Cannot find a working triton",
        "Install a C++ compiler (g++) on node {node}, or do not use torch.compile.",
    ),
    Cause(
        r"CUDA_HOME does not exist|CUDA_HOME environment variable is not set",
        "Install the CUDA toolkit on node {node} and set CUDA_HOME with --env, or disable the extension "
        "that compiles CUDA code.",
    ),
)
