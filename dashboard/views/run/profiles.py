"""Profiles on the Ranks tab: the button, what it costs, and the overview of each recorded rank side by side."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.components.browser import flame_graph
from dashboard.service import service
from dashboard.views.layout import actions, permissions
from dashboard.views.layout.tables import show_list
from db.ranks import profiles as db_profiles
from domain.assignments import MAX_RANKS, MAX_STEPS
from domain.profiles.views import (
    ProfileFile,
    ProfileState,
    ProfileView,
    RankOutcome,
    difference,
    operators,
    table_of,
    troubles,
)
from domain.text.formats import as_text, size
from domain.views import RankView

TOP = 10


def profiles(run_id: str, ranks: Sequence[RankView], is_live: bool) -> None:
    """Show the button while ranks step, and the chosen profile, by default the latest."""
    current = service.current()
    recorded = db_profiles.profiles(current.store, run_id, current.clock())
    if not recorded and not (is_live and ranks):
        return
    st.header("Profile", anchor=False)
    if is_live and ranks:
        _form(run_id, [rank.rank for rank in ranks], recorded)
    if recorded:
        _chosen(run_id, recorded)


def _form(run_id: str, ranks: Sequence[int], recorded: Sequence[ProfileView]) -> None:
    is_recording = any(profile.state == ProfileState.RECORDING for profile in recorded)
    steps_field, ranks_field, button = st.columns([1, 2, 2], vertical_alignment="bottom")
    steps_field.number_input("Steps", 1, MAX_STEPS, 10, key=f"profile_steps_{run_id}")
    chosen = ranks_field.multiselect(
        "Ranks", ranks, list(ranks[:MAX_RANKS]), key=f"profile_ranks_{run_id}", max_selections=MAX_RANKS
    )
    button.button(
        "Record a profile", icon=":material/speed:", key=f"profile_{run_id}",
        on_click=_request, args=(run_id,),
        **permissions.limits_on(
            service.current().run(run_id),
            "Runs torch's profiler in the chosen ranks over the same steps; the script needs no change.",
            disabled=is_recording or not chosen,
        ),
    )  # fmt: skip
    st.caption(as_text(service.current().profile_cost(run_id, recorded, len(chosen))))


@actions.told
def _request(run_id: str) -> None:
    state = st.session_state
    steps, ranks = int(state[f"profile_steps_{run_id}"]), list(state[f"profile_ranks_{run_id}"])
    service.current().request_profile(run_id, steps, ranks)


def _chosen(run_id: str, recorded: Sequence[ProfileView]) -> None:
    newest_first = list(reversed(recorded))
    labels = {profile.id: _label(profile) for profile in newest_first}
    profile = newest_first[0]
    if len(newest_first) > 1:
        chosen = st.selectbox("Profile", list(labels), format_func=labels.__getitem__, key="profile_shown")
        profile = next(profile for profile in newest_first if profile.id == chosen)
    else:
        st.caption(as_text(labels[profile.id]))
    if profile.state == ProfileState.RECORDING:
        st.caption("Recording …")
    for sentence in troubles(profile):
        st.warning(as_text(sentence))
    shown = [outcome for outcome in profile.outcomes if outcome.overview]
    for file in profile.files:
        if file.rank not in {outcome.rank for outcome in shown}:
            st.markdown(f"Rank {file.rank}: {_links(run_id, profile.id, file)}")
    if shown:
        _overview(run_id, profile, shown)
        _comparison(profile, [other for other in newest_first if other.id != profile.id])


def _label(profile: ProfileView) -> str:
    last = profile.first_step + profile.steps - 1
    ranks = ", ".join(map(str, profile.ranks))
    return f"steps {profile.first_step} to {last} of attempt {profile.attempt}, ranks {ranks} ({profile.id})"


def _overview(run_id: str, profile: ProfileView, shown: Sequence[RankOutcome]) -> None:
    show_list("profile", *table_of(shown))
    for outcome in shown:
        for sentence in outcome.overview.advice if outcome.overview else ():
            st.markdown(f":material/lightbulb: rank {outcome.rank}: {as_text(sentence)}")
    for tab, outcome in zip(st.tabs([f"Rank {outcome.rank}" for outcome in shown]), shown, strict=True):
        with tab:
            _rank(run_id, profile, outcome)


def _rank(run_id: str, profile: ProfileView, outcome: RankOutcome) -> None:
    overview = outcome.overview
    assert overview is not None
    for file in profile.files:
        if file.rank == outcome.rank:
            st.markdown(_links(run_id, profile.id, file))
    if overview.device:
        show_list(f"profile_kernels_{outcome.rank}", operators("kernel", overview), overview.device.kernels[:TOP])
    show_list(f"profile_operators_{outcome.rank}", operators("operator", overview), overview.operators[:TOP])
    st.caption("Flame graph of the thread that trains: a click on a frame widens it.")
    path = f"/api/runs/{run_id}/profiles/{profile.id}/ranks/{outcome.rank}/flame"
    flame_graph(path, key=f"flame_{profile.id}_{outcome.rank}")


def _links(run_id: str, profile_id: str, file: ProfileFile) -> str:
    page = f"/perfetto/{run_id}/?profile={profile_id}&rank={file.rank}"
    return f"[Open in Perfetto]({page}) · [Download the trace]({file.path}) ({size(file.size_bytes)})"


def _comparison(profile: ProfileView, others: Sequence[ProfileView]) -> None:
    """Show the chosen profile's ranks beside another profile's."""
    comparable = {other.id: other for other in others if any(outcome.overview for outcome in other.outcomes)}
    if not comparable:
        return
    chosen = st.selectbox(
        "Compare with", list(comparable), index=None, format_func=lambda id_: _label(comparable[id_]),
        key="profile_compared", placeholder="another profile of this run",
    )  # fmt: skip
    if chosen is None:
        return
    other = comparable[chosen]
    pairs = [
        (before, after)
        for after in profile.outcomes
        for before in other.outcomes
        if before.rank == after.rank and before.overview and after.overview
    ]
    columns = [outcome for pair in pairs for outcome in pair]
    show_list("profiles_compared", *table_of(columns, ["before", "after"] * len(pairs)))
    for before, after in pairs:
        if before.overview and after.overview:
            st.caption(as_text(f"rank {after.rank}: {difference(before.overview, after.overview)}"))
