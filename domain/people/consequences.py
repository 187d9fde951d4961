"""Consequences of a change for other people than its maker: one sentence with names and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domain.text.formats import agree, as_list, plural

MOST_NAMED = 5


@dataclass(frozen=True)
class Consequence:
    """The loss of other people by a change; none where `sentence` is empty: then the change needs no question."""

    sentence: str = ""
    people: tuple[str, ...] = ()
    """The names of those who lose something."""
    runs: int = 0
    """Their runs, or the runs of which they lose sight."""


NOTHING = Consequence()


def of_privacy(project: str, people: Sequence[str], runs: int) -> Consequence:
    """Return the loss of people who see a project by their role everywhere, if it is made private."""
    if not people:
        return NOTHING
    unseen = plural(runs, "run") if runs else "the project"
    exception = " People still see the runs that they launched." if runs else ""
    sentence = f"{project}: {_people_words(people)} {agree(len(people), 'loses', 'lose')} sight of {unseen}.{exception}"
    return Consequence(sentence, tuple(people), runs)


def of_role(person: str, before: str, after: str, where: str, unseen: Sequence[str], runs: int) -> Consequence:
    """Return a person's loss by a lower role; `unseen`: the projects of the runs of which they lose sight."""
    lost = f" They lose sight of {plural(runs, 'run')} in {as_list(unseen, MOST_NAMED)}." if unseen else ""
    return Consequence(f"{person} is now {before} of {where}, and would be {after}.{lost}", (person,), runs)


def of_removal(person: str, live: int, others: Mapping[str, int]) -> Consequence:
    """Return a removed person's loss: live runs, and counts by noun of the `others` that end with the account."""
    ending = [plural(amount, noun) for noun, amount in others.items() if amount]
    ends = f" {as_list(ending)} {agree(sum(others.values()), 'ends', 'end')} with the account." if ending else ""
    runs = plural(live, "live run") if live else "no live run"
    return Consequence(f"{person} has {runs}.{ends}", (person,), live)


def of_drain(node: str, owners: Mapping[str, int], hidden: int = 0) -> Consequence:
    """Return whose runs train on a drained node; `hidden`: the number of runs whose owners the reader may not know."""
    runs = sum(owners.values()) + hidden
    if not runs:
        return NOTHING
    named = [_runs_words(owners)] if owners else []
    private = [plural(hidden, "private run")] if hidden else []
    sentence = f"{node} trains {as_list(named + private)}; {agree(runs, 'it continues', 'they continue')}"
    return Consequence(f"{sentence}, and nothing new starts there.", tuple(owners), runs)


def of_runs(owners: Mapping[str, int]) -> Consequence:
    """Return whose runs a person acts on; `owners` counts the runs of others."""
    return Consequence(f"{_runs_words(owners)}.", tuple(owners), sum(owners.values())) if owners else NOTHING


def of_thing(noun: str, owner: str | None, by: str | None) -> Consequence:
    """Return whose link, alert or sweep a person ends, where it is another's."""
    is_anothers = owner is not None and by is not None and owner != by
    return Consequence(f"This {noun} is {owner}'s.", (str(owner),)) if is_anothers else NOTHING


def _runs_words(owners: Mapping[str, int]) -> str:
    """7 runs of ben and mia."""
    return f"{plural(sum(owners.values()), 'run')} of {as_list(list(owners), MOST_NAMED)}"


def _people_words(people: Sequence[str]) -> str:
    return f"{plural(len(people), 'person', 'people')} ({as_list(people, MOST_NAMED)})"
