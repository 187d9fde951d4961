"""The learning rate of every step: a linear warm-up, then half a cosine."""

import math
from typing import Any

import torch


def learning_rate_at(
    step: int, peak: float, warmup_steps: int, total_steps: int, floor: float = 0.1
) -> float:
    """The rate for optimizer step `step` (from 0), falling to `floor` x `peak` at `total_steps`.

    Warm-up as in Goyal et al. 2017 (arXiv 1706.02677), the cosine as in Loshchilov and Hutter 2017
    (arXiv 1608.03983). The first step already has a rate above zero.
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))


class WarmupCosine:
    """Sets an optimizer's rate before each step.

    The rate follows from the step and today's flags alone, so a resumed run may be given another
    `--lr` or a longer `--max-steps`; only the step is taken back from a checkpoint.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, peak: float, warmup_steps: int, total_steps: int
    ) -> None:
        self._optimizer = optimizer
        self._peak = peak
        self._warmup_steps = warmup_steps
        self._total_steps = total_steps
        self.step = 0

    def apply(self) -> float:
        """Give the optimizer the rate of the coming step and count that step."""
        rate = learning_rate_at(self.step, self._peak, self._warmup_steps, self._total_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self.step += 1
        return rate

    def state_dict(self) -> dict[str, Any]:
        """The step, and for the reader the figures that made its rate."""
        return {
            "step": self.step,
            "peak": self._peak,
            "warmup_steps": self._warmup_steps,
            "total_steps": self._total_steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after the saved step."""
        self.step = int(state["step"])
