"""A plain training with a data loader, which measures its own step time. With --blocks it takes the probe's
hooks out and puts them back every few steps, so that both are measured on the same moments of the machine.

torchrun --standalone --nproc-per-node=2 benchmarks/scripts/probe_steps.py --steps 1000 --out times.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.data import dataloader as loaders

WIDTH = 512
SAMPLES = 8192


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=0, help="steps with the hooks, then as many without")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    began = time.perf_counter()
    times = train(model, optimizer, options)
    share = thread_cpu_s("rankzero-probe") / (time.perf_counter() - began)
    if int(os.environ["RANK"]) == 0:
        options.out.write_text(json.dumps({"times": times, "thread_share": share}))
    dist.destroy_process_group()


def train(model, optimizer, options) -> list[float]:
    """Seconds of each step after the warm-up."""
    data = TensorDataset(torch.randn(SAMPLES, WIDTH))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=options.batch, sampler=sampler, drop_last=True)
    hooks = Hooks() if options.blocks else None
    ends: list[float] = []
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ends.append(time.perf_counter())
            done = len(ends) - options.warm_up
            if hooks and done > 0 and done % options.blocks == 0:
                hooks.switch(on=(done // options.blocks) % 2 == 0)
            if done > options.steps:
                return [later - earlier for earlier, later in itertools.pairwise(ends[options.warm_up :])]


class Hooks:
    """What the probe has put into torch."""

    def __init__(self) -> None:
        assert any("rankzero_probe" in name for name in sys.modules), "this measures the probe"
        self.places = [
            (loaders._BaseDataLoaderIter, "__next__"),
            (loaders._BaseDataLoaderIter, "_next_index"),
            (loaders.DataLoader, "__iter__"),
            (torch.Tensor, "to"),
            (torch.Tensor, "cuda"),
            (torch.autograd, "backward"),
            (DistributedDataParallel, "forward"),
            (DistributedDataParallel, "_sync_buffers"),
        ]
        self.hooked = [getattr(owner, name) for owner, name in self.places]
        self.registers = [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
        self.registered = [dict(register) for register in self.registers]
        assert all(hasattr(each, "__wrapped__") for each in self.hooked) and all(self.registered)

    def switch(self, on: bool) -> None:
        for (owner, name), hooked in zip(self.places, self.hooked, strict=True):
            setattr(owner, name, hooked if on else hooked.__wrapped__)
        for register, registered in zip(self.registers, self.registered, strict=True):
            register.clear()
            register.update(registered if on else {})


def thread_cpu_s(name: str) -> float:
    """CPU time of this process's thread of that name; 0 without one."""
    for thread in threading.enumerate():
        if thread.name == name:
            return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]) / 1e9
    return 0.0


if __name__ == "__main__":
    main()
