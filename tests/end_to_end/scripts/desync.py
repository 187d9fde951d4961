"""A training on gloo in which one rank leaves the common path of collectives in the way that the argument names."""

import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

AT_STEP = 6


class Rows(Dataset):
    def __init__(self, stuck_at: int | None) -> None:
        self.stuck_at = stuck_at

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.stuck_at:
            time.sleep(600)  # stuck loader
        return torch.ones(10)


def gradients() -> None:
    dist.all_reduce(torch.ones(1000))  # the step's gradients


def metrics() -> None:
    gathered = [torch.zeros(4) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.ones(4))  # the step's metrics


def train(kind: str) -> None:
    rank = dist.get_rank()
    other = dist.new_group(list(range(dist.get_world_size())), group_desc="evaluation")
    model = torch.nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    is_odd = rank == dist.get_world_size() - 1 and kind != "none"
    for step, batch in enumerate(DataLoader(Rows(AT_STEP if is_odd and kind == "loader" else None))):
        model(batch).sum().backward()
        here = is_odd and step == AT_STEP
        if here and kind == "skipped":
            metrics()  # after skipping the gradients
        elif here and kind == "swapped":
            metrics()  # too early
            gradients()
        elif here and kind == "shape":
            dist.all_reduce(torch.ones(500))  # other shape
            metrics()
        elif here and kind == "dtype":
            dist.all_reduce(torch.ones(1000, dtype=torch.float64))  # other dtype
            metrics()
        elif here and kind == "group":
            dist.all_reduce(torch.ones(1000), group=other)  # other group
            metrics()
        elif here and kind == "exit":
            return
        else:
            if here and kind == "extra":
                dist.broadcast(torch.ones(3), 0)  # one too many
            gradients()
            metrics()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
    time.sleep(2)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(sys.argv[1])
