"""A store's identity and the attempts that it knows, on both databases; what an older copy of it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from dashboard.clock import AnchoredTime
from dashboard.cluster.registry import Lineage
from dashboard.errors import Rejection
from db import identity
from db.engine import Store
from db.identity import Key, UnknownAttempt
from db.models import Attempt
from db.runs import deletion
from tests.db.cluster import Cluster


def key_of(store: Store, run_id: str) -> Key:
    """The latest attempt of a run as a worker remembers it."""
    newest = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number.desc())
    with store.read() as session:
        attempt = session.scalars(newest).first()
        assert attempt is not None
        return Key(attempt.fence, f"{run_id}/{attempt.number}/{attempt.uid}")


def knows(store: Store, key: Key) -> bool:
    with store.read() as session:
        return identity.knows(session, key)


def test_a_store_keeps_its_identity_over_restarts_until_it_is_renewed(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    first = Lineage(store, AnchoredTime()).identity
    other = Store.open(store_url, tmp_path / "backups")
    try:
        beside = Lineage(other, AnchoredTime())
        assert beside.identity == first
        with store.write() as session:
            renewed = identity.renew(session, "restored", 5.0).identity
        assert renewed != first
        assert beside.is_current(renewed) and beside.identity == renewed
        assert not beside.is_current(first)
    finally:
        other.close()


def test_attempts_that_were_made_or_deleted_are_known_and_others_are_not(cluster: Cluster) -> None:
    run_id = cluster.launch()
    key = key_of(cluster.store, run_id)
    assert knows(cluster.store, key)
    assert not knows(cluster.store, Key(key.fence, f"{run_id}/1/anotheruid"))
    assert not knows(cluster.store, Key(key.fence, f"zzzzzzzzzz/1/{key.label.rpartition('/')[2]}"))
    assert not knows(cluster.store, Key(key.fence + 1, f"{run_id}/2/anotheruid"))
    cluster.report(key.fence, "failed")
    deletion.erase(cluster.store, run_id, cluster.now)
    assert knows(cluster.store, key)
    assert not knows(cluster.store, Key(key.fence, f"{run_id}/1/anotheruid"))


def test_a_worker_that_remembers_more_gives_the_store_another_identity(cluster: Cluster) -> None:
    key = key_of(cluster.store, cluster.launch())
    lineage = Lineage(cluster.store, AnchoredTime())
    before = lineage.identity
    assert lineage.is_current(f"{before} {key.fence} {key.label}") and lineage.identity == before
    assert not lineage.is_current(f"{before} {key.fence + 1} zzzzzzzzzz/1/ff00")
    assert lineage.identity != before
    assert Lineage(cluster.store, AnchoredTime()).identity == lineage.identity


def test_reports_of_unknown_attempts_are_refused_by_name(cluster: Cluster) -> None:
    key = key_of(cluster.store, cluster.launch())
    lineage = Lineage(cluster.store, AnchoredTime())
    lineage.check_attempt(key.fence, key.label)
    with pytest.raises(UnknownAttempt, match="zzzzzzzzzz/1"):
        lineage.check_attempt(key.fence, "zzzzzzzzzz/1/ff00")
    with pytest.raises(Rejection):
        lineage.check_attempt(key.fence + 1, None)
