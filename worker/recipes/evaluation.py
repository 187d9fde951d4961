"""Validation over all ranks: each sample counts exactly once, also when the ranks do not divide them."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader

from batches import Batch, ValidationShare
from parallel import Parallel, sum_over_ranks
from stopping import StopVote
from task import cross_entropy


@dataclass(frozen=True)
class Evaluation:
    """Means over every target of the validation set; `loss` in nats."""

    loss: float
    accuracy: float
    count: int

    @property
    def perplexity(self) -> float:
        """exp(loss): how many bytes the model still hesitates between."""
        return math.exp(self.loss) if self.loss < 700 else math.inf


@torch.no_grad()
def evaluate(
    model: nn.Module,
    loader: DataLoader[Batch],
    share: ValidationShare,
    parallel: Parallel,
    autocasting: torch.autocast,
    vote: StopVote,
) -> Evaluation | None:
    """Run `model` over this rank's share and add up over the ranks; all ranks must call it.

    None when a rank was asked to stop: a large validation set must not outlast the grace period. All ranks
    have equally many batches, so they can vote at each.
    """
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64, device=parallel.device)
    seen = 0
    for inputs, targets in loader:
        real = max(0, min(len(targets), share.real_count - seen))
        seen += len(targets)
        vote.cast()
        with autocasting:
            logits = model(inputs.to(parallel.device))[:real]
        sums += _count(logits, targets[:real].to(parallel.device))
        if vote.passed():
            return None
    loss, correct, count = sum_over_ranks(parallel, sums).tolist()
    return Evaluation(loss / count, correct / count, int(count))


def _count(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Summed loss, right answers, number of targets."""
    loss = cross_entropy(logits, targets, reduction="sum").double()
    correct = (logits.argmax(-1) == targets).sum().double()
    return torch.stack(
        [loss, correct, torch.tensor(float(targets.numel()), dtype=torch.float64, device=loss.device)]
    )
