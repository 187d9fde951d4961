"""Several values in the form's fields: read as `--param` reads them, or refused at their field."""

from __future__ import annotations

import pytest

from dashboard.views.launch.swept_fields import LINES, take_out
from domain.sweeps import parameters_of


@pytest.mark.parametrize("text", ["1e-4, 3e-4", "1e-4..1e-2", "1e-4..1e-2:log", "1e-4..1e-2 log", "1e-4 .. 1e-2 :log"])
def test_a_text_means_in_a_field_in_braces_and_in_a_line_what_it_means_on_the_command_line(text: str) -> None:
    expected = parameters_of([f"lr={text}"])
    for swept in (
        take_out({"lr": text}),
        take_out({"args": f"--lr {{{text}}}"}),
        take_out({"args": f"--lr={{{text}}}"}),
        take_out({}, f"lr={text}\n"),
    ):
        assert (swept.parameters, swept.refusals) == (expected, {})


def test_single_values_stay_and_swept_ones_leave_their_field() -> None:
    swept = take_out({"lr": "1e-4, 1e-3", "seed": "1", "nodes": "2:4", "name": "a, b..c", "args": "--x 1,2"})
    assert swept.values == {"lr": "", "seed": "1", "nodes": "2:4", "name": "a, b..c", "args": "--x 1,2"}
    assert list(swept.parameters) == ["lr"]


def test_braces_in_arguments_become_placeholders() -> None:
    swept = take_out({"args": "a 'b c' --width {64, 128} model.depth={2..8} ++x={a,b}"})
    assert swept.values["args"] == "a 'b c' --width '{width}' 'model.depth={model.depth}' '++x={x}'"
    assert {name: str(one) for name, one in swept.parameters.items()} == {
        "width": "64,128", "model.depth": "2..8", "x": "a,b"
    }  # fmt: skip


@pytest.mark.parametrize("args", ["'+m={a:1,b:2}'", """--json '{"a": 1, "b": 2}'""", "--lr {lr}", "--x {1", "'"])
def test_other_braces_are_the_scripts_own(args: str) -> None:
    swept = take_out({"args": args})
    assert (swept.values["args"], swept.parameters, swept.refusals) == (args, {}, {})


@pytest.mark.parametrize(
    ("values", "lines", "field", "sentence"),
    [
        ({"lr": "0,001"}, "", "lr", "Learning rate must be greater than 0, got 0."),
        ({"epochs": "1e1..1e2"}, "", "epochs", "Epochs must be a whole number"),
        ({"lr": "0..1 log"}, "", "lr", "Learning rate must begin above 0 to be logarithmic."),
        ({"args": "{1,2}"}, "", "args", "{1,2} needs an option before it"),
        ({"lr": "1,2"}, "lr=1,3", LINES, "lr has several values in two places"),
        ({}, "precision", LINES, "Other parameters: must be NAME=VALUE,VALUE"),
        ({}, "precision=fp8,fp32", LINES, "Precision must be one of"),
    ],
)
def test_wrong_range_is_refused_at_its_field(values, lines, field, sentence) -> None:
    refusals = take_out(values, lines).refusals
    assert list(refusals) == [field] and refusals[field].startswith(sentence)
