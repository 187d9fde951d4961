"""The Nodes page: what every device of the cluster is doing, and one node of them in detail."""

from __future__ import annotations

import streamlit as st

from dashboard import service
from dashboard.components.cells import cells
from dashboard.views import navigation, node_details, style

CELLS = "nodes_cells"
PICKED = "nodes_picked"
OPENED = "nodes_opened"
REFRESH_S = 3


@style.asked_again_without_store
def page() -> None:
    """The cluster; without any node, how to let one join."""
    if not service.current().nodes():
        _say_how_to_begin()
        return
    if PICKED not in st.session_state:
        st.session_state[PICKED] = _named_in_address()
    _cluster()
    _how_to_join()


@st.fragment
def _cluster() -> None:
    """Cells keep themselves current; this runs again only when something was clicked."""
    if (run_id := st.session_state.pop(OPENED, None)) is not None:
        navigation.open_run(run_id)
    picked = st.session_state.get(PICKED)
    cells(picked, _pick, _open, key=CELLS)
    if picked:
        node_details.panel(picked, _let_go)


def _pick() -> None:
    node_id = getattr(st.session_state[CELLS], "picked", None)
    if node_id is not None:
        st.session_state[PICKED] = node_id or None


def _open() -> None:
    st.session_state[OPENED] = getattr(st.session_state[CELLS], "opened", None)


def _let_go() -> None:
    st.session_state[PICKED] = None


def _named_in_address() -> str | None:
    """/nodes?node=gpu-3 opens with that node."""
    asked = st.query_params.get("node")
    return next((node.id for node in service.current().nodes() if asked in (node.name, node.id)), None)


@st.fragment(run_every=REFRESH_S)
@style.readable_without_store
def _say_how_to_begin() -> None:
    if service.current().nodes():
        st.rerun(scope="app")
    st.subheader("No node has joined yet", anchor=False)
    st.markdown("A node is a machine that trains. Let one join with this command, on that machine:")
    _command()


def _how_to_join() -> None:
    st.caption("Another machine joins with:")
    _command()


def _command() -> None:
    st.code(f"RANKZERO_TOKEN=$(rankzero token --join) rankzero worker --server {_address()}", language="bash")
    st.caption(
        "`rankzero token --join` is run on the dashboard's machine; the token goes to the node that joins."
    )


def _address() -> str:
    """The address the browser has used for the dashboard."""
    host = st.context.headers.get("Host") or "HOST:8765"
    scheme = "https" if (st.context.url or "").startswith("https") else "http"
    return f"{scheme}://{host}"
