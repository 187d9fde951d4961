"""Finds the model among the dictionaries of a checkpoint: beside it are optimizers, schedulers, loaders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .names import listed
from .sources import CheckpointRefused

Keys = tuple[object, ...]
"""What leads from the checkpoint's outermost dictionary to a tensor."""
CONTAINERS = ("state_dict", "app")
"""Names of dictionaries that may hold the model's beside others."""
USUAL_NAMES = ("model", "state_dict", "model_state_dict", "model_state", "module", "net", "network", "app")
"""Names that scripts give the model's state dict, or what contains it, the most usual first."""
OTHER_WORDS = ("optim", "sched", "rng", "random", "scaler", "loader", "sampler", "train_state", "callbacks", "loops")
"""Parts of the names of dictionaries that never are the model's."""


@dataclass(frozen=True)
class ModelPart:
    """The model's tensors in a checkpoint."""

    names: dict[Keys, str]
    """The keys of each -> its name in the model's dictionary."""
    notes: list[str]
    """A sentence about the tensors that are not the model's."""


def model_part(tensors: Iterable[Keys]) -> ModelPart:
    """The dictionary that holds the model's tensors, with all dictionaries inside it that are the model's.

    Raises CheckpointRefused."""
    tensors = list(tensors)
    if not tensors:
        raise CheckpointRefused(
            "It contains no state dict, that is, no dictionary of names and tensors: save model.state_dict()."
        )
    at: Keys = ()
    below = tensors
    while (key := _inner(at, below)) is not None:
        at = (*at, key)
        below = [keys for keys in below if keys[: len(at)] == at]
    names = {keys: ".".join(map(str, keys[len(at) :])) for keys in below if not _is_beside(keys[len(at) :])}
    return ModelPart(names, _left_out([keys for keys in tensors if keys not in names], len(at)))


def _inner(at: Keys, below: Sequence[Keys]) -> object | None:
    """The key of the dictionary inside `at` that is the model's rather than `at` itself; None if `at` is."""
    inner = list(dict.fromkeys(keys[len(at)] for keys in below if len(keys) > len(at) + 1))
    models = [key for key in inner if not is_other(key)]
    usual = [name for name in USUAL_NAMES if name in inner]
    is_model = bool(at) and at[-1] in USUAL_NAMES and at[-1] not in CONTAINERS
    if usual and (not is_model or len(models) == 1):
        return usual[0]
    if is_model or not models or any(len(keys) == len(at) + 1 for keys in below):
        return None
    if len(models) == 1:
        return models[0]
    raise CheckpointRefused(
        f"It contains several state dicts ({listed(map(str, models))}), and none is called "
        f"{', '.join(USUAL_NAMES[:2])} or {USUAL_NAMES[2]}: save the model's as one of these."
    )


def is_other(key: object) -> bool:
    """Whether a dictionary of this name surely is not the model's."""
    return any(word in str(key).lower() for word in OTHER_WORDS)


def _is_beside(keys: Keys) -> bool:
    """Whether a tensor inside the model's dictionary is in one that is not the model's."""
    return len(keys) > 1 and is_other(keys[0])


def _left_out(others: Sequence[Keys], depth: int) -> list[str]:
    places = dict.fromkeys(".".join(map(str, keys[: max(1, depth)])) for keys in others)
    return [f"{len(others)} tensors beside the model were left out: {listed(places)}."] if others else []
