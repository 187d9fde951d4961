"""torch.distributed.rpc: rank 0 trains a model whose first half lives on the other ranks.

By hand:        torchrun --standalone --nproc-per-node 2 examples/rpc.py
With Rankzero:  rankzero launch examples/rpc.py --gpus-per-node 2
"""

import argparse
import os

import torch
import torch.distributed.autograd as dist_autograd
from torch import nn
from torch.distributed import rpc
from torch.distributed.optim import DistributedOptimizer
from torch.utils.tensorboard import SummaryWriter


class Tower(nn.Module):
    """The remote half: made and kept where it is called."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 32), nn.ReLU())

    def forward(self, inputs):
        return self.layers(inputs)

    def parameter_rrefs(self):
        return [rpc.RRef(parameter) for parameter in self.parameters()]

    def state(self):
        return self.state_dict()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)
    if rank == 0:
        train(args, world_size)
    rpc.shutdown()  # waits for all the others


def train(args, world_size):
    torch.manual_seed(0)
    towers = [rpc.remote(f"worker{rank}", Tower) for rank in range(1, world_size)]
    head = nn.Linear(32 * len(towers), 1)
    parameters = [rpc.RRef(parameter) for parameter in head.parameters()]
    for tower in towers:
        parameters += tower.rpc_sync().parameter_rrefs()
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=args.lr)

    with SummaryWriter() as writer:
        for step in range(1, args.steps + 1):
            inputs = torch.randn(args.batch_size, 4)
            targets = inputs.abs().sum(1, keepdim=True)
            with dist_autograd.context() as context:
                hidden = [tower.rpc_async().forward(inputs) for tower in towers]
                loss = nn.functional.mse_loss(head(torch.cat(torch.futures.wait_all(hidden), 1)), targets)
                dist_autograd.backward(context, [loss])
                optimizer.step(context)
            writer.add_scalar("rpc/loss", loss.item(), step)
    state = {"head": head.state_dict(), "towers": [tower.rpc_sync().state() for tower in towers]}
    torch.save(state, "model.pt")


if __name__ == "__main__":
    main()
