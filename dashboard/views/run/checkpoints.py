"""The Checkpoints tab: the saved checkpoints and their downloads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePosixPath

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import actions, permissions, style
from dashboard.views.layout.tables import Markup, download_link, show_list
from dashboard.views.run import kept_checkpoints, merging, push_form, tensors
from dashboard.views.run.tabs import browser_zone
from db.attempts import attempt_queries
from db.checkpoints import checkpoint_queries
from domain.checkpoint_use.tasks import CheckpointTaskView, TaskKind
from domain.checkpoints.names import is_folder
from domain.lists import run_lists
from domain.text.columns import Column, Columns
from domain.text.formats import as_text, clock_time
from domain.views import CheckpointView, RunView


@style.quiet_without_store
def checkpoints(run: RunView) -> None:
    """Show the checkpoints, newest first, each with its download."""
    saved = checkpoint_queries.checkpoints(service.current().store, run.id)
    tasks, is_read = service.current().checkpoint_tasks, False
    merges, pushes = (tasks.of_run(run.id, kind) if saved else [] for kind in (TaskKind.MERGE, TaskKind.PUSH))
    if saved:
        is_read = _checkpoints(run, saved, merges, pushes)
    else:
        st.caption(
            "No checkpoint yet. Files that the training saves in its working directory appear here when they are "
            "complete: .pt, .pth, .ckpt, .bin and .safetensors files, and the folders of Lightning, Hugging Face, "
            "Accelerate, DeepSpeed and torch.distributed.checkpoint."
        )
    kept_checkpoints.show(run, saved)
    is_moving = not run.state.is_terminal and not all(checkpoint.complete for checkpoint in saved)
    is_moving = is_moving or any(checkpoint.is_asked_for_again for checkpoint in saved)
    if is_moving or is_read or any(task.ended_at is None for task in (*merges, *pushes)):
        style.refresh_within(MOVING_EVERY_S)


COLOURS = {"latest": "blue", "best": "green", "pinned": "orange"}
MOST_SHOWN = 20
MOST_OFFERED = 5
UNCLEAR = (
    "It is unclear which of these files form one checkpoint: nothing resumes automatically, and *Resume* asks which "
    "one to start from. Files of several ranks, or of a model and its optimizer, form one checkpoint if their names "
    "differ only in rank and part."
)
WAITS = " The checkpoint waits on its node and is sent as soon as possible."
MOVING_EVERY_S = 3
"""While bytes of a checkpoint arrive, or a node works on one."""


def _checkpoints(
    run: RunView,
    saved: Sequence[CheckpointView],
    merges: Sequence[CheckpointTaskView],
    pushes: Sequence[CheckpointTaskView],
) -> bool:
    """Show the list and what can be done with one; return whether a node reads tensors."""
    shown = saved if st.session_state.get("all_checkpoints") else saved[:MOST_SHOWN]
    ended = _ended_attempts(run.id) if not all(checkpoint.complete for checkpoint in shown) else set()
    show_list("checkpoints", _columns(ended), shown, {"name": _name, "SHA-256": lambda c: Markup(f"`{c.sha256[:12]}`")})
    _offer_again(run.id, [c for c in shown if not c.complete and c.attempt in ended and not c.is_asked_for_again])
    troubled = [c for c in shown if c.trouble and not c.complete]
    for problem in dict.fromkeys(f"{c.trouble}{'' if c.attempt in ended else WAITS}" for c in troubled):
        st.warning(as_text(problem), icon=":material/cloud_off:")
    if len(saved) > MOST_SHOWN:
        st.toggle(f"Show all {len(saved)} checkpoints", key="all_checkpoints")
    complete = [checkpoint for checkpoint in saved if checkpoint.complete]
    if any(checkpoint.step_is_inferred for checkpoint in shown):
        st.caption("≈ The name has no step: this one was logged or printed around its saving.")
    if complete and not any(checkpoint.latest for checkpoint in complete):
        st.info(UNCLEAR, icon=":material/help:")
    if folder := next((checkpoint for checkpoint in shown if checkpoint.complete and is_folder(checkpoint.name)), None):
        archive = as_text(PurePosixPath(folder.name).name)
        st.caption(f"A folder is downloaded as one archive: `tar -xf` {archive} restores it for its framework.")
    is_read = False
    if complete:
        merging.merging(run, complete, merges)
        is_read = tensors.tensors(run, complete)
        push_form.pushing(run, complete, pushes)
        with st.expander("Full SHA-256 sums, for `sha256sum --check`", key="sums"):
            sums = [f"{c.sha256}  {PurePosixPath(c.name).name}" for c in complete if c in shown]
            st.code("\n".join(sums), language=None)
    return is_read


def _columns(ended: Collection[int]) -> Columns[CheckpointView]:
    """Return the columns of the list, with a download in place of the state; `ended`: numbers of ended attempts."""

    def download(checkpoint: CheckpointView) -> str:
        has_ended = checkpoint.attempt in ended
        return download_link(checkpoint.id) if checkpoint.complete else run_lists.progress(checkpoint, has_ended)

    zone = browser_zone()
    columns = run_lists.checkpoints(lambda at: clock_time(at, zone))
    return [*(column for column in columns if column.title != "state"), Column("download", download)]


def _offer_again(run_id: str, partial: Sequence[CheckpointView]) -> None:
    """Offer to have the nodes resend what never fully arrived; a newer version of a file comes before an older one."""
    if not partial or not permissions.may_act_on(run_id):
        return
    newest = {checkpoint.name: checkpoint for checkpoint in reversed(partial)}
    for checkpoint in list(newest.values())[:MOST_OFFERED]:
        st.button(
            f"Send {as_text(PurePosixPath(checkpoint.name).name)} again", icon=":material/upload:",
            help="Its node sends the file again, if it is still there.", key=f"again_{checkpoint.id}",
            on_click=actions.told(service.current().send_checkpoint_again), args=(checkpoint.id,),
        )  # fmt: skip


def _name(checkpoint: CheckpointView) -> Markup:
    badges = (f" :{COLOURS.get(mark, 'gray')}-badge[{as_text(mark)}]" for mark in run_lists.marks(checkpoint))
    return Markup(as_text(checkpoint.name) + "".join(badges))


def _ended_attempts(run_id: str) -> set[int]:
    """Return the numbers of ended attempts, whose checkpoints have all arrived."""
    attempts = attempt_queries.attempts(service.current().store, run_id)
    return {attempt.number for attempt in attempts if attempt.state.is_terminal}
