"""Programs that the ranks of the proofs run: tiny tasks trained by the real loop."""

import argparse
import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import TensorDataset

from checkpoints import read_checkpoint, seed_everything
from image_classifier import augment, make_model
from language_model import GPT, ByteWindows
from parallel import StopVote, gradient_sync, leave_process_group, wrap
from training import Trainer, Workload, add_shared_arguments, cross_entropy

CPU = torch.device("cpu")
SHAPE = {"layers": 2, "heads": 2, "width": 16, "context": 8}
PLAIN = {"warmup_steps": 0, "weight_decay": 0.0, "clip_norm": 0.0, "epochs": 1}
PLAIN |= {"val_every": 0, "checkpoint_every": 0}


def make_args(**flags: Any) -> argparse.Namespace:
    """The shared flags with their defaults, but for those given and those that are each recipe's own."""
    parser = argparse.ArgumentParser()
    add_shared_arguments(parser)
    return argparse.Namespace(**{**vars(parser.parse_args([])), **PLAIN, **flags})


def changed(args: argparse.Namespace, **flags: Any) -> argparse.Namespace:
    """A copy of `args` with other flags."""
    return argparse.Namespace(**{**vars(args), **flags})


def make_workload(name: str, dropout: float = 0.0, shifted: bool = False, norm: str = "group") -> Workload:
    """A small GPT on arbitrary bytes, or the CNN on arbitrary pictures: 50 samples, 7 for validation."""
    noise = torch.Generator().manual_seed(1)
    if name == "gpt":
        text = torch.randint(0, 256, (57 * 8 + 1,), dtype=torch.uint8, generator=noise)
        train, held_out = ByteWindows(text[: 50 * 8 + 1], 8), ByteWindows(text[50 * 8 :], 8)
        model = GPT(**SHAPE, dropout=dropout)
        return Workload("gpt", model, train, held_out, "perplexity", list(model.blocks), SHAPE["context"])
    pictures = torch.randn(57, 1, 8, 8, generator=noise)
    labels = torch.randint(0, 10, (57,), generator=noise)
    cnn = make_model("cnn", norm, channels=1, classes=10)
    return Workload(
        "cnn",
        cnn,
        TensorDataset(pictures[:50], labels[:50]),
        TensorDataset(pictures[50:], labels[50:]),
        "accuracy",
        list(cnn.stages),
        augment=partial(augment, reach=1, may_mirror=True) if shifted else None,
    )


def train_once(args: argparse.Namespace, vote: StopVote | None = None, **workload: Any) -> dict:
    """Train as `args` say; the final checkpoint's content."""
    seed_everything(args.seed)
    trainer = Trainer(make_workload(**workload), args, CPU, vote or StopVote())
    trainer.run()
    return trainer.state_dict()


def train_some(folder: Path, task: str, batch_size: int, accumulate: int) -> Any:
    """Ten steps of plain SGD with the given split of one and the same global batch."""
    args = make_args(
        batch_size=batch_size,
        lr=0.05,
        epochs=100,
        max_steps=10,
        accumulate=accumulate,
        optimizer="sgd",
        momentum=0.0,
        warmup_steps=3,
        seed=7,
        strategy="ddp" if dist.get_world_size() > 1 else "single",
        output_dir=folder,
    )
    seed_everything(args.seed)
    before = {key: value.clone() for key, value in make_workload(task).model.state_dict().items()}
    return before, train_once(args, name=task)["model"]


def train_with_and_without_a_stop(folder: Path, changes: dict, workload: dict) -> Any:
    """The end of a run of twelve steps, and of one stopped after step 5, in mid-epoch, and resumed."""
    args = make_args(batch_size=4, lr=3e-3, epochs=2, warmup_steps=2, clip_norm=1.0, weight_decay=0.1, seed=3)
    args = changed(args, output_dir=folder / "whole", checkpoint_every=5, **changes)
    whole = train_once(args, **workload)
    resume = folder / "whole" / "checkpoints" / "step_00000005.pt"
    resumed = changed(args, output_dir=folder / "resumed", resume=resume)
    return whole, train_once(resumed, **workload)


class VoteAt(StopVote):
    """A signal that arrives on one rank shortly before it casts vote `number`."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._votes_left = number

    def cast(self, figure: torch.Tensor | None = None) -> None:
        self._votes_left -= 1
        self.requested = self._votes_left == 0
        super().cast(figure)


def stop_on_one_rank(folder: Path) -> int:
    """Only rank 1 is signalled, in step 4; the step at which this rank left."""
    args = make_args(batch_size=4, lr=1e-3, epochs=50, output_dir=folder)
    vote = VoteAt(4) if dist.get_rank() == 1 else StopVote()
    return train_once(args, vote, name="cnn")["schedule"]["step"]


def stop_during_validation(folder: Path) -> int:
    """Rank 1 is signalled in the validation after step 1 (votes: one a step, one a validation batch)."""
    args = make_args(batch_size=2, lr=1e-3, epochs=50, val_every=1, output_dir=folder)
    vote = VoteAt(2) if dist.get_rank() == 1 else StopVote()
    return train_once(args, vote, name="cnn")["schedule"]["step"]


def train_and_save(folder: Path, task: str, strategy: str) -> None:
    """Three steps, saved."""
    args = make_args(batch_size=4, lr=1e-3, max_steps=3, strategy=strategy, output_dir=folder)
    train_once(args, name=task)


def resume_elsewhere(folder: Path, checkpoint: Path) -> dict:
    """Resume with this number of ranks, without a step more: the state as it was read."""
    strategy = "ddp" if dist.get_world_size() > 1 else "single"
    args = make_args(batch_size=4, lr=1e-3, max_steps=3, strategy=strategy, resume=checkpoint, output_dir=folder)
    state = train_once(args, name="gpt")
    return {"state": state, "saved": read_checkpoint(checkpoint)}


def rates_before_and_after_a_resume(folder: Path) -> tuple[float, float, float]:
    """The rate of step 4 of ten, in the run itself and resumed after step 3 with twice the rate.

    The third is the rate that the resumed run's optimizer has.
    """
    args = make_args(batch_size=4, lr=1.0, strategy="single", max_steps=10, optimizer="sgd", output_dir=folder)
    train_once(changed(args, checkpoint_every=3, keep_last=0), name="gpt")
    resumed = changed(args, lr=2.0, resume=folder / "checkpoints" / "step_00000003.pt")
    rates = []
    for flags in (changed(resumed, lr=1.0), resumed):
        trainer = Trainer(make_workload("gpt"), flags, CPU, StopVote())
        rates.append(trainer._update()[1])
    return rates[0], rates[1], trainer.optimizer.param_groups[0]["lr"]


def validate_sizes(folder: Path, sizes: list[int]) -> list[tuple[float, float, int]]:
    """Loss, accuracy and count over the first so many validation pictures."""
    results = []
    for size in sizes:
        torch.manual_seed(0)
        noise = torch.Generator().manual_seed(size)
        pictures = torch.randn(size, 1, 8, 8, generator=noise)
        labels = torch.randint(0, 10, (size,), generator=noise)
        workload = dataclasses.replace(make_workload("cnn"), val_set=TensorDataset(pictures, labels))
        args = make_args(batch_size=4, lr=1e-3, output_dir=folder)
        results.append(Trainer(workload, args, CPU, StopVote()).evaluate())
    return results


def gradients_of_two_batches(folder: Path) -> tuple[bool, bool]:
    """Whether all ranks' gradients agree after a batch without exchange, and after one more with it."""
    model = torch.nn.Linear(3, 2)
    wrapped = wrap(model, [], "ddp", CPU)
    agreed = []
    for wanted in (False, True):
        with gradient_sync(wrapped, wanted):
            inputs = torch.full((4, 3), float(dist.get_rank() + 1))
            cross_entropy(wrapped(inputs), torch.zeros(4, dtype=torch.long)).backward()
        gradients = [None, None]
        dist.all_gather_object(gradients, model.weight.grad)
        agreed.append(torch.equal(*gradients))
    return agreed[0], agreed[1]


def leave_while_main_saves(folder: Path) -> tuple[float, float]:
    """When this rank was done, rank 0 half a second after it began, and when it had left; by the machine's clock."""
    time.sleep(0.5 if dist.get_rank() == 0 else 0)
    done_at = time.monotonic()
    leave_process_group()
    return done_at, time.monotonic()


def train_on_nan(folder: Path) -> int:
    """Every picture is NaN; the number of steps done."""
    workload = make_workload("cnn")
    broken = dataclasses.replace(
        workload, train_set=TensorDataset(torch.full((50, 1, 8, 8), float("nan")), torch.zeros(50).long())
    )
    trainer = Trainer(broken, make_args(batch_size=8, lr=1e-3, max_steps=4, output_dir=folder), CPU, StopVote())
    trainer.run()
    return trainer.step
