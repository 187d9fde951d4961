"""DistributedDataParallel with Weights & Biases: rank 0 logs, the validation on an x-axis of its own.

By hand:        torchrun --standalone --nproc-per-node=2 examples/wandb_ddp.py
With Rankzero:  rankzero launch examples/wandb_ddp.py --gpus-per-node 2
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import wandb
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS, STEPS = 4, 25


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    run = None
    if dist.get_rank() == 0:
        run = wandb.init(project="rankzero", tags=["example"], config={"lr": 0.05, "model": {"inputs": 8}})
        run.define_metric("val/*", step_metric="epoch")
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            inputs = torch.randn(16, 8)
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if run:
                run.log({"train": {"loss": loss, "lr": 0.05}})
        if run:
            run.log({"val/loss": loss.detach(), "epoch": epoch})
    if run:
        run.summary["epochs"] = EPOCHS
        run.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
