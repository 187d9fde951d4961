"""The launch form's choice of code: a recipe, a path, a repository or an upload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import streamlit as st

from dashboard.components.browser import upload_code
from dashboard.paths import exists, is_folder, is_visible_folder, may_read
from dashboard.planning import environments, freezing, interpreters
from dashboard.service import service
from dashboard.snapshots.code_packing import CodeRequest, survey
from dashboard.snapshots.git_address import CodeRefused, is_git_address
from dashboard.snapshots.origin import Origin
from dashboard.views.launch.fields import (
    AS_IT_WAS,
    EMPTY_CODE,
    GIT,
    PREFIX,
    RECIPE,
    SCRIPT,
    UPLOAD,
    Fields,
    has_snapshot,
    named,
)
from dashboard.views.layout import permissions, style
from db.runs.snapshots import Code, recent_code
from domain.choices import RECIPES
from domain.spec import RunSpec
from domain.text.formats import ago, as_text, plural, size


def code(form: Fields, recipes: Iterable[str]) -> None:
    """Show source and target in one row; below them the entry and a summary of the snapshot."""
    source, target = st.columns([3, 5])
    with source:
        form.show("source")
    values = {name: st.session_state[PREFIX + name] for name in (*EMPTY_CODE, "workdir")}
    with target:
        _target(form, values, recipes)
        form.refusal("target")
        if values["source"] == SCRIPT:
            recent_menu()
    start, summary = st.container(), st.container()
    if values["source"] != RECIPE:
        with start:
            if _asks_for_start(values):
                form.row((1, 1), "entry", "module")
        with summary:
            _snapshot_summary(form, values)


UPLOADED = "launch_uploaded"
LINE_PX = 21
"""Height of a line whose place is kept while there is nothing to say: what is below does not move."""
LOOK_AGAIN_S = 5


def _target(form: Fields, values: Mapping[str, Any], recipes: Iterable[str]) -> None:
    if values["source"] == RECIPE:
        with style.explained("recipe", "A training script that comes with Rankzero, ready to run."):
            st.selectbox("Recipe", list(recipes), key=PREFIX + "recipe", persist_state="session")
    elif values["source"] == SCRIPT:
        form.show("script")
    elif values["source"] == GIT:
        form.row((2, 1), "git_url", "ref")
    else:
        upload_code(str(values["upload"]), service.current().snapshots.limit_bytes, _uploaded, key=UPLOADED)


def _asks_for_start(values: Mapping[str, Any]) -> bool:
    """Whether an entry file or module has to be named; a single script needs none."""
    if values["entry"] or values["module"] or values["source"] == GIT:
        return True
    if values["source"] == UPLOAD:
        return bool(values["upload"])
    return is_visible_folder(values["script"].strip() or "/nowhere")


def _uploaded() -> None:
    """Use the file that the browser has uploaded as the code."""
    upload = getattr(st.session_state[UPLOADED], "uploaded", None)
    if not isinstance(upload, dict):
        return
    scripts = upload.get("scripts") or [""]
    chosen = {"upload": str(upload.get("name", "")), "source": UPLOAD}
    values = chosen | {"snapshot": str(upload.get("snapshot", "")), "entry": str(scripts[0]), "module": ""}
    for name, value in (values | {"snapshot_of": named(chosen)}).items():
        st.session_state[PREFIX + name] = value


def _snapshot_summary(form: Fields, values: Mapping[str, Any]) -> None:
    """Show which code will be stored with the run."""
    if has_snapshot(values):
        is_upload = values["source"] == UPLOAD
        if not is_upload:
            form.show("code_as")
        if is_upload or st.session_state[PREFIX + "code_as"] == AS_IT_WAS:
            _caption(_sentence_on(str(values["snapshot"])))
            form.refusal("snapshot")
            return
    if values["workdir"]:
        _caption("Runs in place: the code is not stored with the run.")
    elif values["source"] == GIT:
        _caption("The dashboard clones it at launch and stores the commit with the run.")
    elif values["source"] == SCRIPT and values["script"].strip().startswith("/"):
        links = str(st.session_state.get(PREFIX + "links") or "")
        code = (values["script"].strip(), values["entry"].strip(), values["module"].strip(), links)
        sentences = _survey(*code, service.current().snapshots.limit_bytes, _only_public())
        for sentence in sentences:
            _caption(sentence)
        if not sentences:
            st.space(LINE_PX)
    else:
        st.space(LINE_PX)


def _sentence_on(sha256: str) -> str:
    current = service.current()
    snapshot = current.snapshots.find(sha256)
    if snapshot is None:
        return "The snapshot of this code was deleted."
    origin = Origin.model_validate(snapshot.origin) if snapshot.origin else None
    origin_text = f"From {origin.location}" if origin else "A snapshot"
    version = f", {origin.version}" if origin and origin.version else ""
    stored = ago(snapshot.created_at, current.clock())
    return f"{origin_text}{version}: {plural(snapshot.files, 'file')}, first stored {stored}."


@st.cache_data(ttl=LOOK_AGAIN_S, show_spinner=False, max_entries=50)
def _survey(target: str, entry: str, module: str, links: str, limit_bytes: int, only_public: bool) -> list[str]:
    """Return sentences on what would be stored of a path; other errors are already shown at their field."""
    names = frozenset(line.partition("=")[0].strip() for line in links.splitlines())
    try:
        request = CodeRequest(target, entry or None, module or None, links=names, only_public=only_public)
        choice = survey(request, limit_bytes)
    except CodeRefused as error:
        is_too_large = "too large" in str(error)
        return [str(error).removeprefix(f"{error.field}: ")] if is_too_large else []
    except OSError:
        return []
    assert choice is not None
    version = f" ({choice.origin.version})" if choice.origin.version else ""
    summary = f"{plural(choice.selection.files, 'file')}, {size(choice.selection.size_bytes)}"
    notes = [note.replace("--link ", "the link ").replace("--workdir", "a workdir") for note in choice.origin.notes]
    return [f"Stored with the run: {summary} of {choice.selection.folder}{version}.", *notes]


def refused_environment(spec: RunSpec | None) -> dict[str, str]:
    """Return why the environment that is asked for cannot be built, at its field."""
    try:
        if spec is not None:
            environment(spec)
    except CodeRefused as error:
        return {error.field: str(error)}
    return {}


def environment(spec: RunSpec) -> str:
    """Return the sentence on the environment that each node builds for a run; empty without any. Raises CodeRefused."""
    if (spec.python and spec.environment == "auto") or spec.workdir or spec.target in RECIPES:
        return ""
    if spec.snapshot:
        path = service.current().snapshots.path_to_read(spec.snapshot)
        if path is None:
            return ""
        return _environment_of(str(path), "", "", spec.entry or "", spec.environment, _only_public())
    if is_git_address(spec.target):
        return "If the repository has a lock file with torch, each node builds its environment."
    entry, module = spec.entry or "", spec.module or ""
    return _environment_of("", spec.target, module, entry, spec.environment, _only_public())


@st.cache_data(ttl=LOOK_AGAIN_S, show_spinner=False, max_entries=50)
def _environment_of(archive: str, target: str, module: str, entry: str, choice: str, only_public: bool) -> str:
    if archive:
        return environments.of_archive(Path(archive), entry or None, choice)
    try:
        named = CodeRequest(target, entry if is_folder(target) else None, module or None, only_public=only_public)
        code_choice = survey(named, service.current().snapshots.limit_bytes)
    except (CodeRefused, OSError):
        return ""
    return "" if code_choice is None else environments.of_selection(code_choice.selection, code_choice.entry, choice)


def _only_public() -> bool:
    """Whether of a path only what everybody on the dashboard's machine may read is shown; kept answers differ by it."""
    return not permissions.visitor().reads_all_files


def freeze_button(spec: RunSpec, environment: str) -> None:
    """Offer to make a lock of the Python that the script trains with here, if the code has none.

    Only to the owner: that Python is started, and the lock written, by the dashboard's own account."""
    if not permissions.visitor().reads_all_files:
        return
    python, folder = frozen_python(spec), Path(spec.target)
    target = (folder if is_folder(spec.target) else folder.parent) / freezing.FILE_NAME
    if python is None or environment.startswith(environments.BUILT) or exists(str(target)):
        return
    if st.button(
        "Freeze its packages", type="tertiary", icon=":material/ac_unit:", key="launch_freeze",
        help=f"Write {target} with all packages of {python}, so that every node can build the same environment.",
    ):  # fmt: skip
        try:
            frozen = freezing.freeze(python, target)
        except freezing.CannotFreeze as error:
            st.error(as_text(str(error)))
            return
        _environment_of.clear()
        _survey.clear()
        st.toast(as_text(f"{frozen.path}: {plural(frozen.packages, 'package')}"))
        st.rerun()


def frozen_python(spec: RunSpec) -> Path | None:
    """Return the Python on this machine that a path's run would use; None where there is none of its own."""
    if spec.target in RECIPES or spec.snapshot or spec.workdir or not spec.target.startswith("/"):
        return None
    if spec.python:
        return Path(spec.python) if spec.python.startswith("/") and exists(spec.python) else None
    return interpreters.project_python(spec.target, spec.entry)


def _caption(sentence: str) -> None:
    st.caption(as_text(sentence))


# The scripts of the newest runs: the last one is in the form already, the others are one click away.

MOST_RECENT = 8
CHOSEN_RECENT = "launch_recent"


def last_code() -> dict[str, Any]:
    """Return the form's values for the last script; the form begins with it unless the last run was a recipe."""
    codes = recent_code(service.current().store)
    scripts = _recent_scripts(codes)
    if not scripts:
        return {}
    return _recent_values(scripts[0]) | {"source": SCRIPT if codes[0] == scripts[0] else RECIPE}


def recent_menu() -> None:
    """Show the menu of recent scripts, if there are any."""
    scripts = _recent_scripts(recent_code(service.current().store))[:MOST_RECENT]
    if scripts:
        st.menu_button(
            "Recent scripts", scripts, type="tertiary", icon=":material/history:", key=CHOSEN_RECENT,
            format_func=_recent_label, on_click=_choose,
        )  # fmt: skip


def _recent_scripts(codes: Iterable[Code]) -> list[Code]:
    """Return those that are here; of those that fill the form alike (one watched, one launched) the first."""
    scripts = dict[str, Code]()
    for code in codes:
        if _is_here(code):
            scripts.setdefault(_recent_label(code), code)
    return list(scripts.values())


def _choose() -> None:
    for name, value in _recent_values(st.session_state[CHOSEN_RECENT]).items():
        st.session_state[PREFIX + name] = value


def _is_here(code: Code) -> bool:
    return code.target.startswith("/") and may_read(code.target)


def _recent_values(code: Code) -> dict[str, str]:
    """Return the form's fields; a single script needs no entry."""
    entry = "" if code.entry == PurePosixPath(code.target).name else code.entry
    return {"script": code.target, "entry": entry or "", "module": code.module or ""}


def _recent_label(code: Code) -> str:
    start = _recent_values(code)["entry"] or (f"-m {code.module}" if code.module else "")
    return as_text(f"{code.target} {start}".strip())
