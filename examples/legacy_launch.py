"""Written for torch.distributed.launch: the rank on this node comes as an argument, --local_rank.

torch 2 calls it --local-rank. Rankzero sees which name the script knows; by hand torchrun is told how to say it.

By hand:        torchrun --standalone --nproc-per-node 2 examples/legacy_launch.py --local_rank='${local_rank}'
With Rankzero:  rankzero launch examples/legacy_launch.py --launcher launch --gpus-per-node 2
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.tensorboard import SummaryWriter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    use_gpu = torch.cuda.is_available()
    if use_gpu:
        torch.cuda.set_device(args.local_rank)
    device = torch.device("cuda", args.local_rank) if use_gpu else torch.device("cpu")
    dist.init_process_group(backend="nccl" if use_gpu else "gloo", init_method="env://")

    torch.manual_seed(0)
    inputs = torch.randn(2048, 10)
    data = TensorDataset(inputs, (inputs.sum(1) > 0).long())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 2)).to(device)
    model = DistributedDataParallel(model, device_ids=[args.local_rank] if use_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    writer = SummaryWriter("log") if dist.get_rank() == 0 else None
    step = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for batch, targets in loader:
            loss = nn.functional.cross_entropy(model(batch.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if writer:
                writer.add_scalar("loss", loss.item(), step)
            step += 1
        if writer:
            state = {"epoch": epoch + 1, "state_dict": model.state_dict()}
            # without zip, as torch before 1.6 wrote it and can still read it
            torch.save(state, f"checkpoint-{epoch + 1}.pth", _use_new_zipfile_serialization=False)
    if writer:
        writer.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
