"""The kinds of state in a checkpoint, by the outline of a file and by the names of a folder's files. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from domain.checkpoints.names import part_name

Kind = Literal["model", "optimizer", "scheduler", "scaler", "rng", "sampler", "step"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""rng: random states; sampler: the position in the data; step: step or epoch."""


class CheckpointContents(BaseModel):
    """The kinds of state that a node read in a checkpoint, without unpickling it."""

    model_config = ConfigDict(frozen=True)

    kinds: list[Kind]
    by_rank: list[Kind] = []
    """Those of which every rank has a file of its own."""
    layout: Annotated[str, Field(max_length=100)] = "file"
    """file, or the kind of a folder (`worker.checkpoints.folders.Kind`)."""

    @classmethod
    def of_stored(cls, value: Mapping[str, Any] | None) -> CheckpointContents | None:
        """The contents as a store has them; None where there are none, or an imported archive had something else."""
        with suppress(ValidationError):
            return cls.model_validate(value) if value else None
        return None


@dataclass
class Thing:
    """A value of an outline that is an object of a class, or the result of a function."""

    maker: str
    """Module and name of the class or function: torch._utils _rebuild_tensor_v2."""
    state: object = None

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, a parameter, or the description of one in a distributed checkpoint."""
        return self.maker.startswith(_TENSOR_MAKERS) or self.maker.endswith("TensorStorageMetadata")

    @property
    def is_module(self) -> bool:
        """Whether it is a whole torch.nn.Module."""
        return isinstance(self.state, Mapping) and "_modules" in self.state


def in_order(kinds: Iterable[Kind]) -> list[Kind]:
    """Return each of the kinds once, in their usual order."""
    present = set(kinds)
    return [kind for kind in KINDS if kind in present]


def kinds_in(outline: object) -> set[Kind]:
    """The kinds of state in a value as it was saved: dictionaries by name, lists, `Thing`s, and plain values."""
    return _kinds_in(outline, DEEPEST, set())


def kinds_of_file(path: str) -> set[Kind]:
    """The kinds of state that a file of a checkpoint's folder has by its path."""
    *folders, name = path.split("/")
    if name == "trainer_state.json":
        return {"step"}
    if name.endswith(".distcp"):
        name = folders[-1] if folders else ""
    elif not name.endswith(_STATE_SUFFIXES) or name == "training_args.bin":
        return set()
    if named := _kinds_of_words(name):
        return named
    words = set(part_name(name).words)
    return {"model"} if words & _MODEL_WORDS or name.endswith(".safetensors") else set()


def kinds_by_rank(paths: Mapping[str, set[Kind]]) -> set[Kind]:
    """The kinds in files of which several ranks have one each; `paths`: path -> kinds of state in it."""
    ranks = defaultdict[str, set[str]](set)
    kinds = defaultdict[str, set[Kind]](set)
    for path, own in paths.items():
        if match := _RANK.search(path):
            label = path[: match.start()] + path[match.end() :]
            ranks[label].add(match[0])
            kinds[label] |= own
    return {kind for label, own in kinds.items() if len(ranks[label]) > 1 for kind in own}


DEEPEST = 4
"""Dictionaries and lists in each other."""
MOST_OF_LIST = 16
"""Values of a list that are looked at: Lightning has one for each optimizer."""
_TENSOR_MAKERS = ("torch._utils _rebuild_tensor", "torch._utils _rebuild_parameter", "torch._tensor _rebuild")
_STATE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".pkl", ".tar")
_MODEL_WORDS = {"model", "models", "module", "weights", "net", "network", "params", "ema"}
_WORDS: dict[Kind, set[str]] = {
    "optimizer": {"optim", "optims", "optimizer", "optimizers", "optimiser", "opt"},
    "scheduler": {"sched", "scheduler", "schedulers"},
    "scaler": {"scaler", "scalers", "gradscaler"},
    "rng": {"rng", "rngs", "random"},
    "sampler": {"sampler", "samplers", "dataloader", "dataloaders", "loader", "loaders"},
}
_SETTINGS = {"config", "cfg", "args", "hparams", "hyper", "hyperparameters", "options", "settings"}
_STEP_WORDS = {"step", "steps", "epoch", "epochs", "iter", "iters", "iteration", "iterations", "loops"}
_WRAPPERS = {"app", "app_state", "state", "state_dict", "train_state", "checkpoint"}
"""First parts of a distributed checkpoint's names that say nothing."""
_RANK = re.compile(r"(?<![A-Za-z])(?:[dp]p_)?rank[-_=]?\d+|(?<=rng_state_)\d+|(?<=random_states_)\d+")


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", text.lower()))


def _kinds_of_words(text: str) -> set[Kind]:
    words = _words(text)
    return {kind for kind, own in _WORDS.items() if words & own}


def _by_shape(values: Mapping[Any, object]) -> Kind | None:
    """The kind of a state dict of torch, by its usual names or its tensors."""
    names = values.keys()
    if "param_groups" in names and "state" in names:
        return "optimizer"
    if "growth_factor" in names and "scale" in names:
        return "scaler"
    if "last_epoch" in names and names & {"_step_count", "base_lrs"}:
        return "scheduler"
    return "model" if _are_parameters(values) else None


def _are_parameters(values: Mapping[Any, object]) -> bool:
    """Whether they are named tensors, most of them with a layer in their names."""
    named = [name for name, value in values.items() if isinstance(value, Thing) and value.is_tensor]
    return 2 * len(named) > len(values) and any("." in str(name) for name in named)


def _kinds_in(outline: object, depth: int, visited: set[int]) -> set[Kind]:
    """The kinds down to a depth; what stands in several places is looked at once."""
    if isinstance(outline, Thing):
        return _kinds_of_thing(outline)
    if not isinstance(outline, Mapping | list) or depth == 0 or id(outline) in visited:
        return set()
    visited.add(id(outline))
    if isinstance(outline, list):
        return {kind for value in outline[:MOST_OF_LIST] for kind in _kinds_in(value, depth - 1, visited)}
    if shape := _by_shape(outline):
        return {shape}
    return {kind for name, value in outline.items() for kind in _kinds_of_entry(str(name), value, depth, visited)}


def _kinds_of_thing(thing: Thing) -> set[Kind]:
    if thing.is_module:
        return {"model"}
    stored = thing.state.get("state_dict_metadata") if isinstance(thing.state, Mapping) else None
    return _kinds_of_flat_names(stored) if isinstance(stored, Mapping) else set()


def _kinds_of_entry(name: str, value: object, depth: int, visited: set[int]) -> set[Kind]:
    if value is None or value is False or (isinstance(value, Mapping | list) and not value):
        return set()
    words = _words(name)
    if words & _SETTINGS or isinstance(value, str | bool):  # optimizer="adamw" is a setting, not the optimizer's state
        return set()
    if named := _kinds_of_words(name):
        return named
    if words & _STEP_WORDS:
        return {"step"}
    if isinstance(value, Thing) and value.is_tensor:
        return {"model"}
    inner = _kinds_in(value, depth - 1, visited)
    return inner or ({"model"} if words & _MODEL_WORDS and _has_tensors(value) else set())


def _has_tensors(value: object) -> bool:
    values = value.values() if isinstance(value, Mapping) else ()
    return any(isinstance(one, Thing) and one.is_tensor for one in values)


def _kinds_of_flat_names(stored: Mapping[Any, object]) -> set[Kind]:
    """The kinds of state behind the joined names of a distributed checkpoint: optimizer.state.fc.weight.exp_avg."""
    kinds = set[Kind]()
    for name, value in stored.items():
        first, *rest = str(name).split(".")
        first = rest[0] if first in _WRAPPERS and rest else first
        if named := _kinds_of_words(first):
            kinds |= named
        elif isinstance(value, Thing) and value.is_tensor and first not in _STEP_WORDS:
            kinds.add("model")
        elif _words(first) & _STEP_WORDS:
            kinds.add("step")
    return kinds
