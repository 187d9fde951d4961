"""On which nodes people can read each other's files, in one sentence, and only where there are several people."""

from __future__ import annotations

from dashboard.cluster.shared_accounts import sentence
from domain.views import DeviceView, NodeView

DEVICE = DeviceView("GPU-0", "cuda", "NVIDIA H200", 141, run_id=None, attempt=None, foreign=False)


def node(name: str, **info: str) -> NodeView:
    return NodeView(
        id=name, name=name, state="alive", draining=False, hostname=name, address="10.0.0.1", slots=1, free=1,
        devices=[DEVICE], labels={}, info=info, load=None, last_seen=0.0, silent_s=0.0,
    )  # fmt: skip


def test_one_person_reads_nothing_of_it() -> None:
    assert sentence([node("gpu-1", run_as="worker")], has_several_people=False, server_host="server") is None


def test_several_people_read_it_once_for_all_such_nodes() -> None:
    nodes = [node("gpu-1", run_as="worker"), node("gpu-2", run_as="accounts"), node("gpu-3")]
    assert sentence(nodes, has_several_people=True, server_host="server") == (
        "Not isolated: members can read each other's files on gpu-1 and gpu-3, and the worker's token. Start the "
        "workers with `--run-as`."
    )
    assert sentence(nodes[:1], has_several_people=True, server_host="server") == (
        "Not isolated: members can read each other's files on gpu-1, and the worker's token. Start its worker with "
        "`--run-as`."
    )


def test_beside_the_dashboard_they_may_read_its_token_too() -> None:
    text = sentence([node("gpu-1"), node("gpu-2")], has_several_people=True, server_host="gpu-2")
    assert text is not None
    assert ", and on gpu-2, if the dashboard has the same account, its login token and store." in text


def test_nothing_is_said_where_accounts_or_jobs_keep_trainings_apart() -> None:
    nodes = [node("gpu-2", run_as="accounts"), node("c1", run_as="job")]
    assert sentence(nodes, has_several_people=True, server_host="server") is None
