"""Steps of a recipe and of the plainest DDP loop with the same model, data and mathematics, in turns in one process.

PYTHONPATH=worker/recipes torchrun --standalone --nproc-per-node=2 recipe_steps.py NAME TIMES.json BLOCKS
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torch.utils.tensorboard import SummaryWriter

import checkpoints
import parallel
from training import Trainer

BLOCK = 10


def measure(args, build_workload) -> None:
    """Write rank 0's processor time in each block of steps: even ones are the recipe's, odd ones the plain loop's."""
    torch.set_num_threads(1)
    device, vote = parallel.join_process_group(args.strategy), parallel.StopVote()
    checkpoints.seed_everything(args.seed)
    acts = [recipe(args, build_workload, device, vote), plain(args, build_workload(args), device)]
    seconds = [block(acts[number % 2]) for number in range(blocks)]
    if dist.get_rank() == 0:
        out.write_text(json.dumps(seconds))
    parallel.leave_process_group()


def block(steps: Iterator[None]) -> float:
    dist.barrier()
    began = time.process_time()
    for _ in itertools.islice(steps, BLOCK):
        pass
    return time.process_time() - began


def recipe(args, build_workload, device, vote) -> Iterator[None]:
    """The recipe's own steps, which it logs; it neither validates nor saves here."""
    trainer = Trainer(build_workload(args), args, device, vote)
    with trainer._open_writer() if trainer.rank == 0 else contextlib.nullcontext() as trainer.writer:
        while True:
            yield trainer._train_step()


def plain(args, workload, device) -> Iterator[None]:
    """What a tutorial shows, with the clipping, optimizer and schedule of the recipe."""
    model = DistributedDataParallel(workload.model.to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    sampler = DistributedSampler(workload.train_set, seed=args.seed)
    loader = DataLoader(workload.train_set, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    writer = SummaryWriter("plain") if dist.get_rank() == 0 else None
    step = 0
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            if workload.augment is not None:
                inputs = workload.augment(inputs)
            logits = model(inputs.to(device))
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.to(device).flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip_norm)
            optimizer.step()
            step += 1
            if writer:
                writer.add_scalar("train/loss", loss.item(), step)
            yield


if __name__ == "__main__":
    name, out, blocks = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    module = importlib.import_module(name)
    module.train = measure
    never = ["--val-every", "1000000", "--checkpoint-every", "1000000", "--print-every", "0"]
    sys.argv[1:] = [*never, "--epochs", "1000", "--optimizer", "adamw"]
    module.main()
