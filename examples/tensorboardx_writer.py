"""DDP that logs with tensorboardX, which holds back what it writes for up to two minutes.

By hand:        torchrun --standalone --nproc-per-node 2 examples/tensorboardx_writer.py
With Rankzero:  rankzero launch examples/tensorboardx_writer.py --gpus-per-node 2
"""

import argparse
import os

import torch
import torch.distributed as dist
from tensorboardX import SummaryWriter
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32, help="per GPU")
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    use_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpu else torch.device("cpu")

    torch.manual_seed(0)  # the same first weights on every rank
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if use_gpu else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    torch.manual_seed(1 + dist.get_rank())  # from here on every rank draws its own samples
    writer = SummaryWriter() if dist.get_rank() == 0 else None
    for step in range(args.steps):
        inputs = 6 * torch.rand(args.batch_size, 1, device=device) - 3
        loss = nn.functional.mse_loss(model(inputs), inputs.sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if writer:
            writer.add_scalar("sine/loss", loss.item(), step)
            writer.add_scalars("sine/schedule", {"lr": schedule.get_last_lr()[0]}, step)
        schedule.step()
    if writer:
        torch.save(model.module.state_dict(), "sine.pt")
        writer.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
