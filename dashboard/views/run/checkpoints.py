"""The Checkpoints tab: the saved checkpoints and their downloads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import TimeoutError as NotYet
from pathlib import PurePosixPath

import streamlit as st

from dashboard.errors import Rejection
from dashboard.service import service
from dashboard.storage.conversion import Conversion, is_folder
from dashboard.storage.conversions import Converted
from dashboard.views.layout import actions, permissions, style
from dashboard.views.layout.tables import Markup, checkpoint_url, download_link, show_list
from dashboard.views.run.dialogs import checkpoint_line
from dashboard.views.run.tabs import browser_zone
from db.attempts import attempt_queries
from db.checkpoints import checkpoint_queries
from domain.lists import run_lists
from domain.text.columns import Column, Columns
from domain.text.formats import as_text, clock_time, size
from domain.views import CheckpointView, RunView


@style.quiet_without_store
def checkpoints(run: RunView) -> None:
    """Show the checkpoints, newest first, each with its download."""
    saved = checkpoint_queries.checkpoints(service.current().store, run.id)
    st.session_state[PREPARING] = False
    if saved:
        _checkpoints(run.id, saved)
    else:
        st.caption(
            "No checkpoint yet. Files that the training saves in its working directory appear here when they are "
            "complete: .pt, .pth, .ckpt, .bin and .safetensors files, and the folders of Lightning, Hugging Face, "
            "Accelerate, DeepSpeed and torch.distributed.checkpoint."
        )
    is_moving = not run.state.is_terminal and not all(checkpoint.complete for checkpoint in saved)
    is_moving = is_moving or any(checkpoint.is_asked_for_again for checkpoint in saved)
    if is_moving or st.session_state[PREPARING]:
        style.refresh_within(MOVING_EVERY_S)


COLOURS = {"latest": "blue", "best": "green"}
MOST_SHOWN = 20
MOST_OFFERED = 5
UNCLEAR = (
    "It is unclear which of these files form one checkpoint: nothing resumes automatically, and *Resume* asks which "
    "one to start from. Files of several ranks, or of a model and its optimizer, form one checkpoint if their names "
    "differ only in rank and part."
)
WAITS = " The checkpoint waits on its node and is sent as soon as possible."
PATIENCE_S = 1.5
"""Seconds to wait for a conversion; most take less, so the link appears at once."""
MOVING_EVERY_S = 3
"""While bytes of a checkpoint arrive, or it is being converted."""
ASKED, PREPARING = "checkpoint_asked_for", "checkpoint_preparing"


def _checkpoints(run_id: str, saved: Sequence[CheckpointView]) -> None:
    shown = saved if st.session_state.get("all_checkpoints") else saved[:MOST_SHOWN]
    ended = _ended_attempts(run_id) if not all(checkpoint.complete for checkpoint in shown) else set()
    show_list("checkpoints", _columns(ended), shown, {"name": _name, "SHA-256": lambda c: Markup(f"`{c.sha256[:12]}`")})
    _offer_again(run_id, [c for c in shown if not c.complete and c.attempt in ended and not c.is_asked_for_again])
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
    if complete:
        _conversions(complete)
        with st.expander("Full SHA-256 sums, for `sha256sum --check`", key="sums"):
            sums = [f"{c.sha256}  {PurePosixPath(c.name).name}" for c in complete if c in shown]
            st.code("\n".join(sums), language=None)


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


# -- converted ---------------------------------------------------------------------------------


def _conversions(complete: Sequence[CheckpointView]) -> None:
    with st.expander("Convert", key="other_forms"):
        chosen = st.selectbox("Checkpoint", complete, format_func=checkpoint_line, key="form_of")
        if chosen is None:
            return
        conversion = _chosen_conversion(chosen)
        if st.button("Prepare the file", key=f"prepare_{chosen.id}", disabled=conversion.is_as_saved):
            st.session_state[ASKED] = (chosen.id, conversion, None)
        request = st.session_state.get(ASKED)
        if request and request[:2] == (chosen.id, conversion):
            _prepared(chosen, conversion, request[2])


def _chosen_conversion(chosen: CheckpointView) -> Conversion:
    with st.container(horizontal=True):
        strip = st.checkbox(
            f"Without {as_text(chosen.prefix)}" if chosen.prefix else "Without a prefix",
            value=chosen.prefix is not None,
            disabled=chosen.prefix is None,
            help="The checkpoint was saved from a wrapper (DistributedDataParallel, torch.compile), whose name "
            "starts every parameter's name; the plain model cannot load it."
            if chosen.prefix
            else "This checkpoint has no prefix: the plain model can load it.",
            key=f"strip_{chosen.id}",
        )
        tensors = st.checkbox(
            "As safetensors",
            disabled=is_folder(chosen.name),
            help="Not for folders: their weights are files in the archive."
            if is_folder(chosen.name)
            else "Only the model's tensors, without optimizer and step.",
            key=f"safetensors_{chosen.id}",
        )
    return Conversion(strip=strip and chosen.prefix is not None, safetensors=tensors and not is_folder(chosen.name))


def _prepared(chosen: CheckpointView, conversion: Conversion, problem: str | None) -> None:
    """Show the link to the converted file, or its progress, or why it failed."""
    if problem is None:
        try:
            _link(chosen, conversion, _converted(chosen.id, conversion))
        except NotYet:
            st.session_state[PREPARING] = True
            st.caption(":material/hourglass: The file is being prepared; the link appears here.")
        except Rejection as rejection:
            problem = str(rejection.detail)
            st.session_state[ASKED] = (chosen.id, conversion, problem)
    if problem is not None:
        st.warning(as_text(problem), icon=":material/info:")


def _converted(checkpoint_id: int, conversion: Conversion) -> Converted:
    current = service.current()
    stored = checkpoint_queries.checkpoint_file(current.store, checkpoint_id)
    if stored is None:
        raise Rejection(404, "This checkpoint was deleted meanwhile.")
    return current.conversions.request(stored[0], conversion).result(PATIENCE_S)


def _link(chosen: CheckpointView, conversion: Conversion, converted: Converted) -> None:
    is_another = converted.sha256 != chosen.sha256
    name = PurePosixPath(conversion.file_name(chosen.name) if is_another else chosen.name).name
    with st.container(horizontal=True, vertical_alignment="center"):
        st.link_button(
            f"Download {as_text(name)}", checkpoint_url(chosen.id, conversion),
            icon=":material/download:", key="download_other_form",
        )  # fmt: skip
        st.caption(f"{size(converted.size_bytes)} · SHA-256 `{converted.sha256[:12]}`")
    st.caption(as_text(" ".join(converted.notes)))
