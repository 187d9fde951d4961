"""The Nodes page: the state of every device of the cluster, and one node in detail."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import streamlit as st

from dashboard.cluster import shared_accounts
from dashboard.cluster.picture import natural_key
from dashboard.cluster.preflights import picture, verdict
from dashboard.components.browser import cells, preflight
from dashboard.service import service
from dashboard.views.layout import actions, permissions, style
from dashboard.views.nodes import details, guests, joining
from db.people import users
from domain.people.roles import Action
from domain.text.formats import clock_minute, plural, with_code
from domain.views import CheckView, NodeView


@style.quiet_without_store
def page() -> None:
    """Show the cluster; without a node or guest, open the tab for adding one."""
    nodes = service.current().nodes()
    st.session_state.setdefault(TAB, DEVICES if nodes or guests.present() else JOINING)
    st.session_state.setdefault(PICKED, _named_in_address(nodes))
    devices, check, join = st.tabs([DEVICES, PREFLIGHT, JOINING], key=TAB, on_change="rerun")
    with devices:
        _cluster()
        guests.section()
        _say_who_shares(nodes)
    if check.open:
        with check:
            preflight_panel()
    if join.open:
        with join:
            joining.adding()


def _say_who_shares(nodes: Sequence[NodeView]) -> None:
    """Say on which nodes people can read each other's files; with one person there is nothing to say."""
    has_several_people = users.has_several(service.current().store)
    host = socket.gethostname()
    if text := shared_accounts.sentence(nodes, has_several_people=has_several_people, server_host=host):
        st.caption(with_code(text))


CELLS = "nodes_cells"
PICKED = "nodes_picked"
TAB = "nodes_tab"
DEVICES, PREFLIGHT, JOINING = "Devices", "Preflight", "Add a node"


def _cluster() -> None:
    """Show the cells, which update themselves, and the panel of the picked node."""
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


# The Preflight tab: check whether nodes can train together, and show each node's results.

REFRESH_S, ASKING_EVERY_S = 5, 1
REFUSED = "preflight_refused"
CHOSEN = "preflight_chosen"


def preflight_panel() -> None:
    """Show the controls, and the results as they arrive."""
    _controls()
    _results()


@style.quiet_without_store
def _results() -> None:
    style.refresh_within(REFRESH_S)
    checks = {check.id: check for check in service.current().preflights.all() if check.id is not None}
    if not checks:
        st.caption("No preflight has been run yet. It checks, before any rank starts, that nodes can train together.")
        return
    chosen = checks[_chosen(checks)]
    if verdict(chosen) == "asking":
        style.refresh_within(ASKING_EVERY_S)
    preflight(picture(chosen, permissions.signed(chosen.by)), key="preflight_matrix")


@style.quiet_without_store
def _controls() -> None:
    nodes: Sequence[NodeView] = service.current().nodes()
    online = sorted((node.name for node in nodes if node.state == "alive"), key=natural_key)
    others = sorted((node.name for node in nodes if node.state != "alive"), key=natural_key)
    st.markdown(
        "Checks versions, addresses, ports, connections between nodes, devices, disks and clocks in about a second; "
        "running jobs are not disturbed."
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.multiselect(
            "Nodes",
            online + others,
            key="preflight_nodes",
            placeholder=f"All online nodes ({len(online)})",
        )
        st.toggle(
            "Bandwidth", key="preflight_bandwidth",
            help="Also a two-second all-reduce between each pair of nodes, in their training Python. "
            "GPUs in use are skipped.",
        )  # fmt: skip
        st.button(
            "Run preflight", type="primary", icon=":material/fact_check:", key="preflight_run",
            on_click=actions.attempt, args=(_start, REFUSED),
            **permissions.limits(Action.OPERATE, None, disabled=not nodes),
        )  # fmt: skip
    actions.show(REFUSED)


def _start() -> None:
    nodes = list(st.session_state["preflight_nodes"]) or None
    check_id = service.current().preflights.ask(nodes, st.session_state["preflight_bandwidth"])
    st.session_state[CHOSEN] = check_id


def _chosen(checks: dict[int, CheckView]) -> int:
    """Return the id of the selected preflight, by default the newest."""
    if st.session_state.get(CHOSEN) not in checks:
        st.session_state[CHOSEN] = next(iter(checks))
    if len(checks) > 1:
        st.selectbox(
            "Results", list(checks), key=CHOSEN, label_visibility="collapsed", width=420,
            format_func=lambda check_id: described(checks[check_id]) if check_id in checks else "",
        )  # fmt: skip
    return int(st.session_state[CHOSEN])


def described(check: CheckView) -> str:
    """Return a preflight's summary in one line."""
    outcome = {"red": f"{len(check.failed)} red", "green": "all green", "asking": "in progress"}[verdict(check)]
    return f"{clock_minute(check.asked_at)} · {plural(len(check.nodes), 'node')} · {outcome}"
