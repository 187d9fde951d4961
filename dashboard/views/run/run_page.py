"""The Run page: a run's state, its actions, live charts, logs, checkpoints and history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import streamlit as st

from dashboard.components.browser import live_charts, log_view, run_changes, run_header
from dashboard.planning.fixes import fix_of
from dashboard.service import service
from dashboard.tensorboard.process import is_event_file
from dashboard.views.layout import absence, actions, links, permissions, style
from dashboard.views.layout.sharing import export_menu, share_menu
from dashboard.views.layout.tables import checkpoint_url
from dashboard.views.run import (
    checkpoints,
    code,
    deleted_runs,
    dialogs,
    findings,
    memory,
    ranks,
    resuming,
    start,
    tabs,
    watched,
)
from db.attempts import attempt_queries
from db.checkpoints import checkpoint_queries
from db.people.users import has_several
from domain.choices import ExportFormat
from domain.messages import Reason, State
from domain.people.roles import Action
from domain.text.formats import as_text, size
from domain.views import CheckpointView, RunView


@style.quiet_without_store
def page() -> None:
    """Show one run; its components are created once a visit and stay while the page is drawn again."""
    run_id = st.query_params.get("id", "")
    run = service.current().find_run(run_id)
    if run is None:
        _absent(run_id)
        return
    absence.seen(run.id, run.project)
    st.set_page_config(page_title=f"{run.name} · Rankzero")
    with st.container(key="run_head"):  # its height is reserved while the header loads
        run_header(run.id, run.name, has_people=has_several(service.current().store))
    _answer(run)
    _tabs(run)
    run_changes(run, follows_steps=st.session_state[TAB] == RANKS)
    if not run.state.is_terminal:
        style.refresh_within(LOOK_AGAIN_S)


def _absent(run_id: str) -> None:
    """Say why there is no such run for the visitor, with the way back."""
    if not deleted_runs.show_in_place_of(run_id):
        reason = f"No run has the id {as_text(run_id[:40])}" if run_id else "The address names no run"
        absence.show(run_id, "There is no such run", f"{reason}; it may have been deleted.")


STARTING_EVERY_S, LOOK_AGAIN_S = 2.0, 60.0
"""Between two looks at what nobody announces."""
RANKS = "Ranks"
TAB, TAB_ASKED = "run_tab", "run_tab_asked"
AGAIN = "Launch again with changes"
EDIT, DELETE = ":material/edit: Edit", ":material/delete: Delete"
TRACEBACK_PX = 300
TABS_OF_IMPORTED = ("Charts", "History", "Spec")
"""What else a run has did not come with its import."""
NOT_THE_SCRIPTS_FAULT = frozenset(
    {
        Reason.KILLED,
        Reason.NODE_LOST,
        Reason.HUNG,
        Reason.TIMED_OUT,
        Reason.DISK_FULL,
        Reason.PORT_IN_USE,
        Reason.TIME_LIMIT,
    }
)


def _tabs(run: RunView) -> None:
    """Show the tabs of a run; only the open tab is built."""
    build: dict[str, Callable[[], None]] = {
        "Charts": lambda: _charts(run),
        "Logs": lambda: log_view(run.id),
        RANKS: lambda: _ranks(run),
        "Checkpoints": lambda: checkpoints.checkpoints(run),
        "History": lambda: tabs.history(run),
        "Code": lambda: code.code(run),
        "Spec": lambda: _specification(run),
    }
    if not is_whole(run):
        build = {name: build[name] for name in TABS_OF_IMPORTED}
    _take_tab_from_address(run.id, list(build))
    opened = st.tabs(list(build), key=TAB, on_change=_put_tab_into_address)
    for name, tab in zip(build, opened, strict=True):
        if tab.open:
            with tab:
                build[name]()


def is_whole(run: RunView) -> bool:
    """Whether a run has its code, logs and checkpoints: launched here, or imported from an archive."""
    return run.imported_from in (None, ExportFormat.ARCHIVE)


def _charts(run: RunView) -> None:
    live_charts(run.id)
    tabs.offline_note(run)


def _specification(run: RunView) -> None:
    if is_whole(run):
        tabs.specification(run.spec)
    else:
        st.caption(f"Imported from {as_text(run.spec.target)}")
    tabs.logged(run)
    if is_whole(run):
        tabs.commands(run.id)


def _ranks(run: RunView) -> None:
    ranks.ranks(run)
    memory.trends(run.id)


def _take_tab_from_address(run_id: str, names: Sequence[str]) -> None:
    """Open the tab in the address after a link, a reload or Back: /run?id=abcdefghij&tab=logs."""
    tab = st.query_params.get("tab", "code" if "compare" in st.query_params else "").lower()
    if TAB in st.session_state and st.session_state.get(TAB_ASKED) == (run_id, tab):
        return
    st.session_state[TAB_ASKED] = (run_id, tab)
    st.session_state[TAB] = next((name for name in names if name.lower() == tab), names[0])


def _put_tab_into_address() -> None:
    tab = st.session_state[TAB].lower()
    st.query_params["tab"] = tab
    st.session_state[TAB_ASKED] = (st.query_params.get("id", ""), tab)


@style.quiet_without_store
def _answer(run: RunView) -> None:
    """Show the run's actions, findings and the failing rank's traceback."""
    saved = checkpoint_queries.checkpoints(service.current().store, run.id)
    with st.container(horizontal=True, vertical_alignment="center", key="run_actions"):
        if is_whole(run):
            _actions(run, saved)
        _edits(run, saved)
    findings.now(run)
    if start.starting(run):
        style.refresh_within(STARTING_EVERY_S)
    if run.state == State.FAILED:
        _failure(run)


def _actions(run: RunView, saved: Sequence[CheckpointView]) -> None:
    if run.watched is not None:
        watched.start_or_stop(run, run.watched)
        _results(run, saved)
        return
    is_broken = run.loss_not_finite_since is not None
    has_fix = (run.state.is_terminal or is_broken) and _offer_fix(run, saved)
    starts_over = run.state.is_terminal and not any(checkpoint.complete for checkpoint in saved)
    resume_helps = _resume_helps(run, has_fix)
    again_is_first = starts_over or (is_broken and not has_fix)
    if again_is_first and permissions.may_launch():
        is_best = (is_broken and not has_fix) or (starts_over and resume_helps)
        links.launch_again(run.id, AGAIN, "again", "again", "primary" if is_best else "secondary")
    if run.state.is_terminal:
        kind: Literal["primary", "secondary"] = "primary" if resume_helps and not starts_over else "secondary"
        if st.button(
            "Resume", icon=":material/resume:", type=kind, key=f"resume_{run.id}", **permissions.limits_on(run)
        ):
            actions.ask(resuming.resume, run, saved)
    else:
        if is_broken and st.button(
            "Resume with changes", icon=":material/resume:", key=f"resume_{run.id}", **permissions.limits_on(run)
        ):
            actions.ask(resuming.resume, run, saved)
        stopping = run.stop_requested_at is not None
        limits = permissions.limits(Action.STOP, run.project, run.by, disabled=stopping)
        if st.button("Stop", icon=":material/stop_circle:", key=f"stop_{run.id}", **limits):
            actions.ask(dialogs.stop, run)
    _results(run, saved)
    if not again_is_first and permissions.may_launch():
        links.launch_again(run.id, AGAIN, "again", "again")


def _results(run: RunView, saved: Sequence[CheckpointView]) -> None:
    """Show what its end still waits for, and what it has written so far."""
    latest = next((checkpoint for checkpoint in saved if checkpoint.latest), None)
    may_stop = permissions.limits(Action.STOP, run.project, run.by)
    if run.delivery is not None and st.button(
        "End sending", icon=":material/cloud_off:", key=f"end_sending_{run.id}", **may_stop
    ):
        actions.ask(dialogs.end_sending, run)
    if latest is not None:
        st.link_button(
            "Download latest checkpoint", checkpoint_url(latest.id), icon=":material/download:",
            help=f"{as_text(latest.name)}, {size(latest.size_bytes)}", key="download_latest",
        )  # fmt: skip
    if any(map(is_event_file, attempt_queries.files(service.current().store, run.id))):
        st.link_button(
            "TensorBoard", f"/tensorboard/{run.id}/", icon=":material/area_chart:", key="tensorboard",
            help="Images, histograms, text and everything else in the event files; opens in a new tab",
        )  # fmt: skip


def _edits(run: RunView, saved: Sequence[CheckpointView]) -> None:
    export_menu([run.id], run.state.is_terminal)
    share_menu([run.id], permissions.limits_on(run))
    chosen = st.menu_button("More", (EDIT, DELETE), type="tertiary", key=f"more_{run.id}", **permissions.limits_on(run))
    if chosen == EDIT:
        actions.ask(dialogs.edit, run)
    elif chosen == DELETE:
        actions.ask(dialogs.delete, run, saved)


def _resume_helps(run: RunView, has_fix: bool) -> bool:
    """Whether a resume is useful: not where it would fail again, keep a broken loss, or has nothing left to do."""
    if has_fix or run.loss_not_finite_since is not None:
        return False
    return run.state == State.STOPPED or run.reason in NOT_THE_SCRIPTS_FAULT


def _offer_fix(run: RunView, saved: Sequence[CheckpointView]) -> bool:
    """Show a link to launch the run with its fix, if there is one; returns whether it did."""
    fix = fix_of(run, saved)
    if fix is None or fix.spec is None or not permissions.may_launch():
        return False
    links.launch_again(run.id, fix.label, "fix", "heal", "primary", fix.sentence, with_fix=True)
    return True


def _failure(run: RunView) -> None:
    """Show the traceback of the first rank to fail."""
    memory.failure(run)
    error = run.error or {}
    traceback = error.get("traceback")
    if not traceback or traceback in (run.message or ""):  # the last line of a rank without a traceback
        return
    location = [f"rank {error['rank']}"] if error.get("rank") is not None else []
    if run.nodes > 1 and error.get("node_rank") is not None:
        location.append(f"node {error['node_rank']}")
    st.caption(f"Traceback of the first rank to fail ({as_text(', '.join(location))})" if location else "Traceback")
    height: int | Literal["content"] = TRACEBACK_PX if traceback.count("\n") > 12 else "content"
    st.code(traceback, language="python", height=height, wrap_lines=True)
