"""The inputs of the launch form, each with its help and its error directly below."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import streamlit as st

from dashboard.snapshots.git_address import is_git_address
from dashboard.views.layout import style
from domain.catalogue import InputKind, Row
from domain.spec import CATALOGUE, RunSpec
from domain.text.formats import as_text


class Fields:
    """The inputs of the form, each with its error directly below."""

    def __init__(self, labels: Mapping[str, str], placeholders: Mapping[str, str], refusals: Mapping[str, str]) -> None:
        self._labels = labels
        self._placeholders = placeholders
        """Those that differ from the catalogue's."""
        self._refusals = refusals

    def row(self, widths: Sequence[int], *names: str) -> None:
        """Show fields side by side."""
        for column, name in zip(st.columns(widths), names, strict=False):
            with column:
                self.show(name)

    def places(self, names: Iterable[str], hidden: Collection[str] = ()) -> None:
        """Show fields in a grid (pages.css), choices twice as wide as texts.

        Each has a place of its own, also one that is hidden: else, while a rerun draws, a field that moves would
        stand at its old place and at its new one."""
        for name in names:
            with st.container(key=f"{'wide' if FORM[name].kind is InputKind.CHOICE else 'narrow'}_{name}"):
                if name not in hidden:
                    self.show(name)

    def show(self, *names: str) -> None:
        """Show fields below each other."""
        for name in names:
            with style.explained(name, None if name in self._refusals else explanation(name)):
                self._input(name)
            self.refusal(name)

    def refusal(self, name: str) -> None:
        """Show the error of a field, if there is one."""
        if name in self._refusals:
            with st.container(key=f"refusal_{name}"):
                sentence = self._refusals[name].removeprefix(f"{name}: ")
                st.markdown(f":red[{as_text(sentence[:1].upper() + sentence[1:])}]")

    def _input(self, name: str) -> None:
        """Show the input of a field's kind; a text is read a quarter of a second after the last key."""
        row, label, key = FORM[name], self._labels[name], PREFIX + name
        placeholder = self._placeholders.get(name, row.placeholder)
        match row.kind:
            case InputKind.CHOICE:
                st.segmented_control(label, row.offered, key=key, required=True, persist_state="session")
            case InputKind.PAIRS:
                st.text_area(label, key=key, placeholder=placeholder, height=68, persist_state="session")
            case InputKind.FLAG:
                st.toggle(label, key=key, persist_state="session")
            case _:
                st.text_input(
                    label, key=key, placeholder=placeholder, live=True, autocomplete="off", persist_state="session"
                )


PREFIX = "launch_"
RECIPE, SCRIPT, GIT, UPLOAD = "Recipe", "Script", "Git", "Upload"
AS_IT_WAS, AS_IT_IS = "as it was", "as it is now"
FORM: dict[str, Row] = CATALOGUE | {
    "source": Row("Train", kind=InputKind.CHOICE, choices=(RECIPE, SCRIPT, GIT, UPLOAD)),
    "script": Row(
        "Script or folder", example="/home/me/train.py",
        help="Absolute path on the dashboard's machine. For code elsewhere, use `rankzero launch` there.",
    ),
    "git_url": Row(
        "Repository", example="https://github.com/karpathy/nanoGPT",
        help="https:// or ssh://, or git@host:path; fetched with the dashboard's own keys and credentials.",
    ),
    "code_as": Row(
        "Code", kind=InputKind.CHOICE, choices=(AS_IT_WAS, AS_IT_IS),
        help="The snapshot of the earlier run, or the current files.",
    ),
}  # fmt: skip
"""The fields of the spec, and those by which the form asks for its code."""
HINTS = {
    InputKind.PAIRS: "One {metavar} a line.", InputKind.NAMES: "Separated by commas.",
    InputKind.WORDS: "Quoted as in a shell.",
}  # fmt: skip


def form_labels(has_gpus: bool) -> dict[str, str]:
    """Return the labels of the form's fields."""
    return {name: row.label if has_gpus else row.label_without_gpus or row.label for name, row in FORM.items()}


def explanation(name: str) -> str:
    """Return what is said beside an input: the field's help, and how it is typed."""
    row = FORM[name]
    hint = HINTS[row.kind].format(metavar=row.metavar) if row.kind in HINTS else ""
    return " ".join(filter(None, (row.help, hint, row.several)))


# Convert the form's code fields to a part of a spec, and back.

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
