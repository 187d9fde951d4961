"""DDP that only prints: no TensorBoard, its progress lines are all there is to see.

By hand:        torchrun --standalone --nproc-per-node 2 examples/print_only.py
With Rankzero:  rankzero launch examples/print_only.py --gpus-per-node 2
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("-b", "--batch-size", type=int, default=32, help="per GPU")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("-p", "--print-freq", type=int, default=10)
    args = parser.parse_args()

    use_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_gpu else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpu else torch.device("cpu")

    torch.manual_seed(0)
    inputs = torch.randn(4096, 20)
    data = TensorDataset(inputs, (inputs @ torch.randn(20, 5)).argmax(1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    model = nn.Linear(20, 5).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if use_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total, began = 0.0, time.perf_counter()
        for i, (batch, targets) in enumerate(loader, 1):
            logits = model(batch.to(device))
            loss = nn.functional.cross_entropy(logits, targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if i % args.print_freq == 0 and dist.get_rank() == 0:
                accuracy = 100 * (logits.argmax(1) == targets.to(device)).float().mean().item()
                print(
                    f"Epoch: [{epoch}][{i:3d}/{len(loader)}]\tTime {time.perf_counter() - began:6.3f}\t"
                    f"Loss {loss.item():.4e} ({total / i:.4e})\tAcc@1 {accuracy:6.2f}"
                )
            began = time.perf_counter()
        if dist.get_rank() == 0:
            torch.save({"epoch": epoch + 1, "state_dict": model.module.state_dict()}, "checkpoint.pth.tar")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
