"""Machines become nodes over ssh: as a plain user, with nothing installed there before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.hosts import why_not
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


def test_host_joins_and_is_left_alone_the_second_time(cluster: SshHosts) -> None:
    code, (first,), errors = cluster.add("host1")
    assert (code, first["state"], first["node"]) == (0, "joined", "host1"), (first, errors, cluster.tail())
    assert nodes_of(cluster) == ["host1"]
    (token,) = cluster.get("/api/join-tokens")
    assert (token["uses"], token["revoked_at"] is None) == (1, False)
    code, (again,), _ = cluster.add("host1")
    assert (code, again["state"]) == (0, "joined") and "already" in again["message"]
    print(first, again)
