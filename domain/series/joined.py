"""Series that are the same figure under the names of different loggers, so that runs are compared in one chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

PRINTED = "printed/"
TRAIN = "train/"


def joined_names(by_run: Mapping[str, Collection[str]]) -> dict[str, dict[str, str]]:
    """Return what the series of each run are called among those of the others, where that is not their own name.

    `printed/loss` of one run is `loss` of another, unless one of the two has both; `train/loss` is `loss` where none
    of the runs has both."""
    own = {run: _by_figure(names) for run, names in by_run.items()}
    bare = {figure for of_run in own.values() for figure in of_run}
    for figure in [name.removeprefix(TRAIN) for name in bare if name.startswith(TRAIN)]:
        if figure in bare and not any({figure, TRAIN + figure} <= of_run.keys() for of_run in own.values()):
            own = {run: _called(of_run, TRAIN + figure, figure) for run, of_run in own.items()}
    joined: dict[str, dict[str, str]] = {}
    for figure in {figure for of_run in own.values() for figure in of_run}:
        names = {run: of_run[figure] for run, of_run in own.items() if figure in of_run}
        shown = _shown(list(names.values()))
        for run, name in names.items():
            if name != shown:
                joined.setdefault(run, {})[name] = shown
    return joined


def _by_figure(names: Collection[str]) -> dict[str, str]:
    """The names by what they are without their logger; of two, the one that is logged rather than printed."""
    return {name.removeprefix(PRINTED): name for name in sorted(names, key=lambda n: not n.startswith(PRINTED))}


def _called(by_figure: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    return {new if figure == old else figure: name for figure, name in by_figure.items()}


def _shown(names: Collection[str]) -> str:
    """The one name of all; else, without its logger, the one that most runs have, and of equals the shortest."""
    if len(set(names)) == 1:
        return next(iter(names))
    counts = Counter(name.removeprefix(PRINTED) for name in names)
    return max(counts, key=lambda name: (counts[name], -len(name), name))
