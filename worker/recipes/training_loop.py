"""The loop that both recipes share: one optimizer step after another, logged, validated, saved, resumed."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from batches import Batch, TrainingOrder, ValidationShare, make_loader
from evaluation import Evaluation, evaluate
from event_log import EventLog, humanise
from learning_rate import WarmupCosine
from optimizers import autocast, clip_gradients, make_optimizer, make_scaler
from parallel import (
    Parallel,
    align_buffers,
    gradient_sync,
    join_process_group,
    leave_process_group,
    send_from_main,
    sum_over_ranks,
)
from random_state import seed_everything
from settings import Settings
from snapshot import CheckpointFolder, read_checkpoint
from stopping import StopRequest, StopVote
from task import Task, cross_entropy
from training_state import Progress, Training, read_progress


def train(settings: Settings, build_task: Callable[[], Task]) -> None:
    """Join the other ranks, build the task alike on each, train, and leave."""
    parallel = join_process_group(settings.strategy)
    request = StopRequest()
    request.listen()
    seed_everything(settings.seed)
    Trainer(build_task(), settings, parallel, request).run()
    leave_process_group()


@dataclass
class StepClock:
    """Sums up the steps since the last logged one: a GPU's time is only known when someone waits for it."""

    steps: int = 0
    busy_s: float = 0.0
    data_wait_s: float = 0.0

    def means(self) -> tuple[float, float]:
        """Seconds per step, and of these the seconds waiting for data; then start anew."""
        means = self.busy_s / self.steps, self.data_wait_s / self.steps
        self.steps, self.busy_s, self.data_wait_s = 0, 0.0, 0.0
        return means


class Trainer:
    """One rank of one run."""

    def __init__(self, task: Task, settings: Settings, parallel: Parallel, request: StopRequest) -> None:
        self.task, self.settings, self.parallel = task, settings, parallel
        self._batch_size = settings.batch_size * parallel.replicas
        self._samples_per_batch = settings.batch_size * parallel.total_replicas
        self._load_data()
        self._build(self._read_checkpoint())
        self._vote = StopVote(parallel, request)
        self._clock = StepClock()
        self._checkpoints = CheckpointFolder(settings.output_dir / "checkpoints", settings.keep_last)
        self._log = EventLog(settings.output_dir / "tensorboard", parallel.is_main, self.progress.step)
        self._stopping = False
        self._saved_at = -1

    @property
    def progress(self) -> Progress:
        """How far this run is."""
        return self.training.progress

    def run(self) -> None:
        """Train to the last step, or until someone asks to stop; then save."""
        first_step = self.progress.step
        with closing(self._log):
            self._log.scalars(first_step, {"train/total_steps": self._total_steps})
            self._announce()
            while not self._is_over():
                self._train_epoch()
            if self._saved_at != self.progress.step:
                self._save()
        verb = "stopped" if self._stopping else "finished"
        self._say(f"{verb} at step {self.progress.step}/{self._total_steps}")

    def evaluate(self) -> Evaluation | None:
        """Score the model, with rank 0's buffers, on the validation set; None when asked to stop."""
        align_buffers(self.parallel, self.training.model)
        # DDP's wrapper would exchange buffers again in each forward pass.
        is_ddp = isinstance(self._wrapped, DistributedDataParallel)
        model = self.training.model if is_ddp else self._wrapped
        autocasting = autocast(self.settings.precision, self.parallel.device)
        return evaluate(model, self._val_loader, self._val_share, self.parallel, autocasting, self._vote)

    # Building

    def _load_data(self) -> None:
        settings, parallel, task = self.settings, self.parallel, self.task
        self._order = TrainingOrder(task.train_set, parallel, settings.seed)
        self._train_loader = make_loader(
            task.train_set, self._order, self._batch_size, settings.workers, parallel, whole_batches=True
        )
        self._val_share = ValidationShare(len(task.val_set), parallel)  # type: ignore[arg-type]
        self._val_loader = make_loader(
            task.val_set, self._val_share, self._batch_size, settings.workers, parallel, whole_batches=False
        )
        self._batches_per_epoch = self._order.num_samples // self._batch_size
        if self._batches_per_epoch < settings.accumulate:
            raise SystemExit(
                f"A step takes {self._batch_size} samples x --accumulate {settings.accumulate} on each rank, "
                f"but each has only {self._order.num_samples}. Lower --batch-size or --accumulate."
            )

    def _read_checkpoint(self) -> dict[str, Any] | None:
        """Rank 0 reads for all: on several nodes only its disk need have the file."""
        path = self.settings.resume
        if path is None:
            return None
        state: dict[str, Any] = send_from_main(
            self.parallel, read_checkpoint(path) if self.parallel.is_main else None
        )
        return state

    def _build(self, state: dict[str, Any] | None) -> None:
        settings, parallel = self.settings, self.parallel
        model = self.task.model.to(parallel.device)
        if state is not None:
            model.load_state_dict(state["model"], strict=True)
        if settings.compile:
            model.compile()  # in place: the parameters keep their names
        self._wrapped = parallel.join(model, self.task.blocks)
        progress = Progress() if state is None else read_progress(state, self._samples_per_batch)
        progress.roll_over(settings.accumulate, self._batches_per_epoch)  # today's epochs may be shorter
        self._total_steps = self._count_steps(progress)
        optimizer = make_optimizer(model, settings)
        schedule = WarmupCosine(optimizer, settings.lr, settings.warmup_steps, self._total_steps)
        scaler = make_scaler(settings.precision, parallel.device)
        self.training = Training(model, optimizer, schedule, scaler, progress)
        # Until here all ranks drew alike; from here each has its own dropout and augmentation.
        seed_everything(settings.seed + parallel.rank)
        if state is not None:
            self.training.restore(state, parallel)

    def _count_steps(self, progress: Progress) -> int:
        """Steps done plus steps left, within --max-steps."""
        per_step = self.settings.accumulate
        left_in_epoch = (self._batches_per_epoch - progress.position) // per_step
        later_epochs = self.settings.epochs - progress.epoch - 1
        left = (
            left_in_epoch + later_epochs * (self._batches_per_epoch // per_step) if later_epochs >= 0 else 0
        )
        total = progress.step + left
        return min(total, self.settings.max_steps) if self.settings.max_steps else total

    # Training

    def _train_epoch(self) -> None:
        epoch = self.progress.epoch
        self._order.begin(epoch, self.progress.position * self._batch_size)
        started = time.perf_counter()
        batches = iter(self._train_loader)  # starts the loader's processes: the next step waits for them too
        self._clock.busy_s += time.perf_counter() - started
        self._clock.data_wait_s += time.perf_counter() - started
        while self.progress.epoch == epoch and not self._is_over():
            self._train_step(batches)

    def _train_step(self, batches: Iterator[Batch]) -> None:
        started = time.perf_counter()
        loss = self._accumulate_gradients(batches)
        self._vote.cast()
        norm, rate = self._update()
        epoch_ended = self.progress.advance(self.settings.accumulate, self._batches_per_epoch)
        is_logged = self.progress.step % self.settings.log_every == 0
        if is_logged:
            mean_loss = (sum_over_ranks(self.parallel, loss) / self.parallel.world_size).item()
        self._clock.steps += 1
        self._clock.busy_s += time.perf_counter() - started
        if is_logged:
            self._report_step(mean_loss, float(norm), rate)
        self._stopping = self._vote.passed()
        self._after_step(epoch_ended)

    def _accumulate_gradients(self, batches: Iterator[Batch]) -> torch.Tensor:
        """Forward and backward over the batches of one step; returns this rank's mean loss."""
        self._wrapped.train()
        total = torch.zeros((), device=self.parallel.device)
        for index in range(self.settings.accumulate):
            inputs, targets = self._next_batch(batches)
            # Only the last backward pass exchanges gradients.
            with gradient_sync(self._wrapped, wanted=index == self.settings.accumulate - 1):
                with autocast(self.settings.precision, self.parallel.device):
                    loss = cross_entropy(self._wrapped(inputs), targets) / self.settings.accumulate
                self.training.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total

    def _next_batch(self, batches: Iterator[Batch]) -> Batch:
        started = time.perf_counter()
        inputs, targets = next(batches)
        if self.task.augment is not None:
            inputs = self.task.augment(inputs)
        inputs = inputs.to(self.parallel.device, non_blocking=True)
        targets = targets.to(self.parallel.device, non_blocking=True)
        self._clock.data_wait_s += time.perf_counter() - started
        return inputs, targets

    def _update(self) -> tuple[torch.Tensor, float]:
        """One optimizer step; returns the gradient norm before clipping, and the learning rate."""
        optimizer, scaler = self.training.optimizer, self.training.scaler
        scaler.unscale_(optimizer)
        norm = clip_gradients(self.training.model, self.settings.clip_norm)
        rate = self.training.schedule.apply()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return norm, rate

    def _after_step(self, epoch_ended: bool) -> None:
        if self._stopping:
            return
        is_last = self.progress.step == self._total_steps
        if is_last or self._is_due(self.settings.val_every, epoch_ended):
            self._validate()
        if not self._stopping and (is_last or self._is_due(self.settings.checkpoint_every, epoch_ended)):
            self._save()

    def _is_due(self, every: int, epoch_ended: bool) -> bool:
        return self.progress.step % every == 0 if every > 0 else epoch_ended

    def _is_over(self) -> bool:
        return self._stopping or self.progress.step >= self._total_steps

    # Telling

    def _report_step(self, loss: float, norm: float, rate: float) -> None:
        step_s, wait_s = self._clock.means()
        samples_per_s = self._samples_per_batch * self.settings.accumulate / step_s
        epoch = self.progress.epoch + self.progress.position / self._batches_per_epoch
        values = {
            "train/loss": loss,
            "train/lr": rate,
            "train/grad_norm": norm,
            "train/samples_per_s": samples_per_s,
            "train/step_time_s": step_s,
            "train/data_wait_s": wait_s,
            "train/epoch": epoch,
        }
        speed = f"{humanise(samples_per_s)} samples/s"
        if self.task.tokens_per_sample:
            values["train/tokens_per_s"] = samples_per_s * self.task.tokens_per_sample
            speed = f"{humanise(values['train/tokens_per_s'])} tokens/s"
        self._log.scalars(self.progress.step, values)
        if self.settings.print_every and self.progress.step % self.settings.print_every == 0:
            self._say(
                f"step {self.progress.step}/{self._total_steps} | epoch {epoch:.2f} | loss {loss:.4f} | "
                f"lr {rate:.2e} | grad norm {norm:.2f} | {speed} | "
                f"{step_s * 1e3:.0f} ms (data {wait_s * 1e3:.1f} ms)"
            )

    def _validate(self) -> None:
        result = self.evaluate()
        if result is None:
            self._stopping = True
            return
        score = getattr(result, self.task.score)
        self._log.scalars(self.progress.step, {"val/loss": result.loss, f"val/{self.task.score}": score})
        self._say(
            f"step {self.progress.step}/{self._total_steps} | val loss {result.loss:.4f} | "
            f"val {self.task.score} {score:.4f} over {result.count} targets"
        )
        if result.loss < self.progress.best_loss:
            self.progress.best_loss = result.loss
            self._save(is_best=True)

    def _save(self, is_best: bool = False) -> None:
        state = self.training.capture(self.parallel, self._samples_per_batch)
        if not is_best:
            self._saved_at = self.progress.step
        if self.parallel.is_main:
            state |= {
                "task": self.task.name,
                "architecture": self.task.architecture,
                "settings": self.settings.as_plain_values(),
            }
            folder = self._checkpoints
            path = folder.save_best(state) if is_best else folder.save_step(self.progress.step, state)
            self._say(f"checkpoint saved: {path}")

    def _announce(self) -> None:
        parameters = sum(parameter.numel() for parameter in self.task.model.parameters())
        self._say(
            f"{self.task.name}: {humanise(parameters)} parameters, {self.settings.strategy} on "
            f"{self.parallel.world_size} x {self.parallel.device.type}, {self.settings.precision}, "
            f"{self._samples_per_batch * self.settings.accumulate} samples a step, "
            f"steps {self.progress.step} to {self._total_steps}"
        )

    def _say(self, line: str) -> None:
        if self.parallel.is_main:
            print(line, flush=True)
