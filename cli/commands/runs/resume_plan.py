"""Print a resume before it begins: what differs from when its checkpoint was written, what it holds and lacks."""

from __future__ import annotations

from typing import Any

from cli.terminal import print_facts, print_list, say
from dashboard.compare.spec_words import in_words
from domain.lists.run_lists import KIND_WORDS, holds_words
from domain.text.columns import Column, Columns


def print_plan(plan: dict[str, Any]) -> None:
    """Print the document of `GET /api/runs/{run_id}/resume`."""
    if plan["checkpoint"] is None:
        say(plan["why"] or "The run has no complete checkpoint: it would start from the beginning.")
        return
    step = "" if plan["step"] is None else f" of step {plan['step']}"
    holds = plan["holds"] if plan["is_read"] else None
    print_facts([("from", f"{plan['checkpoint']}{step}, attempt {plan['attempt']}"), ("holds", holds_words(holds))])
    for kind in plan["lacks"]:
        say(f"lacks {KIND_WORDS[kind]}: {plan['consequences'][kind]}")
    print_list(DIFFERENCES, plan["differs"], empty="Nothing differs from when it was written.")
    if not plan["possible"]:
        say(f"Not possible: {plan['why']}")


DIFFERENCES: Columns[Any] = [
    Column("setting", lambda change: change.label),
    Column("then", lambda change: in_words(change.then, change.now)[0]),
    Column("now", lambda change: in_words(change.then, change.now)[1]),
    Column("means", lambda change: change.means),
]
