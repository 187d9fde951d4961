"""Convert the form's code fields to a part of a spec, and back."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import PurePosixPath
from typing import Any

from dashboard.snapshots.git import is_git_address
from domain.spec import RunSpec

RECIPE, SCRIPT, GIT, UPLOAD = "Recipe", "Script", "Git", "Upload"
SOURCES = (RECIPE, SCRIPT, GIT, UPLOAD)
AS_IT_WAS, AS_IT_IS = "as it was", "as it is now"
TARGET_FIELDS = {RECIPE: "recipe", SCRIPT: "script", GIT: "git_url", UPLOAD: "upload"}
MISSING = {
    RECIPE: "choose a recipe.",
    SCRIPT: "name a script or a folder.",
    GIT: "name a repository, such as https://github.com/karpathy/nanoGPT.",
    UPLOAD: "choose a script or an archive.",
}
EMPTY_CODE: dict[str, Any] = {
    "source": RECIPE,
    "recipe": None,
    "code_as": AS_IT_WAS,
    **dict.fromkeys("script git_url ref upload entry module snapshot snapshot_of".split(), ""),
}
"""`snapshot_of` names the snapshot's source; the snapshot is ignored once another target is named."""


def spec_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec's fields of the chosen code; without `target` where none is named."""
    source = values.get("source") or RECIPE
    target = stripped(values, TARGET_FIELDS[source])
    fields = {"target": target}
    if source != RECIPE:
        fields |= {"entry": stripped(values, "entry"), "module": stripped(values, "module")}
    if source == GIT:
        fields["ref"] = stripped(values, "ref")
    if has_snapshot(values) and (source == UPLOAD or values.get("code_as") != AS_IT_IS):
        fields["snapshot"] = stripped(values, "snapshot")
        if source == SCRIPT and not (fields["entry"] or fields["module"]):
            fields["entry"] = PurePosixPath(target).name
    return {name: text for name, text in fields.items() if text}


def has_snapshot(values: Mapping[str, Any]) -> bool:
    """Whether there is a snapshot of the named code and the run would use it."""
    source = values.get("snapshot_of")
    return bool(values.get("snapshot")) and source == named(values) and not stripped(values, "workdir")


def named(values: Mapping[str, Any]) -> str:
    """Return the source, target and ref as one text."""
    source = values.get("source") or RECIPE
    ref = stripped(values, "ref") if source == GIT else ""
    return " ".join((source, stripped(values, TARGET_FIELDS[source]), ref)).strip()


def code_values(spec: RunSpec, recipes: Container[str]) -> dict[str, Any]:
    """Return the form's values for a spec's code."""
    source = SCRIPT
    if spec.target in recipes:
        source = RECIPE
    elif is_git_address(spec.target):
        source = GIT
    elif spec.snapshot and not spec.target.startswith("/"):
        source = UPLOAD
    entry = "" if spec.entry == PurePosixPath(spec.target).name and source == SCRIPT else spec.entry
    values = EMPTY_CODE | {
        "source": source,
        TARGET_FIELDS[source]: spec.target,
        "ref": spec.ref or "",
        "entry": entry or "",
        "module": spec.module or "",
        "snapshot": spec.snapshot or "",
    }
    return values | {"snapshot_of": named(values)}


def stripped(values: Mapping[str, Any], name: str) -> str:
    """The text of a field, without blanks at its ends; empty where it has none."""
    return str(values.get(name) or "").strip()
