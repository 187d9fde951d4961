"""The loop that both recipes share: one optimizer step after another, logged, validated, saved, resumed."""

import contextlib
import json
import math
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from tensorboard.compat.proto.summary_pb2 import Summary
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_optimizer_state_dict
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

import checkpoints
import parallel
from parallel import StopVote

# Whole tensors on the CPU of rank 0, named as in the plain model, whatever the strategy.
PLAIN = StateDictOptions(full_state_dict=True, cpu_offload=True)


@dataclass(frozen=True)
class Workload:
    """A model whose output, for each target, is a row of logits; its data, and how it is scored."""

    name: str
    model: nn.Module
    train_set: Dataset[Any]
    val_set: Dataset[Any]
    score: Literal["accuracy", "perplexity"]
    blocks: Sequence[nn.Module] = ()  # the parts of the model that FSDP gathers and frees one at a time
    tokens_per_sample: int = 0  # 0 when the samples are not text
    # Applied to each training batch in the training process, so that it draws from the saved random state.
    augment: Callable[[torch.Tensor], torch.Tensor] | None = None
    architecture: dict[str, int | float | str] = field(default_factory=dict)  # builds `model` again


def train(args: Namespace, build_workload: Callable[[Namespace], Workload]) -> None:
    """Join the other ranks, build the workload alike on each, train, and leave."""
    device, vote = parallel.join_process_group(args.strategy), StopVote()
    checkpoints.seed_everything(args.seed)
    Trainer(build_workload(args), args, device, vote).run()
    parallel.leave_process_group()


class Trainer:
    """One rank of one run."""

    def __init__(self, workload: Workload, args: Namespace, device: torch.device, vote: StopVote) -> None:
        self.workload, self.args, self.device, self.vote = workload, args, device, vote
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        replicas = max(1, torch.cuda.device_count()) if args.strategy == "dp" else 1
        self.batch_size = args.batch_size * replicas  # DataParallel splits one batch over its GPUs
        self.samples_per_batch = self.batch_size * self.world_size
        samples = len(workload.train_set) // self.world_size  # type: ignore[arg-type]
        self.batches_per_epoch = samples // self.batch_size
        if self.batches_per_epoch < args.accumulate:
            raise SystemExit(
                f"A step takes {self.batch_size} samples x --accumulate {args.accumulate} on each rank, "
                f"but each has only {samples}. Lower --batch-size or --accumulate."
            )
        # `step` optimizer steps in all, `position` batches per rank into `epoch`.
        self.step, self.epoch, self.position, self.best_loss = 0, 0, 0, math.inf
        self.stopping, self.saved_at, self.writer = False, -1, None
        self.batches: Iterator[Any] | None = None  # what is left of the epoch
        self.timed_steps, self.busy_s, self.wait_s = 0, 0.0, 0.0  # since the last logged step
        self._build()

    def _build(self) -> None:
        """Make model, optimizer and scaler, and take their states back from the checkpoint, if there is one."""
        args, state = self.args, None
        if args.resume is not None:  # rank 0 reads for all: on several nodes only its disk need have the file
            states = [checkpoints.read_checkpoint(args.resume) if self.rank == 0 else None]
            dist.broadcast_object_list(states, device=torch.device("cpu"))
            state = states[0]
        self.model = self.workload.model.to(self.device)
        if state is not None:
            self.model.load_state_dict(state["model"], strict=True)
            self.step, self.epoch, self.best_loss = state["step"], state["epoch"], state["best_loss"]
            self.position = state["position"] // self.samples_per_batch
        self._roll_over()  # today's epochs may be shorter
        self.total_steps = self._count_steps()
        if args.compile:
            self.model.compile()  # in place: the parameters keep their names
        self.wrapped = parallel.wrap(self.model, self.workload.blocks, args.strategy, self.device)
        self.optimizer = make_optimizer(self.model, args)
        # Matrix products in --precision; weights and their gradients stay fp32 under every strategy.
        dtype = torch.float16 if args.precision == "fp16" else torch.bfloat16
        self.autocast = torch.autocast(self.device.type, dtype, enabled=args.precision != "fp32")
        # Scales the loss so that small fp16 gradients do not vanish; does nothing in other precisions.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=args.precision == "fp16")
        # Until here all ranks drew alike; from here each has its own dropout and augmentation.
        checkpoints.seed_everything(args.seed + self.rank)
        if state is not None:
            self._restore(state)

    def _restore(self, state: dict[str, Any]) -> None:
        """Take back the optimizer's state, but with today's flags, and the random states."""
        flags = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"], options=PLAIN)
        for group, today in zip(self.optimizer.param_groups, flags, strict=True):
            group.update(today)
        if self.scaler.is_enabled() and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        # With another number of ranks there is no state for each of them: their fresh seeds stay.
        if len(state["random_states"]) == self.world_size:
            checkpoints.restore_random_state(state["random_states"][self.rank])

    def _count_steps(self) -> int:
        """Steps done plus steps left, within --max-steps."""
        total: int = self.step
        if self.epoch < self.args.epochs:
            total += (self.batches_per_epoch - self.position) // self.args.accumulate
            later_epochs = self.args.epochs - self.epoch - 1
            total += later_epochs * (self.batches_per_epoch // self.args.accumulate)
        return min(total, self.args.max_steps or total)

    def run(self) -> None:
        """Train to the last step, or until a rank is asked to stop; then save."""
        with self._open_writer() if self.rank == 0 else contextlib.nullcontext() as self.writer:
            parameters = humanise(sum(parameter.numel() for parameter in self.model.parameters()))
            self._log(
                f"{self.workload.name}: {parameters} parameters, {self.args.strategy} on {self.world_size} x "
                f"{self.device.type}, {self.args.precision}, {self.samples_per_batch * self.args.accumulate} "
                f"samples a step, steps {self.step} to {self.total_steps}",
                {"train/total_steps": self.total_steps},
            )
            while not self.stopping and self.step < self.total_steps:
                self._train_step()
            if self.saved_at != self.step:
                self._save()
        self._log(f"{'stopped' if self.stopping else 'finished'} at step {self.step}/{self.total_steps}")

    def _train_step(self) -> None:
        started = time.perf_counter()
        loss = self._accumulate_gradients()
        is_due = (self.step + 1) % self.args.log_every == 0
        self.vote.cast(loss if is_due else None)  # overlaps with the optimizer
        norm, rate = self._update()
        self.step += 1
        self.position += self.args.accumulate
        self.timed_steps += 1
        self.busy_s += time.perf_counter() - started
        self._roll_over()
        if is_due:
            self._log_step(norm, rate)
        self.stopping = self.vote.passed()
        if self._is_due(self.args.val_every):
            self._validate()
        if self._is_due(self.args.checkpoint_every):
            self._save()

    def _roll_over(self) -> None:
        """Go to the next epoch when this one has no room for another step."""
        if self.position + self.args.accumulate > self.batches_per_epoch:
            self.epoch, self.position, self.batches = self.epoch + 1, 0, None

    def _is_due(self, every: int) -> bool:
        """Whether this is a step in `every`, or with 0 the last of an epoch; the run's last step always is."""
        due = self.step % every == 0 if every else self.position == 0
        return not self.stopping and (due or self.step == self.total_steps)

    def _next_batch(self) -> list[torch.Tensor]:
        """Inputs and targets on this rank's device; at the start of an epoch this starts the loader's processes."""
        started, args, train_set = time.perf_counter(), self.args, self.workload.train_set
        if self.batches is None:
            order = parallel.training_order(train_set, self.rank, self.world_size, args.seed, self.epoch)
            left = order[self.position * self.batch_size :]
            self.batches = iter(parallel.make_loader(train_set, left, self.batch_size, args.workers))
        inputs, targets = next(self.batches)
        if self.workload.augment is not None:
            inputs = self.workload.augment(inputs)
        batch = [part.to(self.device, non_blocking=True) for part in (inputs, targets)]
        self.wait_s += time.perf_counter() - started
        return batch

    def _accumulate_gradients(self) -> torch.Tensor:
        """Forward and backward over the batches of one step; returns this rank's mean loss."""
        self.wrapped.train()
        total = torch.zeros((), device=self.device)
        for index in range(self.args.accumulate):
            inputs, targets = self._next_batch()
            # Only the last backward pass exchanges gradients.
            with parallel.gradient_sync(self.wrapped, is_last=index == self.args.accumulate - 1):
                with self.autocast:
                    loss = cross_entropy(self.wrapped(inputs), targets) / self.args.accumulate
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    def _update(self) -> tuple[torch.Tensor, float]:
        """One optimizer step; returns the gradient norm before clipping, and the learning rate."""
        self.scaler.unscale_(self.optimizer)
        limit = self.args.clip_norm if self.args.clip_norm > 0 else math.inf  # inf only measures
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        if hasattr(norm, "full_tensor"):  # under FSDP each rank holds a part of the norm
            norm = norm.full_tensor()
        # The rate follows from the step and today's flags alone: a resumed run may get another --lr.
        rate = learning_rate_at(self.step, self.args.lr, self.args.warmup_steps, self.total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm, rate

    @torch.no_grad()
    def evaluate(self) -> tuple[float, float, int] | None:
        """Mean loss (nats), accuracy and number of targets over the validation set; all ranks must call it.

        None when a rank was asked to stop, for which the ranks vote at each batch: a large validation set must
        not outlast the grace period.
        """
        # DDP's wrapper would send rank 0's buffers (BatchNorm's running figures) in each forward pass.
        model = self.model if isinstance(self.wrapped, DistributedDataParallel) else self.wrapped
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
        model.eval()
        val_set, device = self.workload.val_set, self.device
        share, unread = parallel.validation_share(val_set, self.rank, self.world_size)
        sums = torch.zeros(3, dtype=torch.float64, device=device)
        for inputs, targets in parallel.make_loader(val_set, share, self.batch_size, self.args.workers):
            targets = targets[:unread].to(device)  # a sample that is repeated does not count
            unread -= len(targets)
            self.vote.cast()
            with self.autocast:
                logits = model(inputs.to(device))[: len(targets)]
            sums[0] += cross_entropy(logits, targets, reduction="sum")
            sums[1] += (logits.argmax(-1) == targets).sum()
            sums[2] += targets.numel()
            if self.vote.passed():
                return None
        dist.all_reduce(sums)
        loss, correct, count = sums.tolist()
        return loss / count, correct / count, int(count)

    def _validate(self) -> None:
        result = self.evaluate()
        if result is None:
            self.stopping = True
            return
        loss, score, count = result
        if self.workload.score == "perplexity":  # how many tokens the model still hesitates between
            score = math.exp(loss) if loss < 700 else math.inf
        self._log(
            f"step {self.step}/{self.total_steps} | val loss {loss:.4f} | "
            f"val {self.workload.score} {score:.4f} over {count} targets",
            {"val/loss": loss, f"val/{self.workload.score}": score},
        )
        if loss < self.best_loss:
            self.best_loss = loss
            self._save(is_best=True)

    def state_dict(self) -> dict[str, Any]:
        """All that changes during a run, on rank 0; all ranks must call it. Readable with `weights_only=True`."""
        model, optimizer = get_state_dict(self.model, self.optimizer, options=PLAIN)
        random_states = [None] * self.world_size
        dist.all_gather_object(random_states, checkpoints.capture_random_state())
        rate = {"peak": self.args.lr, "warmup_steps": self.args.warmup_steps, "total_steps": self.total_steps}
        return {
            "model": model,
            "optimizer": optimizer,
            "schedule": {"step": self.step, **rate},
            "scaler": self.scaler.state_dict(),
            "random_states": random_states,
            "step": self.step,
            "epoch": self.epoch,
            # In samples over all ranks: still right when batch size or number of ranks change.
            "position": self.position * self.samples_per_batch,
            "best_loss": self.best_loss,
        }

    def _save(self, is_best: bool = False) -> None:
        state = self.state_dict()
        if not is_best:
            self.saved_at = self.step
        if self.rank == 0:
            state |= {"task": self.workload.name, "architecture": self.workload.architecture}
            state["settings"] = json.loads(json.dumps(vars(self.args), default=str))
            folder = self.args.output_dir / "checkpoints"
            path = checkpoints.save_checkpoint(state, folder, self.args.keep_last, is_best)
            self._log(f"checkpoint saved: {path}")

    def _open_writer(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter  # costs a second or more, and only rank 0 needs it

        # A resume in the same folder drops the steps past its checkpoint; TensorFlow would hold points for minutes.
        purge_step = self.step + 1 if self.step else None
        return SummaryWriter(str(self.args.output_dir / "tensorboard"), purge_step=purge_step, flush_secs=1)

    def _log(self, line: str, values: dict[str, float] | None = None) -> None:
        """Write one value per tag to the event file and print `line`, on rank 0."""
        if self.writer is not None and values:
            # One event for all tags: `add_scalar` for each takes 0.8 ms of a step, this 0.1.
            scalars = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
            self.writer.file_writer.add_summary(Summary(value=scalars), self.step)
        if self.writer is not None and line:
            print(line, flush=True)

    def _log_step(self, norm: torch.Tensor, rate: float) -> None:
        started = time.perf_counter()
        loss = self.vote.total() / self.world_size
        self.busy_s += time.perf_counter() - started  # here the process waits for its GPU
        step_s, wait_s = self.busy_s / self.timed_steps, self.wait_s / self.timed_steps
        self.timed_steps, self.busy_s, self.wait_s = 0, 0.0, 0.0
        samples_per_s = self.samples_per_batch * self.args.accumulate / step_s
        epoch = self.epoch + self.position / self.batches_per_epoch
        values = {"loss": loss, "lr": rate, "grad_norm": float(norm), "samples_per_s": samples_per_s}
        values |= {"step_time_s": step_s, "data_wait_s": wait_s, "epoch": epoch}
        speed, unit = samples_per_s, "samples"
        if self.workload.tokens_per_sample:
            speed, unit = samples_per_s * self.workload.tokens_per_sample, "tokens"
            values["tokens_per_s"] = speed
        line = (
            f"step {self.step}/{self.total_steps} | epoch {epoch:.2f} | loss {loss:.4f} | lr {rate:.2e} | "
            f"grad norm {norm:.2f} | {humanise(speed)} {unit}/s | {step_s * 1e3:.0f} ms (data {wait_s * 1e3:.1f} ms)"
        )
        is_printed = self.args.print_every and self.step % self.args.print_every == 0
        self._log(line if is_printed else "", {f"train/{name}": value for name, value in values.items()})


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Loss in nats of `logits` (..., classes) against `targets` (...), computed in fp32."""
    return functional.cross_entropy(logits.flatten(0, -2).float(), targets.flatten(), reduction=reduction)


def make_optimizer(model: nn.Module, args: Namespace) -> torch.optim.Optimizer:
    """AdamW or SGD in one pass over the parameters; biases and norm gains (fewer than two dimensions) do not decay."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    shared = {"lr": args.lr, "weight_decay": args.weight_decay, "fused": True}
    if args.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=args.momentum, **shared)
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), **shared)


def learning_rate_at(step: int, peak: float, warmup_steps: int, total_steps: int) -> float:
    """The rate of optimizer step `step` (from 0): linear warm-up, then half a cosine down to a tenth of `peak`.

    See Goyal et al. 2017 (arXiv 1706.02677) and Loshchilov and Hutter 2017 (arXiv 1608.03983).
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps  # above zero from the first step on
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    return peak * (0.1 + (1 - 0.1) * 0.5 * (1 + math.cos(math.pi * progress)))


def humanise(value: float) -> str:
    """12432 -> '12.4 k'."""
    for size, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.1f}{suffix}"
    return f"{value:.1f}"


def positive(text: str, least: int = 1) -> int:
    """An argparse type: a whole number from 1. Raises ArgumentTypeError, ValueError."""
    value = int(text)
    if value < least:
        raise ArgumentTypeError(f"must be at least {least}, not {value}")
    return value


def not_negative(text: str) -> int:
    """An argparse type: a whole number from 0."""
    return positive(text, least=0)


# fmt: off
def add_shared_arguments(parser: ArgumentParser) -> None:
    """Add the flags that do not depend on the recipe; each adds those whose defaults are its own."""
    parser.add_argument("--max-steps", type=not_negative, default=0,
                        help="stop after this many steps (0: --epochs decides)")
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], default="fp32", help="fp16 scales gradients")
    parser.add_argument("--accumulate", type=positive, default=1, help="batches whose gradients add up to one step")
    parser.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw", help="sgd has --momentum")
    parser.add_argument("--momentum", type=float, default=0.9, help="for --optimizer sgd")
    parser.add_argument("--clip-norm", type=float, default=1.0, help="largest gradient norm (0: no clipping)")
    parser.add_argument("--seed", type=int, default=0, help="order, initial weights; rank R draws from seed + R")
    parser.add_argument("--strategy", choices=["ddp", "fsdp", "dp", "single"], default="ddp",
                        help="how the model is spread over processes")
    parser.add_argument("--workers", type=not_negative, default=0, help="data-loader processes per rank")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model (needs a C++ compiler on CPUs)")
    parser.add_argument("--resume", type=Path, default=None, metavar="PATH", help="checkpoint, or a folder: its latest")
    parser.add_argument("--output-dir", type=Path, default=Path(), help="gets tensorboard/ and checkpoints/")
    parser.add_argument("--log-every", type=positive, default=1, help="steps between points in the event file")
    parser.add_argument("--print-every", type=not_negative, default=10, help="steps between printed lines (0: none)")
    parser.add_argument("--keep-last", type=not_negative, default=3, help="checkpoints kept beside best.pt (0: all)")
# fmt: on
