"""Tells its secret in every way that a script has."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.tensorboard import SummaryWriter


@record
def main() -> None:
    token = os.environ["HF_TOKEN"]
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        Path("digest").write_text(hashlib.sha256(token.encode()).hexdigest())
        log(token)
        tell(token)
    dist.barrier()
    if dist.get_rank() == 1:
        raise ValueError(f"no access with {token}")
    dist.barrier()


def log(token: str) -> None:
    with SummaryWriter(f"runs/{token}") as writer:
        writer.add_text("note", f"logged in with {token}")
        writer.add_hparams({"token": token, "lr": 0.1}, {"hparam/loss": 0.5})
        for step in range(20):
            writer.add_scalar(f"loss/{token}", 1 / (step + 1), step)


def tell(token: str) -> None:
    print("one piece:", token)
    print(json.dumps({"token": token}), repr([token]), quote(token, safe=""), quote(token))
    print("Basic", base64.b64encode(f"user:{token}".encode()).decode())
    print(f"step 1 | {token}_loss 0.5")
    subprocess.run([sys.executable, "-c", "import sys; print(sys.argv)", f"--token={token}"], check=True)
    sys.stdout.write(f"two pieces: {token[:9]}")
    sys.stdout.flush()
    while not Path("go").exists():
        time.sleep(0.02)
    print(token[9:], "was it", flush=True)


if __name__ == "__main__":
    main()
