"""The Preflight tab: ask nodes whether they can train together, and see what each of them found."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.cluster.picture import natural_key
from dashboard.cluster.preflight_matrix import picture, verdict
from dashboard.components.preflight import preflight
from dashboard.service import service
from dashboard.views.layout import style
from db.records.exceptions import NoSuchNode
from domain.errors import InvalidRequest
from domain.text.formats import as_text, clock_time, plural
from domain.views import CheckView, NodeView

REFRESH_S = 1
REFUSED = "preflight_refused"
CHOSEN = "preflight_chosen"


def panel() -> None:
    """What to ask, and the answers as they come."""
    _question()
    _answers()


@st.fragment(run_every=REFRESH_S)
@style.readable_without_store
def _answers() -> None:
    found = {check.id: check for check in service.current().preflights.all() if check.id is not None}
    if not found:
        st.caption("No preflight was asked for yet.")
        return
    preflight(picture(found[_chosen(found)]), key="preflight_matrix")


@st.fragment
@style.readable_without_store
def _question() -> None:
    nodes: Sequence[NodeView] = service.current().nodes()
    alive = sorted((node.name for node in nodes if node.state == "alive"), key=natural_key)
    others = sorted((node.name for node in nodes if node.state != "alive"), key=natural_key)
    st.markdown(
        "Versions, addresses, ports, the ways between nodes, devices, disks and clocks: looked at in a second, "
        "and nothing that trains is disturbed."
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.multiselect(
            "Nodes", alive + others, key="preflight_nodes", placeholder=f"All that are alive ({len(alive)})"
        )
        st.toggle(
            "Bandwidth", key="preflight_bandwidth",
            help="Also an all-reduce of two seconds between each two nodes, in the Python that trains. "
            "GPUs that train or that others use are left alone.",
        )  # fmt: skip
        st.button(
            "Run preflight", type="primary", icon=":material/fact_check:", on_click=_ask, key="preflight_run",
            disabled=not nodes,
        )  # fmt: skip
    refused = st.session_state.pop(REFUSED, None)
    if refused is not None:
        st.error(as_text(refused))


def _ask() -> None:
    nodes = list(st.session_state["preflight_nodes"]) or None
    try:
        check_id = service.current().preflights.ask(nodes, st.session_state["preflight_bandwidth"])
    except (InvalidRequest, NoSuchNode) as refused:
        st.session_state[REFUSED] = str(refused)
    else:
        st.session_state[CHOSEN] = check_id


def _chosen(found: dict[int, CheckView]) -> int:
    """The newest, unless somebody looks at an older one."""
    if st.session_state.get(CHOSEN) not in found:
        st.session_state[CHOSEN] = next(iter(found))
    if len(found) > 1:
        st.selectbox(
            "Results", list(found), key=CHOSEN, label_visibility="collapsed", width=420,
            format_func=lambda check_id: described(found[check_id]) if check_id in found else "",
        )  # fmt: skip
    return int(st.session_state[CHOSEN])


def described(check: CheckView) -> str:
    """A preflight in one line."""
    ended = {"red": f"{len(check.failed)} red", "green": "all green", "asking": "under way"}[verdict(check)]
    return f"{clock_time(check.asked_at)[:-3]} UTC · {plural(len(check.nodes), 'node')} · {ended}"
