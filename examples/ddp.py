"""Plain DistributedDataParallel: TensorBoard curves and a checkpoint after each epoch, from rank 0.

By hand:        torchrun --standalone --nproc-per-node 2 examples/ddp.py
With Rankzero:  rankzero launch examples/ddp.py --gpus-per-node 2 --batch-size 64 --lr 0.05 \
                    -- --batch-size '{batch_size}' --lr '{lr}'
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.tensorboard import SummaryWriter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64, help="per GPU")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--resume", default="", help="a checkpoint to go on from")
    args = parser.parse_args()

    use_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpu else torch.device("cpu")

    torch.manual_seed(0)  # the same data and the same first weights on every rank
    data = three_clouds(4096)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 3)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if use_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    first_epoch = step = 0
    if args.resume:
        state = torch.load(args.resume, map_location=device, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch, step = state["epoch"], state["step"]

    writer = SummaryWriter() if dist.get_rank() == 0 else None
    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if writer:
                writer.add_scalar("train/loss", loss.item(), step)
        if writer:
            writer.add_scalar("train/epoch", epoch + 1, step)
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"epoch": epoch + 1, "step": step}, f"checkpoint_{epoch + 1}.pt")
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}")
    if writer:
        writer.close()
    dist.barrier()
    dist.destroy_process_group()


def three_clouds(count):
    """Points around three centres, and which one each belongs to."""
    centres, targets = torch.randn(3, 16), torch.randint(3, (count,))
    return TensorDataset(centres[targets] + torch.randn(count, 16), targets)


if __name__ == "__main__":
    main()
