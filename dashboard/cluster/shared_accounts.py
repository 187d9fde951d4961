"""Say once what it means that people share nodes whose trainings run under the worker's own account."""

from __future__ import annotations

from collections.abc import Sequence

from domain.text.formats import agree, as_list
from domain.views import NodeView

MOST_NAMED = 3
OWN = "worker"
"""What a worker without `--run-as` says of itself; older ones say nothing."""


def sentence(nodes: Sequence[NodeView], *, has_several_people: bool, server_host: str) -> str | None:
    """A sentence on what people who launch there can read of each other; None where that concerns nobody.

    `server_host` is the name of the dashboard's machine, where a training may read more."""
    sharing = [node for node in nodes if node.devices and node.info.get("run_as", OWN) == OWN]
    names, beside_server = [node.name for node in sharing], [n.name for n in sharing if n.hostname == server_host]
    if not names or not has_several_people:
        return None
    return (
        f"Not isolated: members can read each other's files on {as_list(names, MOST_NAMED)}, and the worker's "
        f"token{_of_dashboard(beside_server)}. Start {agree(len(names), 'its worker', 'the workers')} with `--run-as`."
    )


def _of_dashboard(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f", and on {as_list(names, MOST_NAMED)}, if the dashboard has the same account, its login token and store"
