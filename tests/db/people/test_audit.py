"""The audit log is signed by the actor, shown to those who may read it, and never changed."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from db import acting
from db.engine import Store
from db.people import audit
from db.people.audit import AuditFilter
from domain.people.audit import AuditAction
from domain.people.rights import Denied, Rights, rights_of_owner
from domain.people.roles import Role, Scope
from tests.dashboard.read_only import make_read_only

pytestmark = pytest.mark.both_stores

ANA = Rights("ana", everywhere=Role.MEMBER)


@pytest.mark.parametrize(
    "statement",
    [
        "update audit set by = 'ben'",
        "delete from audit where id = 1",
        "delete from audit",
    ],
)
def test_store_refuses_to_change_what_was_written_down(store: Store, statement: str) -> None:
    record(store, ANA, "run a")
    with pytest.raises(DBAPIError, match="only added to"), store.write() as session:
        session.execute(text(statement))
    assert signed(store) == [("ana", "run a")]


def test_sqlite_refuses_a_row_that_replaces_another(sqlite_store: Store) -> None:
    record(sqlite_store, ANA, "run a")
    statement = "insert or replace into audit (id, at, action, object) values (1, 0, 'launched', 'run b')"
    with pytest.raises(DBAPIError, match="only added to"), sqlite_store.write() as session:
        session.execute(text(statement))
    assert signed(sqlite_store) == [("ana", "run a")]


def test_postgresql_refuses_to_empty_the_table(postgres_url: str) -> None:
    store = Store.open(postgres_url)
    record(store, ANA, "run a")
    with pytest.raises(DBAPIError, match="only added to"), store.write() as session:
        session.execute(text("truncate audit"))
    assert signed(store) == [("ana", "run a")]
    store.close()


def test_entry_says_who_through_what_and_from_where(store: Store) -> None:
    with acting.acting(Rights("ana", via="token ci", everywhere=Role.MEMBER)), acting.requested_from("192.0.2.7"):
        audit.record(store, AuditAction.STOPPED, "run a", "vision", {"why": "too slow"})
    (entry,) = audit.entries(store, AuditFilter(), 10)
    assert (entry.by, entry.via, entry.address) == ("ana", "token ci", "192.0.2.7")
    assert (entry.action, entry.object, entry.project, entry.more) == (
        "stopped",
        "run a",
        "vision",
        {"why": "too slow"},
    )


def test_entry_of_what_was_not_done_is_not_kept(store: Store) -> None:
    with pytest.raises(RuntimeError), store.write() as session:
        audit.record(session, AuditAction.DELETED, "run a")
        raise RuntimeError
    assert signed(store) == []


def test_refused_sign_ins_are_written_down_once_a_minute_for_each_name_and_address(store: Store) -> None:
    for address in ("192.0.2.7", "192.0.2.7", "192.0.2.8"):
        with acting.requested_from(address):
            audit.record_refused_sign_in(store, "ana")
    assert [entry.address for entry in audit.entries(store, AuditFilter(), 10)] == ["192.0.2.8", "192.0.2.7"]


def test_refused_sign_ins_from_everywhere_do_not_fill_the_disk(store: Store) -> None:
    for number in range(audit.MOST_REFUSALS + 20):
        audit.record_refused_sign_in(store, f"name{number}")
    assert len(audit.entries(store, AuditFilter(), 1000)) == audit.MOST_REFUSALS


def test_download_that_goes_on_later_is_one_entry_and_one_that_begins_later_is_one_too(store: Store) -> None:
    with acting.acting(ANA):
        audit.record_download(store, "checkpoint a")
        audit.record_download(store, "checkpoint a", is_resumed=True)
        audit.record_download(store, "checkpoint b", is_resumed=True)
    assert signed(store) == [("ana", "checkpoint b"), ("ana", "checkpoint a")]


def test_download_goes_on_where_the_store_takes_no_writes_and_is_in_the_dashboards_log(
    sqlite_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    make_read_only(sqlite_store, True)
    with acting.acting(ANA):
        audit.record_download(sqlite_store, "checkpoint a")
    assert "not in the audit log: ana downloaded checkpoint a" in caplog.messages
    make_read_only(sqlite_store, False)
    assert signed(sqlite_store) == []


@pytest.mark.parametrize(
    ("rights", "objects"),
    [
        (rights_of_owner(), {"node", "vision", "speech", "hidden"}),
        (Rights("eva", everywhere=Role.ADMIN, private=frozenset({"hidden"})), {"node", "vision", "speech"}),
        (
            Rights(
                "eva",
                everywhere=Role.ADMIN,
                in_projects=MappingProxyType({"hidden": Role.MEMBER}),
                private=frozenset({"hidden"}),
            ),
            {"node", "vision", "speech"},
        ),
        (
            Rights("eva", everywhere=Role.VIEWER, in_projects=MappingProxyType({"vision": Role.ADMIN})),
            {"vision"},
        ),
        (Rights("eva", via="token ci", everywhere=Role.ADMIN, only_project="speech"), {"speech"}),
    ],
)
def test_everybody_reads_the_entries_of_what_they_manage(store: Store, rights: Rights, objects: set[str]) -> None:
    audit.record(store, AuditAction.DRAINED, "node")
    for project in ("vision", "speech", "hidden"):
        audit.record(store, AuditAction.LAUNCHED, project, project)
    with acting.acting(rights):
        assert {entry.object for entry in audit.all_entries(store, AuditFilter())} == objects


@pytest.mark.parametrize(
    ("rights", "sentence"),
    [
        (ANA, "only admins can"),
        (Rights("eva", via="token ci", everywhere=Role.ADMIN, scope=Scope.READ), "scope of token ci is read"),
    ],
)
def test_others_are_denied_with_a_sentence(store: Store, rights: Rights, sentence: str) -> None:
    with acting.acting(rights), pytest.raises(Denied, match=sentence):
        audit.entries(store, AuditFilter(), 10)


def test_entries_are_chosen_by_person_action_and_time_and_paged_from_the_newest(store: Store) -> None:
    for number in range(5):
        record(store, ANA, f"run {number}")
    record(store, Rights("ben", everywhere=Role.MEMBER), "run x", AuditAction.STOPPED)
    newest, *_ = audit.entries(store, AuditFilter(by="ana"), 1)
    assert newest.object == "run 4"
    older = audit.entries(store, AuditFilter(by="ana", before=newest.id), 2)
    assert [entry.object for entry in older] == ["run 3", "run 2"]
    assert [entry.by for entry in audit.entries(store, AuditFilter(action=AuditAction.STOPPED), 10)] == ["ben"]
    assert audit.entries(store, AuditFilter(since=newest.at + 1000), 10) == []
    assert audit.signers(store) == ["ana", "ben"]


def test_all_entries_are_read_in_batches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "ROWS_AT_ONCE", 2)
    for number in range(5):
        record(store, ANA, f"run {number}")
    assert [entry.object for entry in audit.all_entries(store, AuditFilter())] == [f"run {n}" for n in range(4, -1, -1)]


def record(store: Store, rights: Rights, object_name: str, action: AuditAction = AuditAction.LAUNCHED) -> None:
    with acting.acting(rights):
        audit.record(store, action, object_name)


def signed(store: Store) -> list[tuple[str | None, str]]:
    return [(entry.by, entry.object) for entry in audit.entries(store, AuditFilter(), 100)]
