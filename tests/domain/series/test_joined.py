"""The same figure of different loggers is one; what a run has twice stays two."""

from __future__ import annotations

import pytest

from domain.series.goals import joined_names


@pytest.mark.parametrize(
    ("names", "joined"),
    [
        ({"a": ["loss"], "b": ["printed/loss"], "c": ["loss"]}, {"b": {"printed/loss": "loss"}}),
        (
            {"a": ["train/loss"], "b": ["printed/loss"], "c": ["loss", "lr"], "d": ["printed/lr"]},
            {"a": {"train/loss": "loss"}, "b": {"printed/loss": "loss"}, "d": {"printed/lr": "lr"}},
        ),
        (
            {
                "a": ["train/loss", "val/loss"],
                "b": ["train/loss"],
                "c": ["printed/train/loss"],
                "d": ["loss"],
            },
            {"c": {"printed/train/loss": "train/loss"}, "d": {"loss": "train/loss"}},
        ),
        # One run has both: which of them the other's is, nobody knows.
        ({"a": ["train/loss", "loss"], "b": ["loss"], "c": ["train/loss"]}, {}),
        # A run's printed value beside its logged one stays; another's is joined with the logged one.
        ({"a": ["loss", "printed/loss"], "b": ["printed/loss"]}, {"b": {"printed/loss": "loss"}}),
        ({"a": ["printed/loss"], "b": ["printed/loss"]}, {}),
        ({"a": ["val/loss"], "b": ["printed/val/loss"]}, {"b": {"printed/val/loss": "val/loss"}}),
        ({"a": ["val/loss"], "b": ["loss"]}, {}),
        ({}, {}),
    ],
)
def test_names_of_one_figure(names: dict[str, list[str]], joined: dict[str, dict[str, str]]) -> None:
    assert joined_names(names) == joined
