"""Checkpoints kept on purpose, on the Checkpoints tab: the rule, pins, deletions, the bin, and how full the disk is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import actions, permissions, visitor
from dashboard.views.layout.tables import table
from dashboard.views.run.dialogs import checkpoint_line
from dashboard.views.run.tabs import browser_zone
from domain.checkpoint_use.retention import EXAMPLE, LONGEST_RULE
from domain.checkpoint_use.retention_views import PlanTotals, totals_of
from domain.lists.run_lists import deleter
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest
from domain.text.formats import ago, as_text, day, size
from domain.views import CheckpointView, RunView

MOST_IN_BIN = 20


def show(run: RunView, saved: Sequence[CheckpointView]) -> None:
    """Show below the list what is kept and why, and the ways to change it."""
    complete = [checkpoint for checkpoint in saved if checkpoint.complete]
    if complete:
        _single(run, complete)
        _rule(run)
    _bin(run)
    _disk()


def _single(run: RunView, complete: Sequence[CheckpointView]) -> None:
    """Offer to pin or delete one of them."""
    with st.expander("Pin or delete", key="keep_one"):
        chosen = st.selectbox("Checkpoint", complete, format_func=checkpoint_line, key=f"kept_one_{run.id}")
        if chosen is None:
            return
        retention, is_pinned = service.current().retention, chosen.pinned_at is not None
        with st.container(horizontal=True):
            st.button(
                "Unpin" if is_pinned else "Pin", icon=":material/keep_off:" if is_pinned else ":material/keep:",
                key=f"{'unpin' if is_pinned else 'pin'}_{chosen.id}",
                on_click=actions.told(_unpin if is_pinned else retention.pin), args=(chosen.id,),
                **permissions.limits_on(run, "No rule deletes a pinned checkpoint."),
            )  # fmt: skip
            keeps_none = not service.current().deletions.kept_days
            is_sure = not keeps_none or st.checkbox("Delete for good", key=f"delete_for_good_{chosen.id}")
            st.button(
                f"Delete, frees {size(chosen.size_bytes)}", icon=":material/delete:",
                key=f"delete_checkpoint_{chosen.id}", on_click=actions.told(retention.delete), args=(chosen.id,),
                **permissions.limits_on(
                    run,
                    "It cannot be restored." if keeps_none else "It can be restored for some days.",
                    disabled=is_pinned or not is_sure,
                ),
            )  # fmt: skip


def _unpin(checkpoint_id: int) -> None:
    service.current().retention.pin(checkpoint_id, is_pinned=False)


# -- the rule ----------------------------------------------------------------------------------


def _rule(run: RunView) -> None:
    """Show the rule that holds, with what it keeps and why, and a field for the run's own."""
    view, plan = service.current().retention.of_run(run.id)
    whose = {None: "no rule is set", "project": f"the rule of project {run.project}", "run": "this run's rule"}
    with st.expander(f"Kept: {as_text(view.rule)} ({as_text(whose[view.of])})", key="kept_rule"):
        if view.of is not None:
            table("kept", ["Name", "Kept because"], [(one.name, one.kept or "it goes") for one in plan.checkpoints])
        text = st.text_input(
            "Rule of this run", key=f"retention_{run.id}", max_chars=LONGEST_RULE, placeholder=EXAMPLE,
            autocomplete="off", disabled=permissions.limits_on(run)["disabled"],
        )  # fmt: skip
        if not text and view.of != "run":
            return
        retention = service.current().retention
        totals = _asked(lambda: totals_of([retention.plan_for_run(run.id, text or None)]))
        if totals is None:
            return
        st.caption(f"It {as_text(totals.sentence)}.")
        st.button(
            "Set the rule" if text else "Use the project's rule", key=f"set_retention_{run.id}",
            on_click=actions.told(retention.set_for_run), args=(run.id, text or None),
            **permissions.limits_on(run),
        )  # fmt: skip


def _asked(plan: Callable[[], PlanTotals]) -> PlanTotals | None:
    """Count what a rule would delete; None, with the sentence shown, where it is no rule."""
    try:
        return plan()
    except InvalidRequest as error:
        st.warning(as_text(str(error)), icon=":material/edit:")
        return None


def project_rule(project: str) -> None:
    """Show the rule of a project's runs on its page, with a field for its admins."""
    retention = service.current().retention
    view, limits = retention.of_project(project), permissions.limits(Action.MANAGE, project)
    with st.popover("Checkpoints", icon=":material/keep:", key="project_retention"):
        st.markdown(f"Its runs without a rule of their own keep: **{as_text(view.rule)}**.")
        text = st.text_input(
            "Rule", key=f"retention_project_{project}", max_chars=LONGEST_RULE, placeholder=EXAMPLE,
            autocomplete="off", disabled=limits["disabled"],
        )  # fmt: skip
        if not text or (totals := _asked(lambda: retention.plan_for_project(project, text))) is None:
            return
        st.caption(f"It {as_text(totals.sentence)}.")
        st.button(
            "Set the rule", key=f"set_retention_project_{project}",
            on_click=actions.told(retention.set_for_project), args=(project, text), **limits,
        )  # fmt: skip


# -- the bin and the disk ----------------------------------------------------------------------


def _bin(run: RunView) -> None:
    current = service.current()
    deleted = current.retention.deleted(run.id)
    if not deleted:
        return
    freed = size(sum(one.size_bytes for one in deleted))
    with st.expander(f"Deleted ({len(deleted)}, {freed})", key="checkpoint_bin"):
        for checkpoint in deleted[:MOST_IN_BIN]:
            _deleted(run, checkpoint)
        if len(deleted) > MOST_IN_BIN:
            st.caption(f"The newest {MOST_IN_BIN}; `rankzero checkpoints {run.id} --deleted` lists them all.")


def _deleted(run: RunView, checkpoint: CheckpointView) -> None:
    current = service.current()
    now, until = current.clock(), current.retention.kept_until(checkpoint)
    with st.container(horizontal=True, vertical_alignment="center", key=f"deleted_checkpoint_{checkpoint.id}"):
        deleted_ago = ago(checkpoint.deleted_at or now, now)
        st.markdown(
            f"**{as_text(checkpoint.name)}** · {size(checkpoint.size_bytes)} · deleted {deleted_ago} by "
            f"{as_text(deleter(checkpoint))} · can be restored until {day(until or now, now, browser_zone())}",
            width="stretch",
        )
        st.button(
            "Restore", key=f"restore_checkpoint_{checkpoint.id}", on_click=actions.told(current.retention.restore),
            args=(checkpoint.id,), **permissions.limits_on(run, "It is pinned then."),
        )  # fmt: skip


def _disk() -> None:
    """Say how full the disk is; where it is full soon, what could go."""
    forecast = service.current().disk_forecast.now()
    st.caption(f"Disk for checkpoints: {as_text(forecast.sentence)}.")
    if not forecast.is_soon:
        return
    with st.expander("What could go", expanded=True, key="could_go"):
        for one in forecast.deletable:
            st.caption(f"{size(one.size_bytes)}: {as_text(one.name)} of {as_text(one.run)}")
            st.code(one.command, language=None)
        if forecast.bin_bytes and permissions.visitor().may(Action.ERASE, None):
            label = f"Empty the bin, frees {size(forecast.bin_bytes)}"
            if st.button(label, icon=":material/delete_forever:", key="empty_checkpoint_bin"):
                _empty_bin()


@visitor.dialog("Empty the bin?", icon=":material/delete_forever:")
def _empty_bin() -> None:
    """Confirm that deleted checkpoints are erased before their time."""
    st.markdown("All deleted checkpoints of the projects whose admin you are go for good, and their disk is free.")
    actions.confirm("checkpoint_bin", "Empty the bin", "Keep them", service.current().retention.empty_bin)
