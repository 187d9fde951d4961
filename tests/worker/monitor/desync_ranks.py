"""Run `desync.py` in forked gloo ranks, watched by the probe: one import of torch for many trainings.

Arguments: a folder, the number of ranks, and the names of desyncs. Each gets FOLDER/NAME; it ends with its stdin.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "worker" / "probe"))
import rankzero_probe  # type: ignore[import-not-found, unused-ignore]

rankzero_probe.switch_on()
import torch  # noqa: E402
import torch._dynamo  # noqa: E402  each rank's optimizer would import it: 2 s of CPU
import torch.distributed as dist  # noqa: E402

SCRIPT = Path(__file__).parents[2] / "end_to_end" / "scripts" / "desync.py"


def start_rank(folder: Path, desync: str, rank: int, world_size: int) -> int:
    """Fork a rank; returns its process id."""
    if pid := os.fork():
        return pid
    os.environ |= {
        "RANKZERO_PROBE_DIR": str(folder / "probe"),
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
    }
    os.dup2(os.open(folder / "logs" / f"rank{rank}.err", os.O_WRONLY | os.O_CREAT, 0o600), 2)
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
        train = importlib.util.spec_from_file_location("desync", SCRIPT)
        module = importlib.util.module_from_spec(train)
        train.loader.exec_module(module)
        module.train(desync)
        sys.modules["rankzero_probe.recorder"]._recorder.end()
    except Exception:
        sys.excepthook(*sys.exc_info())
    os._exit(0)


def main(folder: Path, world_size: int, desyncs: list[str]) -> None:
    """Start all ranks, and end them when nobody needs them any more."""
    torch.set_num_threads(1)
    pids = []
    for desync in desyncs:
        for name in ("probe", "logs"):
            (folder / desync / name).mkdir(parents=True)
        pids += [start_rank(folder / desync, desync, rank, world_size) for rank in range(world_size)]
    print("started", flush=True)
    sys.stdin.read()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
