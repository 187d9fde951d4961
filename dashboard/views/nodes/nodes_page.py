"""The Nodes page: the state of every device of the cluster, and one node in detail."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.components.browser import cells
from dashboard.service import service
from dashboard.views.layout import style
from dashboard.views.nodes import details, joining, preflight
from domain.views import NodeView

CELLS = "nodes_cells"
PICKED = "nodes_picked"
TAB = "nodes_tab"
DEVICES, PREFLIGHT, JOINING = "Devices", "Preflight", "Add a node"


@style.quiet_without_store
def page() -> None:
    """Show the cluster; without a node, open the tab for adding one."""
    nodes = service.current().nodes()
    st.session_state.setdefault(TAB, DEVICES if nodes else JOINING)
    st.session_state.setdefault(PICKED, _named_in_address(nodes))
    devices, check, join = st.tabs([DEVICES, PREFLIGHT, JOINING], key=TAB, on_change="rerun")
    with devices:
        _cluster()
    if check.open:
        with check:
            preflight.panel()
    if join.open:
        with join:
            joining.joining()


@st.fragment
def _cluster() -> None:
    """Show the cells, which update themselves; this runs again only after a click."""
    picked = st.session_state.get(PICKED)
    cells(picked, _pick, key=CELLS)
    if picked:
        details.panel(picked, _let_go)


def _pick() -> None:
    node_id = getattr(st.session_state[CELLS], "picked", None)
    if node_id is not None:
        st.session_state[PICKED] = node_id or None


def _let_go() -> None:
    st.session_state[PICKED] = None


def _named_in_address(nodes: Sequence[NodeView]) -> str | None:
    """Return the id of the node that the address names, as in /nodes?node=gpu-3."""
    name = st.query_params.get("node")
    return next((node.id for node in nodes if name in (node.name, node.id)), None)
