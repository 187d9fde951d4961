"""Add a field to the text of `domain/spec.py`, and print as JSON what each place then has of it: a program of its own.

Started by `tests/test_new_field.py`; nothing but that one text is changed, and only in this process."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROW = """
    clip_norm: Annotated[float, Field(gt=0), Row(
        "Gradient norm", section=Section.TRAINING, unset="not clipped", help="Clip gradients to this norm.",
        script_options="max_grad_norm clip_grad",
    )] | None = None
"""
BEFORE = "    elastic: Annotated"


def add_row() -> None:
    """Import `domain.spec` with one more row."""
    found = importlib.util.find_spec("domain.spec")
    assert found is not None and found.origin is not None
    source = Path(found.origin).read_text(encoding="utf-8")
    assert source.count(BEFORE) == 1
    module = sys.modules["domain.spec"] = types.ModuleType("domain.spec")
    module.__file__ = found.origin
    exec(compile(source.replace(BEFORE, ROW + BEFORE), found.origin, "exec"), module.__dict__)


def command_line() -> dict[str, Any]:
    """Return the option, and the value that it gives."""
    import typer.main

    from cli.commands.runs.launch import as_given
    from cli.main import app
    from domain.spec import FIELDS

    launch = typer.main.get_group(app).commands["launch"]
    option: Any = next(one for one in launch.params if one.name == "clip_norm")
    return {
        "option": [*option.opts, option.help, option.type_descriptor.annotation.__name__],
        "given": as_given(FIELDS["clip_norm"], 0.5),
    }


def form() -> dict[str, Any]:
    """Return the input, and what is read from it and written into it."""
    from streamlit.testing.v1 import AppTest

    from dashboard.views.launch.form import EMPTY, read, values_of
    from dashboard.views.launch.swept_fields import NUMBERS
    from domain.spec import RunSpec

    drawn = AppTest.from_function(training_fields).run()
    filled = EMPTY | {"source": "Script", "script": "/t.py", "clip_norm": "0.5"}
    return {
        "input": [[one.label, one.placeholder] for one in drawn.text_input if one.key == "launch_clip_norm"],
        "help": [one.value for one in drawn.caption if "gradients" in one.value],
        "read": getattr(read(filled).spec, "clip_norm", None),
        "written": values_of(RunSpec.model_validate({"target": "/t.py", "clip_norm": 0.5}), ())["clip_norm"],
        "refused": read(filled | {"clip_norm": "0"}).refusals,
        "is_swept": "clip_norm" in NUMBERS,
    }


def training_fields() -> None:
    """Draw the section of the form."""
    from dashboard.views.launch.fields import Fields, form_labels
    from domain.catalogue import Section
    from domain.spec import names_in

    Fields(form_labels(True), {}, {}).places(names_in(Section.TRAINING))


def pages() -> dict[str, Any]:
    """Return how it is searched, compared and shown."""
    from streamlit.testing.v1 import AppTest

    from dashboard.compare.spec_changes import spec_differences
    from domain.search.parser import parse
    from domain.spec import RunSpec

    specs = [RunSpec.model_validate({"target": "/t.py", "clip_norm": norm}) for norm in (None, 0.5)]
    [change] = [one for one in spec_differences(specs) if one.field == "clip_norm"]
    tables = [one.value for one in AppTest.from_function(run_page).run().markdown]
    return {
        "search": str(parse("clip_norm>0.4", 0.0).alternatives[0][0].kind),
        "diff": [change.label, *change.values],
        "page": [line for table in tables for line in table.splitlines() if "norm" in line],
    }


def run_page() -> None:
    """Draw the tab of a run's settings."""
    from dashboard.views.run.tabs import specification
    from domain.spec import RunSpec

    specification(RunSpec.model_validate({"target": "/t.py", "clip_norm": 0.5}))


def scripts() -> dict[str, Any]:
    """Return how its value reaches a script."""
    from dashboard.script_reader.proposals import LABELS, NAMES
    from domain.launch.plan import TaskContext, plan
    from domain.spec import RunSpec

    spec = RunSpec.model_validate({"target": "/t.py", "clip_norm": 0.5, "args": ["--clip={clip_norm}"]})
    planned = plan(spec, TaskContext())
    return {
        "options": [NAMES["clip_norm"], LABELS["clip_norm"]],
        "argument": planned.argv[-1],
        "variable": planned.env["RANKZERO_CLIP_NORM"],
    }


def _seen() -> Iterator[tuple[str, dict[str, Any]]]:
    for place in (command_line, form, pages, scripts):
        yield place.__name__, place()


if __name__ == "__main__":
    add_row()
    print(json.dumps(dict(_seen())))
