"""A plain training with a data loader, which measures the processor time of its own steps.

It takes the probe's hooks out and puts them back every few steps, so that both are measured on the same moments of the
machine; the first steps after that are not counted, in which Python finds the changed methods again. FILE.began is
there when the measuring begins, and FILE when it has ended.

torchrun --standalone --nproc-per-node=1 benchmarks/scripts/probe_steps.py --steps 1000 --block 10 --out FILE
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator
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
    parser.add_argument(
        "--block", type=int, default=10, help="steps counted with the hooks or without, after as many not"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    steps = train(options.batch, torch.device(options.device), options.layers)
    for _ in itertools.islice(steps, options.warm_up):
        pass
    options.out.with_suffix(".began").touch()
    before_s = thread_cpu_s("rankzero-probe")
    blocks = in_blocks(steps, options.steps // options.block // 2, options.block)
    thread_s = (thread_cpu_s("rankzero-probe") - before_s) / (2 * len(blocks) * options.block)
    written = options.out.with_suffix(".part")
    written.write_text(json.dumps({"blocks": blocks, "thread_s": thread_s}))
    written.rename(options.out)
    dist.destroy_process_group()


def train(batch_size: int, device: torch.device, depth: int) -> Iterator[None]:
    """Make a step each time that the next is asked for."""
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(depth)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(SAMPLES, WIDTH))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=batch_size, sampler=sampler, drop_last=True)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            loss = model(batch.to(device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


def in_blocks(steps: Iterator[None], count: int, length: int) -> list[float]:
    """Seconds of processor time that the training thread takes for a step of each block: with hooks, without, …"""
    hooks, seconds = Hooks(), []
    for number in range(count):
        hooks.switch(on=number % 2 == 0)
        for _ in itertools.islice(steps, length):
            pass
        began = time.thread_time()
        for _ in itertools.islice(steps, length):
            pass
        seconds.append((time.thread_time() - began) / length)
    return seconds


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
