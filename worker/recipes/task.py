"""What a recipe hands to the training loop: a model that classifies, its data, and how it is scored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from batches import Samples


@dataclass(frozen=True)
class Task:
    """A model whose output, for each target, is a row of logits."""

    name: str
    model: nn.Module
    train_set: Samples
    val_set: Samples
    score: Literal["accuracy", "perplexity"]
    # Parts of the model that FSDP gathers and frees one at a time.
    blocks: Sequence[nn.Module] = ()
    # 0 when the samples are not text.
    tokens_per_sample: int = 0
    # Applied to each training batch in the training process, so that it draws from the saved random state.
    augment: Callable[[torch.Tensor], torch.Tensor] | None = None
    # What it takes to build `model` again, written into each checkpoint.
    architecture: dict[str, int | float | str] = field(default_factory=dict)


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Loss in nats of `logits` (..., classes) against `targets` (...), computed in fp32."""
    return functional.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), reduction=reduction)
