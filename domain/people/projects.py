"""Projects that somebody names: the doubt about one that nothing else names, since it may be mistyped."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST_MEANT = 3


def doubt_about(project: str, others: Iterable[str], subject: str | None = "role") -> str:
    """Say of something in a project that nothing names that it may be meant for another one.

    `others`: the projects that the visitor may see; `subject`: what is for it now, None where it is taken away."""
    meant = meant_by(project, others)
    advice = f" (did you mean {' or '.join(meant)}?)" if meant else ""
    effect = f": the {subject} applies from its first run on." if subject else "."
    return f"No run is in project {project!r}{advice}{effect}"


def meant_by(project: str, others: Iterable[str]) -> list[str]:
    """The projects whose names are close to this one, the closest first."""
    by_lower = {name.lower(): name for name in others}
    return [by_lower[name] for name in get_close_matches(project.lower(), by_lower, MOST_MEANT)]
