"""The form's code fields: what they wish for, and that a specification written into them reads back."""

from __future__ import annotations

import pytest

from dashboard.views.launch.fields import (
    AS_IT_IS,
    AS_IT_WAS,
    EMPTY_CODE,
    GIT,
    SCRIPT,
    UPLOAD,
    code_values,
    spec_fields,
)
from domain.spec import RunSpec

SHA256 = "ab" * 32
RECIPES = ("language_model",)


@pytest.mark.parametrize(
    "spec",
    [
        {"target": "language_model"},
        {"target": "/x/train.py"},
        {"target": "/x/train.py", "entry": "train.py", "snapshot": SHA256},
        {"target": "/x/link.py", "entry": "train.py", "snapshot": SHA256},
        {"target": "/x", "entry": "a/train.py", "snapshot": SHA256},
        {"target": "/x", "module": "a.train", "snapshot": SHA256},
        {"target": "https://example.org/a", "ref": "v1", "entry": "train.py", "snapshot": SHA256},
        {"target": "git@example.org:a/b", "module": "a.train"},
        {"target": "project.zip", "entry": "train.py", "snapshot": SHA256},
        {"target": "train.py", "entry": "train.py", "snapshot": SHA256},
    ],
)
def test_a_specification_reads_back(spec):
    assert spec_fields(code_values(RunSpec(**spec), RECIPES)) == spec


def test_the_code_as_it_is_now_is_the_same_target_without_the_snapshot():
    values = code_values(RunSpec(target="/x/train.py", entry="train.py", snapshot=SHA256), RECIPES)
    assert values["code_as"] == AS_IT_WAS
    assert spec_fields(values | {"code_as": AS_IT_IS}) == {"target": "/x/train.py"}
    values = code_values(RunSpec(target="git@a:b", ref="v1", module="m", snapshot=SHA256), RECIPES)
    assert spec_fields(values | {"code_as": AS_IT_IS}) == {"target": "git@a:b", "ref": "v1", "module": "m"}


@pytest.mark.parametrize("change", [{"script": "/x/other.py"}, {"source": GIT, "git_url": "git@a:b"},
                                    {"source": UPLOAD, "upload": "x.py"}, {"workdir": "/x"}])  # fmt: skip
def test_a_snapshot_is_only_good_for_what_it_was_made_of(change):
    values = code_values(RunSpec(target="/x/train.py", entry="train.py", snapshot=SHA256), RECIPES)
    assert "snapshot" not in spec_fields(values | change)


@pytest.mark.parametrize("source", [SCRIPT, GIT, UPLOAD])
def test_form_without_a_target_has_no_code(source):
    assert spec_fields({**EMPTY_CODE, "source": source}) == {}


def test_a_ref_belongs_to_repositories_alone():
    values = {**EMPTY_CODE, "source": SCRIPT, "script": "/x/train.py", "ref": "v1"}
    assert spec_fields(values) == {"target": "/x/train.py"}
