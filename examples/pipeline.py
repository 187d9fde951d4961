"""A model cut into one stage per rank with torch.distributed.pipelining; micro-batches flow through them.

By hand:        torchrun --standalone --nproc-per-node 2 examples/pipeline.py
With Rankzero:  rankzero launch examples/pipeline.py --gpus-per-node 2
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.utils.tensorboard import SummaryWriter

WIDTH, CLASSES = 32, 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    use_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpu else torch.device("cpu")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    is_last = rank == world_size - 1

    torch.manual_seed(0)
    centres = torch.randn(CLASSES, WIDTH, device=device)  # the same on all ranks, before they part
    module = stage_module(is_last).to(device)
    schedule = ScheduleGPipe(
        PipelineStage(module, rank, world_size, device),
        args.micro_batches,
        loss_fn=nn.functional.cross_entropy,
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=args.lr, momentum=0.9)

    # Only the last stage knows the loss, so the last rank writes the log.
    writer = SummaryWriter("runs/pipeline") if is_last else None
    samples = torch.Generator(device).manual_seed(1)
    for step in range(1, args.steps + 1):
        targets = torch.randint(CLASSES, (args.batch_size,), generator=samples, device=device)
        noise = torch.randn(args.batch_size, WIDTH, generator=samples, device=device)
        losses = []
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(centres[targets] + noise)
        elif is_last:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        if writer:
            writer.add_scalar("pipeline/loss", torch.stack(losses).mean().item(), step)
    if writer:
        writer.close()
    torch.save(module.state_dict(), f"stage{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def stage_module(is_last):
    """Two layers on each rank; the last one ends in the classes."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES if is_last else WIDTH))


if __name__ == "__main__":
    main()
