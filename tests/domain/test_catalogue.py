"""The rows of a model's fields: what the model says already is not said again."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from domain.catalogue import InputKind, Row, catalogue
from domain.spec import CATALOGUE, FIELDS, PASSED, RunSpec, label_of


class Boat(BaseModel):
    """A model with a field of each kind."""

    name: Annotated[str, Row("Name", unset="that of its port")]
    length_m: Annotated[float, Field(gt=0), Row("Length", unit=" m")] | None = None
    masts: Annotated[int, Row("Masts")] = 1
    rig: Annotated[Literal["sloop", "ketch"], Row("Rig", unset="unknown")] | None = None
    is_afloat: Annotated[bool, Row("Afloat")] = True
    crew: Annotated[list[str], Row("Crew")] = []
    orders: Annotated[list[str], Row("Orders", kind=InputKind.WORDS, name="standing_orders")] = []
    flags: Annotated[dict[str, str], Row("Flags")] = {}


ROWS = catalogue(Boat)


def test_a_rows_kind_type_and_default_are_those_of_its_field() -> None:
    assert {name: row.kind for name, row in ROWS.items()} == {
        "name": InputKind.TEXT, "length_m": InputKind.NUMBER, "masts": InputKind.NUMBER, "rig": InputKind.CHOICE,
        "is_afloat": InputKind.FLAG,
        "crew": InputKind.NAMES, "orders": InputKind.WORDS, "flags": InputKind.PAIRS,
    }  # fmt: skip
    assert (ROWS["length_m"].type, ROWS["length_m"].default, ROWS["length_m"].unit) == (float, None, " m")
    assert (ROWS["masts"].default, ROWS["name"].default) == (1, None)
    assert (ROWS["orders"].name, ROWS["crew"].name) == ("standing_orders", "crew")


def test_no_choice_is_offered_first_where_there_may_be_none() -> None:
    assert (ROWS["rig"].choices, ROWS["rig"].offered) == (("sloop", "ketch"), ("unknown", "sloop", "ketch"))
    assert ROWS["name"].offered == ()


def test_a_field_without_a_row_is_refused() -> None:
    class Nameless(BaseModel):
        size: int = 1

    with pytest.raises(ValueError, match="unpack"):
        catalogue(Nameless)


def test_every_field_of_a_spec_has_one_label() -> None:
    assert list(FIELDS) == list(RunSpec.model_fields)
    labels = [row.label for name, row in CATALOGUE.items() if name not in ("snapshot", "target")]
    assert all(labels) and len(labels) == len(set(labels))
    assert (label_of("probe"), label_of("sbatch_options")) == ("Probe every rank", "Further options of sbatch")
    assert label_of("no field") == "no field"


def test_values_that_scripts_take_can_be_kept_as_variables_and_no_others() -> None:
    assert {"lr", "batch_size", "seed", "precision"} < set(PASSED)
    assert RunSpec(target="x", as_variables={"lr": "0.1"}).as_variables == {"lr": "0.1"}
    with pytest.raises(ValueError, match="strategy is not passed to scripts"):
        RunSpec(target="x", as_variables={"strategy": "ddp"})
    assert RunSpec.model_json_schema()["properties"]["as_variables"]["propertyNames"] == {"enum": [*PASSED]}
