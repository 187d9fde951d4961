"""The dialog that resumes a run: as it is in a new attempt, or with changes as a new run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st
from pydantic import ValidationError

from dashboard.compare.resuming import plan_of_launch, plan_of_resume
from dashboard.errors import describe
from dashboard.planning import fixes
from dashboard.planning.fixes import LOWER_LR
from dashboard.planning.resolve import resolve
from dashboard.service import service
from dashboard.views.launch.plan import commands
from dashboard.views.layout import actions, links, visitor
from dashboard.views.run import resume_plan
from dashboard.views.run.dialogs import checkpoint_line as describe_checkpoint
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec, label_of
from domain.text.formats import as_text
from domain.views import CheckpointView, RunView

UNCLEAR = "It is unclear which of the run's files form one checkpoint. Choose one; the script gets only that."
TYPED_LATE = "A value was changed just before the click, so nothing was resumed: with it, this is a new run."
ANYWAY = "Resume it anyway"
WHY_STOPPED = "resumed with changes as a new run"


@visitor.dialog("Resume this run", icon=":material/resume:")
def resume(run: RunView, checkpoints: Sequence[CheckpointView]) -> None:
    """Ask for the checkpoint and for changes, and say whether that is an attempt of this run or a new one."""
    chosen = _checkpoint(run, checkpoints)
    is_open = chosen is None and any(checkpoint.complete for checkpoint in checkpoints)
    changes, refusals = _changes(run)
    for refusal in refusals:
        st.markdown(f":red[{as_text(refusal)}]")
    if is_open:
        return
    if run.state.is_terminal and not changes and not refusals:
        st.caption(
            f"Attempt {run.attempt + 1} of this run starts with the same settings. With another value above it "
            "becomes a new run."
        )
        plan = plan_of_resume(service.current().store, run.id, str(chosen.id)) if chosen else None
        yes = "Resume it" if resume_plan.show(plan) else ANYWAY
        actions.confirm(run.id, yes, "Not now", lambda: _new_attempt(run, chosen))
        return
    if not refusals:
        _as_new_run(run, chosen, checkpoints, changes)


def _checkpoint(run: RunView, checkpoints: Sequence[CheckpointView]) -> CheckpointView | None:
    """Ask for the checkpoint; the last one from before the loss broke is chosen at first, else the latest.

    None while none is chosen because nothing tells which files are one."""
    complete = [one for one in checkpoints if one.complete]
    complete.sort(key=lambda one: one.is_part or one.merged_from is not None)
    if not complete:
        st.markdown("The run has no complete checkpoint, so it starts from the beginning.")
        return None
    good = fixes.last_good(run, checkpoints)
    first = good or next((checkpoint for checkpoint in complete if checkpoint.latest), None)
    at = complete.index(first) if first else None
    if first is None:
        st.markdown(UNCLEAR)
    chosen = st.selectbox(
        "From checkpoint", complete, at, format_func=describe_checkpoint, key=f"resume_from_{run.id}",
        placeholder="Choose what the script can load",
    )  # fmt: skip
    since = run.loss_not_finite_since
    if good is not None:
        st.caption(f"The loss is not finite since step {since}; this is the last checkpoint before it.")
    elif since is not None:
        st.warning(f"All were saved after the loss broke at step {since}.", icon=":material/warning:")
    return chosen


def _changes(run: RunView) -> tuple[dict[str, float], list[str]]:
    """Ask for the values that the program takes; return those that differ from the run's, and what is wrong."""
    current = fixes.current(run.spec)
    texts = {}
    for name, column in zip(current, st.columns(len(current)) if current else (), strict=True):
        value = current[name]
        is_lower = name == "lr" and value is not None and run.loss_not_finite_since is not None
        first = "" if value is None else f"{value * LOWER_LR if is_lower else value:.6g}"
        texts[name] = column.text_input(
            label_of(name), first, key=_key(name, run), live=True, autocomplete="off",
            placeholder="as the script sets it",
        )  # fmt: skip
    return _differing(run, texts)


def _key(name: str, run: RunView) -> str:
    return f"resume_{name}_{run.id}"


def _differing(run: RunView, texts: Mapping[str, str | None]) -> tuple[dict[str, float], list[str]]:
    """Return the values that differ from the run's, and what is wrong with the others."""
    current, changes, wrong = fixes.current(run.spec), dict[str, float](), list[str]()
    for name, text in texts.items():
        try:
            value = _number(name, text or "")
        except ValidationError as error:
            wrong.append(f"{label_of(name)}: {describe(error.errors())[1]}")
            continue
        if value is not None and f"{value:.6g}" != f"{current[name] or 0:.6g}":
            changes[name] = value
    return changes, wrong


def _number(name: str, text: str) -> float | None:
    """Return a field's value, None for an empty one. Raises ValidationError."""
    value: float | None = getattr(RunSpec.model_validate({"target": "-", name: text.strip() or None}), name)
    return value


def _new_attempt(run: RunView, chosen: CheckpointView | None) -> None:
    """Open the next attempt, unless a value was typed just before the click. Raises InvalidRequest."""
    typed = {name: st.session_state[_key(name, run)] for name in fixes.current(run.spec)}
    if any(_differing(run, typed)):
        raise InvalidRequest("resume", TYPED_LATE)
    service.current().resume(run.id, str(chosen.id) if chosen else None)


def _as_new_run(
    run: RunView,
    chosen: CheckpointView | None,
    checkpoints: Sequence[CheckpointView],
    changes: dict[str, float],
) -> None:
    """Say that this is a new run, show its command, and launch it."""
    resume_from = fixes.reference(run, chosen, checkpoints) if chosen else None
    spec = fixes.changed(run.spec, changes, resume_from)
    current = service.current()
    planned = resolve(spec, current.cluster())
    st.caption("A new run with these settings; this run and its curves stay as they are.")
    stops = not run.state.is_terminal and st.checkbox(
        "Stop this run, so that its devices are free", True, key=f"resume_stop_{run.id}"
    )
    for warning in planned.warnings:
        st.caption(f":material/warning: {as_text(warning)}")
    commands(planned)
    yes = "Launch the new run" if resume_plan.show(plan_of_launch(current.store, planned.spec)) else ANYWAY
    actions.confirm(run.id, yes, "Not now", lambda: _launch(run, spec, stops), _open_launched)


def _launch(run: RunView, spec: RunSpec, stops: bool) -> None:
    current = service.current()
    st.session_state["resumed_as"] = current.launch(spec, run.id)
    if stops:
        current.stop(run.id, WHY_STOPPED)


def _open_launched() -> None:
    links.go("run", id=st.session_state.pop("resumed_as"))
