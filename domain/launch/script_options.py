"""Read what a script's own arguments say: its number of steps, its batch size."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

TOTAL_STEPS = frozenset(
    "steps max_steps num_steps n_steps total_steps train_steps max_train_steps num_train_steps training_steps iters "
    "max_iters max_iter num_iters n_iters total_iters train_iters iterations max_iterations num_iterations".split()
)
BATCH_SIZE = frozenset(
    "batch_size batchsize per_device_train_batch_size per_gpu_batch_size train_batch_size micro_batch_size bs".split()
)


def total_steps(args: Sequence[str]) -> int | None:
    """Return the number of steps that `--steps 400`, `--max-iters=400` or `trainer.max_steps=400` asks for."""
    return _count(args, TOTAL_STEPS)


def batch_size(args: Sequence[str]) -> int | None:
    """Return the batch size that the arguments give, taken as that of one process."""
    return _count(args, BATCH_SIZE)


def _count(args: Sequence[str], names: Collection[str]) -> int | None:
    """Return the last whole number above 0 that one of the options has: the last one wins in a script."""
    values = [value for name, text in _options(args) if name in names and (value := _whole(text))]
    return values[-1] if values else None


def _options(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each option, the name without dashes and groups."""
    for arg, following in zip(args, [*args[1:], ""], strict=False):
        option, equals, value = arg.partition("=")
        if equals or option.startswith("-"):
            name = option.lstrip("-").rpartition(".")[2].replace("-", "_").lower()
            yield name, value if equals else following


def _whole(text: str) -> int | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if 1 <= value <= 1e15 and value.is_integer() else None
