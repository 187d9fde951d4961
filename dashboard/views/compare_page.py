"""The Compare page: the runs in the address, their curves and what differs between them."""

from __future__ import annotations

import streamlit as st

from dashboard.components.browser import compare
from dashboard.service import service
from dashboard.views.layout import links, permissions, style
from dashboard.views.layout.sharing import export_menu, share_menu
from db.runs.compared_runs import compared_runs
from domain.choices import RUN_ID
from domain.people.roles import Action
from domain.text.formats import as_text, plural


@style.quiet_without_store
def page() -> None:
    """Show the runs of the address `compare?runs=ID,ID` that exist; everything else chosen is in the address too."""
    ids = list(dict.fromkeys(filter(None, st.query_params.get("runs", "").split(","))))
    runs = compared_runs(service.current().store, [run_id for run_id in ids if RUN_ID.fullmatch(run_id)])
    with st.container(horizontal=True, vertical_alignment="center", key="compare_head"):
        title = f"Compare {plural(len(runs), 'run')}" if runs else "Compare runs"
        st.subheader(title, anchor=False, width="stretch")
        if runs:
            export_menu(list(runs), all(run.state.is_terminal for run in runs.values()))
            share_menu(list(runs), permissions.limits_anywhere(Action.ACT))
        links.link("runs", "Choose runs", key="compare_choose", icon="list", choose="1")
    if missing := [run_id for run_id in ids if run_id not in runs]:
        verb = "does" if len(missing) == 1 else "do"
        st.warning(as_text(f"{plural(len(missing), 'run')} of this address {verb} not exist: {', '.join(missing)}."))
    if runs:
        compare([{"id": run.id, "name": run.name, "state": run.state.value} for run in runs.values()], "compare")
    elif not missing:
        st.markdown("Select two or more runs on the Runs page, then choose Compare.")
