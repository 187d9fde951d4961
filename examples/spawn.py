"""Starts its own processes with mp.spawn, so plain python launches it.

By hand:        python examples/spawn.py --processes 2
With Rankzero:  rankzero launch examples/spawn.py --launcher python --gpus-per-node 2 -- --processes 2
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.tensorboard import SummaryWriter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=torch.cuda.device_count() or 2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="per process")
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(free_port())
    mp.spawn(train, args=(args,), nprocs=args.processes)


def train(rank, args):
    use_gpu = torch.cuda.is_available()
    device = torch.device("cuda", rank) if use_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if use_gpu else "gloo", rank=rank, world_size=args.processes)

    torch.manual_seed(0)  # the same data and the same first weights in every process
    data = noisy_plane(2048)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    model = nn.Linear(8, 1).to(device)
    model = DistributedDataParallel(model, device_ids=[rank] if use_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    writer = SummaryWriter("runs/spawned") if rank == 0 else None
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if writer:
                writer.add_scalar("loss", loss.item(), step)
        if rank == 0:
            torch.save(model.state_dict(), "spawned.pth")  # the wrapper's: its names begin with module.
    if writer:
        writer.close()
    dist.barrier()
    dist.destroy_process_group()


def noisy_plane(count):
    inputs = torch.randn(count, 8)
    return TensorDataset(inputs, inputs @ torch.randn(8, 1) + 0.1 * torch.randn(count, 1))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
