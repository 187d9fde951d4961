"""What a change takes from other people than who makes it, with names and counts, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domain.text.formats import agree, as_list, plural

MOST_NAMED = 5


@dataclass(frozen=True)
class Consequence:
    """What a change takes from others; nothing where `sentence` is empty: then nobody needs to be asked."""

    sentence: str = ""
    people: tuple[str, ...] = ()
    """Who loses something, by name."""
    runs: int = 0
    """Their runs, or the runs of which they lose sight."""


NOTHING = Consequence()


def of_privacy(project: str, people: Sequence[str], runs: int) -> Consequence:
    """What it takes that a project is made private: from people who see it by their role everywhere."""
    if not people:
        return NOTHING
    lost = plural(runs, "run") if runs else "the project"
    own = " Whoever launched some of these still sees them." if runs else ""
    sentence = f"{project}: {_of_people(people)} {agree(len(people), 'loses', 'lose')} sight of {lost}.{own}"
    return Consequence(sentence, tuple(people), runs)


def of_role(person: str, before: str, after: str, where: str, unseen: Sequence[str], runs: int) -> Consequence:
    """What it takes that a person's role becomes a lower one; `unseen`: the projects of which they lose sight."""
    lost = f" They lose sight of {plural(runs, 'run')} in {as_list(unseen, MOST_NAMED)}." if unseen else ""
    return Consequence(f"{person} is {before} of {where} now, and would be {after}.{lost}", (person,), runs)


def of_removal(person: str, live: int, others: Mapping[str, int]) -> Consequence:
    """What it takes that a person is removed; `others`: further things that end with them, by their noun."""
    ending = [plural(amount, noun) for noun, amount in others.items() if amount]
    ends = f" {as_list(ending)} {agree(sum(others.values()), 'ends', 'end')} with the account." if ending else ""
    return Consequence(f"{person} has {plural(live, 'live run')}.{ends}", (person,), live)


def of_drain(node: str, owners: Mapping[str, int], hidden: int = 0) -> Consequence:
    """What it takes that a node starts nothing new: where others train on it; `hidden`: runs that may not be named."""
    runs = sum(owners.values()) + hidden
    if not runs:
        return NOTHING
    whose = [in_words(owners)] if owners else []
    private = [plural(hidden, "private run")] if hidden else []
    sentence = f"{node} trains {as_list(whose + private)}; {agree(runs, 'it goes', 'they go')} on, and nothing new"
    return Consequence(f"{sentence} starts there.", tuple(owners), runs)


def of_runs(owners: Mapping[str, int]) -> Consequence:
    """Whose runs a person acts on: `owners` counts those of others."""
    return Consequence(f"{_capital(in_words(owners))}.", tuple(owners), sum(owners.values())) if owners else NOTHING


def of_thing(noun: str, owner: str | None, by: str | None) -> Consequence:
    """Whose thing it is that a person ends: a link, an alert, a sweep."""
    is_anothers = owner is not None and by is not None and owner != by
    return Consequence(f"This {noun} is {owner}'s.", (str(owner),)) if is_anothers else NOTHING


def in_words(owners: Mapping[str, int]) -> str:
    """Return `7 runs of ben and mia`."""
    return f"{plural(sum(owners.values()), 'run')} of {as_list(list(owners), MOST_NAMED)}"


def _of_people(people: Sequence[str]) -> str:
    return f"{plural(len(people), 'person', 'people')} ({as_list(people, MOST_NAMED)})"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
