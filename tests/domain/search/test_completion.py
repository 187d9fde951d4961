"""Fields, values and series are proposed for the word at the cursor."""

from __future__ import annotations

import pytest

from domain.search.completion import complete
from domain.search.parser import parse

STORED = {
    "tag": ["paper", "two words"],
    "project": ["vision"],
    "series": ["train/loss", "val/loss", "epoch", "lr"],
    "target": ["language_model"],
    "imported": ["tensorboard", "wandb"],
}


def stored(field: str, part: str) -> list[str]:
    return [word for word in STORED.get(field, []) if part.lower() in word]


def texts(text: str, cursor: int | None = None) -> list[str]:
    return [p.text for p in complete(text, len(text) if cursor is None else cursor, stored).proposals]


@pytest.mark.parametrize(
    ("text", "proposals"),
    [
        ("sta", ["state:", "started"]), ("started", ["started:<", "started:>"]), ("LR", ["lr<", "lr>", "lr="]),
        ("state:ru", ["state:running"]), ("-archived:", ["archived:yes", "archived:no"]),
        ("precision:b", ["precision:bf16"]), ("tag:p", ["tag:paper"]), ("tag=two", ['tag="two words"']),
        ('tag:"two w', ['tag:"two words"']), ("recipe:lang", ["recipe:language_model"]), ("val/", ["val/loss<"]),
        ("created:<", ["created:<1d", "created:<7d", "created:<30d"]), ("lr>", []),
        ("imported:", ["imported:yes", "imported:no", "imported:tensorboard", "imported:wandb"]), ("nothing:", []),
    ],
)  # fmt: skip
def test_the_word_at_the_cursor_is_completed(text: str, proposals: list[str]) -> None:
    assert texts(text)[: max(1, len(proposals))] == proposals


def test_fields_of_runs_are_proposed_before_those_of_their_specs() -> None:
    assert texts("")[:5] == ["state:", "project:", "by:", "tag:", "node:"]
    assert texts("st")[:4] == ["state:", "step", "started", "strategy:"]


def test_only_the_word_before_the_cursor_is_replaced() -> None:
    completion = complete("lr>1 -sta tag:x", 9, stored)
    assert (completion.start, completion.end) == (6, 9)
    assert "state:" in [proposal.text for proposal in completion.proposals]
    assert texts("lr>1 ")[:2] == texts("")[:2]


@pytest.mark.parametrize("text", ["", "lo", "ep", "tag:", "val", "state:", "lr", "started:", 'x "a b" node:'])
def test_a_proposal_with_a_value_can_be_read(text: str) -> None:
    completion = complete(text, len(text), stored)
    for proposal in completion.proposals:
        whole = text[: completion.start] + proposal.text
        value = {":<": "2d", ":>": "2d"}.get(whole[-2:], "1" if whole[-1] in "<>=" else "")
        if not whole.endswith(":"):
            parse(whole + value, now=0.0)
