"""Machines become nodes over ssh: as a plain user, with nothing installed there before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.hosts import why_not
from tests.end_to_end.product import wait_for
from tests.end_to_end.ssh_hosts import SshHosts, nodes_of, why_no_sshd, write_index


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    if reason := why_not() or why_no_sshd():
        pytest.skip(reason)
    cluster = SshHosts(2, tmp_path_factory.mktemp("hosts"))
    try:
        cluster.start()
        cluster.serve_index(write_index(tmp_path_factory.mktemp("wheels")))
        yield cluster
    finally:
        cluster.clean_up()


def test_host_joins_is_left_alone_the_second_time_and_gets_new_options(cluster: SshHosts) -> None:
    code, (first,), errors = cluster.add("host1")
    assert (code, first["state"], first["node"]) == (0, "joined", "host1"), (first, errors, cluster.tail())
    wait_for(lambda: nodes_of(cluster) == ["host1"], "the node to be alive", explain=cluster.tail)
    (token,) = cluster.get("/api/join-tokens")
    assert (token["uses"], token["revoked_at"] is None) == (1, False)
    code, (again,), _ = cluster.add("host1")
    assert (code, again["state"]) == (0, "joined") and "already" in again["message"]
    code, (changed,), errors = cluster.add("host1", "--slots", "2")
    assert (code, changed["node"]) == (0, "host1") and "has now --slots 2" in changed["message"], (changed, errors)
    wait_for(lambda: nodes_of(cluster) == ["host1"], "the node to be alive again", explain=cluster.tail)
    (node,) = cluster.get("/api/nodes")
    assert (node["name"], node["slots"]) == ("host1", 2)
