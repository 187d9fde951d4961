"""What a checkpoint holds: model, optimizer and everything else a run needs to go on bit for bit."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from learning_rate import WarmupCosine
from parallel import Parallel, gather_from_ranks
from random_state import capture_random_state, restore_random_state

# Whole tensors on the CPU of rank 0, named as in the plain model, whatever the strategy.
PLAIN = StateDictOptions(full_state_dict=True, cpu_offload=True)


@dataclass
class Progress:
    """How far the run is: `step` optimizer steps in all, `position` batches per rank into `epoch`."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    best_loss: float = float("inf")

    def advance(self, batches: int, batches_per_epoch: int) -> bool:
        """Count one step over `batches` batches; true when the epoch has no room for another."""
        self.step += 1
        self.position += batches
        return self.roll_over(batches, batches_per_epoch)

    def roll_over(self, batches: int, batches_per_epoch: int) -> bool:
        """Go to the next epoch when this one has no room for another step; true when it had none."""
        ended = self.position + batches > batches_per_epoch
        if ended:
            self.epoch += 1
            self.position = 0
        return ended


@dataclass(frozen=True)
class Training:
    """The parts of a run that change while it trains."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: WarmupCosine
    scaler: torch.amp.GradScaler
    progress: Progress

    def capture(self, parallel: Parallel, samples_per_batch: int) -> dict[str, Any]:
        """Everything, on rank 0; all ranks must call it. Readable with `weights_only=True`."""
        return {
            "model": get_model_state_dict(self.model, options=PLAIN),
            "optimizer": get_optimizer_state_dict(self.model, self.optimizer, options=PLAIN),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random_states": gather_from_ranks(parallel, capture_random_state()),
            "step": self.progress.step,
            "epoch": self.progress.epoch,
            # In samples over all ranks: still right when batch size or number of ranks change.
            "position": self.progress.position * samples_per_batch,
            "best_loss": self.progress.best_loss,
        }

    def restore(self, state: dict[str, Any], parallel: Parallel) -> None:
        """Take back all but the model (loaded before it was spread) and `progress`."""
        hyperparameters = [_without_parameters(group) for group in self.optimizer.param_groups]
        set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"], options=PLAIN)
        for group, today in zip(self.optimizer.param_groups, hyperparameters, strict=True):
            group.update(today)
        self.schedule.load_state_dict(state["schedule"])
        if self.scaler.is_enabled() and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        # With another number of ranks there is no state for each of them: their fresh seeds stay.
        if len(state["random_states"]) == parallel.world_size:
            restore_random_state(state["random_states"][parallel.rank])


def read_progress(state: dict[str, Any], samples_per_batch: int) -> Progress:
    """Where the checkpoint stands, in this run's batches."""
    return Progress(state["step"], state["epoch"], state["position"] // samples_per_batch, state["best_loss"])


def _without_parameters(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
