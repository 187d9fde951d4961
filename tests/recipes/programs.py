"""What the ranks of the proofs run: tiny tasks trained by the real loop."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import torch
from batches import ValidationShare, make_loader
from evaluation import evaluate
from gpt import GPT, GPTShape
from image_data import Augment, PicturesInMemory
from image_models import make_model
from optimizers import autocast
from parallel import Parallel, gather_from_ranks, gradient_sync, leave_process_group
from random_state import seed_everything
from settings import Settings
from snapshot import read_checkpoint
from stopping import StopRequest, StopVote
from task import Task, cross_entropy
from text_data import ByteWindows
from training_loop import Trainer

SHAPE = GPTShape(layers=2, heads=2, width=16, context=8)


def make_task(name: str, dropout: float = 0.0, augment: bool = False, norm: str = "group") -> Task:
    """A small GPT on arbitrary bytes, or the CNN on arbitrary pictures: 50 samples, 7 for validation."""
    noise = torch.Generator().manual_seed(1)
    if name == "gpt":
        shape = dataclasses.replace(SHAPE, dropout=dropout)
        text = torch.randint(0, 256, (57 * shape.context + 1,), dtype=torch.uint8, generator=noise)
        train, held_out = ByteWindows(text[: 50 * 8 + 1], 8), ByteWindows(text[50 * 8 :], 8)
        model = GPT(shape)
        return Task("gpt", model, train, held_out, "perplexity", list(model.blocks), shape.context)
    pictures = torch.randn(57, 1, 8, 8, generator=noise)
    labels = torch.randint(0, 10, (57,), generator=noise)
    cnn = make_model("cnn", norm, channels=1, classes=10)
    return Task(
        "cnn",
        cnn,
        PicturesInMemory(pictures[:50], labels[:50]),
        PicturesInMemory(pictures[50:], labels[50:]),
        "accuracy",
        list(cnn.stages),
        augment=Augment(1, may_mirror=True) if augment else None,
    )


def train_once(
    parallel: Parallel, settings: Settings, request: StopRequest | None = None, **task: Any
) -> dict:
    """Train as `settings` say; the final checkpoint's content."""
    parallel = dataclasses.replace(parallel, strategy=settings.strategy)
    seed_everything(settings.seed)
    trainer = Trainer(make_task(**task), settings, parallel, request or StopRequest())
    trainer.run()
    return trainer.training.capture(parallel, settings.batch_size * parallel.world_size)


def train_some(parallel: Parallel, folder: Path, task: str, batch_size: int, accumulate: int) -> Any:
    """Ten steps of plain SGD with the given split of one and the same global batch."""
    settings = Settings(
        batch_size=batch_size,
        lr=0.05,
        epochs=100,
        max_steps=10,
        accumulate=accumulate,
        optimizer="sgd",
        momentum=0.0,
        warmup_steps=3,
        seed=7,
        strategy="ddp" if parallel.world_size > 1 else "single",
        output_dir=folder,
    )
    seed_everything(settings.seed)
    before = {key: value.clone() for key, value in make_task(task).model.state_dict().items()}
    return before, train_once(parallel, settings, name=task)["model"]


def train_with_and_without_a_stop(parallel: Parallel, folder: Path, changes: dict, task: dict) -> Any:
    """The end of a run of twelve steps, and of one stopped after step 5, in mid-epoch, and resumed."""
    settings = Settings(
        batch_size=4, lr=3e-3, epochs=2, warmup_steps=2, clip_norm=1.0, weight_decay=0.1, seed=3
    )
    settings = dataclasses.replace(settings, output_dir=folder / "whole", checkpoint_every=5, **changes)
    whole = train_once(parallel, settings, **task)
    resume = folder / "whole" / "checkpoints" / "step_00000005.pt"
    resumed = dataclasses.replace(settings, output_dir=folder / "resumed", resume=resume)
    return whole, train_once(parallel, resumed, **task)


class RequestAt(StopRequest):
    """A signal that arrives on one rank while it computes step `step`."""

    def __init__(self, step: int) -> None:
        self._votes_left = step

    @property
    def received(self) -> bool:
        self._votes_left -= 1
        return self._votes_left == 0


def stop_on_one_rank(parallel: Parallel, folder: Path) -> int:
    """Only rank 1 is signalled, in step 4; the step at which this rank left."""
    settings = Settings(batch_size=4, lr=1e-3, epochs=50, output_dir=folder)
    request = RequestAt(4) if parallel.rank == 1 else StopRequest()
    return train_once(parallel, settings, request, name="cnn")["schedule"]["step"]


def stop_during_validation(parallel: Parallel, folder: Path) -> int:
    """Rank 1 is signalled in the validation after step 1 (votes: one a step, one a validation batch)."""
    settings = Settings(batch_size=2, lr=1e-3, epochs=50, val_every=1, output_dir=folder)
    request = RequestAt(2) if parallel.rank == 1 else StopRequest()
    return train_once(parallel, settings, request, name="cnn")["schedule"]["step"]


def train_and_save(parallel: Parallel, folder: Path, task: str, strategy: str) -> None:
    """Three steps, saved."""
    settings = Settings(batch_size=4, lr=1e-3, max_steps=3, strategy=strategy, output_dir=folder)
    train_once(parallel, settings, name=task)


def resume_elsewhere(parallel: Parallel, folder: Path, checkpoint: Path) -> dict:
    """Resume with this number of ranks, without a step more: the state as it was read."""
    strategy = "ddp" if parallel.world_size > 1 else "single"
    settings = Settings(
        batch_size=4, lr=1e-3, max_steps=3, strategy=strategy, resume=checkpoint, output_dir=folder
    )
    state = train_once(parallel, settings, name="gpt")
    return {"state": state, "saved": read_checkpoint(checkpoint)}


def validate_sizes(parallel: Parallel, folder: Path, sizes: list[int]) -> list[tuple[float, float, int]]:
    """Loss, accuracy and count over the first so many validation pictures."""
    found = []
    torch.manual_seed(0)
    model = make_model("cnn", "group", 1, 10)
    vote = StopVote(parallel, StopRequest())
    for size in sizes:
        noise = torch.Generator().manual_seed(size)
        pictures = torch.randn(size, 1, 8, 8, generator=noise)
        labels = torch.randint(0, 10, (size,), generator=noise)
        data, share = PicturesInMemory(pictures, labels), ValidationShare(size, parallel)
        loader = make_loader(data, share, 4, 0, parallel, whole_batches=False)
        result = evaluate(model, loader, share, parallel, autocast("fp32", parallel.device), vote)
        found.append((result.loss, result.accuracy, result.count))
    return found


def gradients_of_two_batches(parallel: Parallel, folder: Path) -> tuple[bool, bool]:
    """Whether all ranks' gradients agree after a batch without exchange, and after one more with it."""
    model = torch.nn.Linear(3, 2)
    wrapped = parallel.join(model, [])
    agreed = []
    for wanted in (False, True):
        with gradient_sync(wrapped, wanted):
            inputs = torch.full((4, 3), float(parallel.rank + 1))
            cross_entropy(wrapped(inputs), torch.zeros(4, dtype=torch.long)).backward()
        first, second = gather_from_ranks(parallel, model.weight.grad.clone())
        agreed.append(torch.equal(first, second))
    return agreed[0], agreed[1]


def leave_while_main_saves(parallel: Parallel, folder: Path) -> float:
    """Seconds until this rank had left, while rank 0 was busy for half a second."""
    started = time.monotonic()
    time.sleep(0.5 if parallel.is_main else 0)
    leave_process_group()
    return time.monotonic() - started


def train_on_nan(parallel: Parallel, folder: Path) -> int:
    """Every picture is NaN; the number of steps done."""
    task = make_task("cnn")
    broken = dataclasses.replace(
        task, train_set=PicturesInMemory(torch.full((50, 1, 8, 8), float("nan")), torch.zeros(50).long())
    )
    trainer = Trainer(
        broken, Settings(batch_size=8, lr=1e-3, max_steps=4, output_dir=folder), parallel, StopRequest()
    )
    trainer.run()
    return trainer.progress.step
