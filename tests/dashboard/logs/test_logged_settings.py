"""Settings of loggers, from the lines that the probe wrote."""

from __future__ import annotations

from dashboard.logs.logged_settings import Settings, flat, merge


def test_later_values_replace_earlier_ones_and_broken_lines_are_skipped():
    merged: Settings = {}
    lines = [
        b'{"logger": "wandb", "settings": {"config": {"lr": 1}, "tags": ["a"]}}',
        b'{"logger": "wandb", "settings": {"config": {"lr": 2}}}',
        b'{"logger": "mlflow", "settings": {"config": {}}}',
        b'{"logger": "wandb", "sett',
        b"[1]",
    ]
    merge(merged, lines)
    assert merged == {"wandb": {"config": {"lr": 2}, "tags": ["a"]}, "mlflow": {"config": {}}}


def test_nested_hyperparameters_have_one_name_each():
    assert flat({"lr": 0.1, "model": {"width": 4, "layers": [1, 2]}}) == [
        ("lr", "0.1"),
        ("model.width", "4"),
        ("model.layers", "[1, 2]"),
    ]
    assert flat(None) == [] and flat({}) == []
