"""What changes would take from others, with names and counts, and what removing a person does to their runs."""

from __future__ import annotations

import pytest

from db import acting
from db.engine import Store
from db.models import Alert, AlertEvent, HistoryEntry, PrivateProject, Run
from db.nodes.node_reports import register_node
from db.people import accounts, audit, consequences, notices, projects, removal, users
from db.people.audit import AuditFilter
from db.people.visibility import hidden_among, visible_ids
from db.runs import run_queries, run_requests
from db.scheduling import queue_placement
from domain.people.audit import AuditAction
from domain.people.consequences import NOTHING
from domain.people.rights import Denied, rights_of_owner
from domain.people.roles import Role
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec
from tests.db.cluster import facts
from tests.db.people.test_accounts import joined

pytestmark = pytest.mark.both_stores


@pytest.fixture
def lab(store: Store) -> Store:
    """A node, the owner, an admin, two members and one who sees one project alone."""
    register_node(store, facts(slots=8), None, 1.0)
    for name, role in (("eva", Role.ADMIN), ("ana", Role.MEMBER), ("ben", Role.MEMBER), ("cy", None)):
        joined(store, name, role)
    with store.write() as session:
        accounts.set_membership(session, "cy", "vision", Role.VIEWER)
    return store


def launched(store: Store, name: str, project: str = "default", title: str = "train") -> str:
    rights = users.rights_of(store, name)
    assert rights is not None
    with acting.acting(rights):
        spec = RunSpec(target="image_classifier", gpus_per_node=1, project=project, name=title)
        return run_requests.submit(store, spec, 2.0)


def as_person(store: Store, name: str):
    rights = users.rights_of(store, name)
    assert rights is not None
    return acting.acting(rights)


def test_who_loses_sight_of_a_private_project_is_named_and_counted(lab: Store) -> None:
    for name in ("ana", "ben", "ben"):
        launched(lab, name)
    with acting.acting(rights_of_owner()):
        lost = consequences.of_privacy(lab, "default")
    assert (lost.people, lost.runs) == (("ana", "ben", "eva"), 3)
    assert lost.sentence.startswith("default: 3 people (ana, ben and eva) lose sight of 3 runs.")
    with as_person(lab, "eva"):
        assert consequences.of_privacy(lab, "default").people == ("ana", "ben"), "who does it stays its admin"
        projects.set_privacy(lab, "default", True, 3.0)
        assert consequences.of_privacy(lab, "default") == NOTHING
        assert consequences.of_privacy(lab, "vision").people == ("ana", "ben"), "cy has a role of their own there"


def test_launchers_keep_sight_of_their_own_runs_and_of_no_others(lab: Store) -> None:
    own, other = launched(lab, "ana"), launched(lab, "ben")
    with acting.acting(rights_of_owner()):
        projects.set_privacy(lab, "default", True, 3.0)
    with as_person(lab, "ana"):
        assert visible_ids(lab, [own, other]) == [own]
        assert [run.id for run in run_queries.named_runs(lab, "train")] == [own]
        assert [project.name for project in projects.every(lab)] == ["vision"]
    with lab.write() as session:
        session.get_one(accounts.User, "ana").role = None
    with as_person(lab, "ana"):
        assert visible_ids(lab, [own, other]) == [], "whoever has no role anywhere sees nothing"


def test_lower_role_says_what_is_lost_and_a_higher_one_nothing(lab: Store) -> None:
    launched(lab, "ben"), launched(lab, "ana", "speech")
    with as_person(lab, "eva"):
        assert consequences.of_role(lab, "ana", Role.ADMIN, None) == NOTHING
        assert consequences.of_role(lab, "eva", Role.VIEWER, None) == NOTHING, "it is not taken from others"
        assert consequences.of_role(lab, "ana", Role.VIEWER, None).sentence == (
            "ana is now a member of all projects that are not private, and would be a viewer."
        )
        everywhere = consequences.of_role(lab, "ana", None, None)
        in_vision = consequences.of_role(lab, "cy", None, "vision")
    assert everywhere.sentence.endswith("would be without a role. They lose sight of 2 runs in default and speech.")
    assert in_vision.sentence == "cy is now a viewer of project vision, and would be without a role."


def test_runs_of_a_hidden_project_are_neither_named_nor_counted(lab: Store) -> None:
    launched(lab, "ben")
    with lab.write() as session:
        accounts.set_membership(session, "ana", "secret", Role.VIEWER)
        accounts.set_membership(session, "ben", "secret", Role.MEMBER)
        session.add(PrivateProject(project="secret", since=1.0, by="ben"))
    launched(lab, "ben", "secret")
    with as_person(lab, "eva"):
        lost = consequences.of_role(lab, "ana", None, None)
    assert "secret" not in lost.sentence and lost.runs == 1


def test_nobody_becomes_a_person_whose_own_runs_are_hidden_from_them(lab: Store) -> None:
    """A link to a new password would show its maker what its person launched before the project was private."""
    launched(lab, "ben", "secret")
    eva = users.rights_of(lab, "eva")
    assert eva is not None
    with lab.write() as session:
        assert users.could_become(session, eva, "ben")
        session.add(PrivateProject(project="secret", since=1.0, by="ana"))
    eva = users.rights_of(lab, "eva")
    assert eva is not None
    with lab.read() as session:
        assert not users.could_become(session, eva, "ben") and users.could_become(session, eva, "ana")
        assert users.could_become(session, rights_of_owner(), "ben")


def test_a_drained_node_names_nobody_who_trains_in_a_hidden_project(lab: Store) -> None:
    runs = [launched(lab, "ana"), launched(lab, "ben", "secret")]
    queue_placement.place_queue(lab, 3.0, silent_after_s=30)
    with lab.write() as session:
        session.add(PrivateProject(project="secret", since=1.0, by="ben"))
    with as_person(lab, "eva"):
        drain = consequences.of_drain(lab, "gpu-1")
    assert drain.sentence == "gpu-1 trains 1 run of ana and 1 private run; they continue, and nothing new starts there."
    assert drain.people == ("ana",) and drain.runs == len(runs)


def test_whose_runs_are_reached(lab: Store) -> None:
    runs = [launched(lab, name) for name in ("ana", "ben", "ben", "eva")]
    with as_person(lab, "eva"):
        whose = consequences.of_runs(lab, runs)
        assert whose.sentence == "3 runs of ana and ben." and whose.runs == 3
        assert consequences.of_runs(lab, runs[-1:]) == NOTHING
    assert consequences.of_thing("alert", "ana").sentence == "This alert is ana's."


def test_reason_of_a_stop_is_told_to_whose_run_it_is(lab: Store) -> None:
    run_id = launched(lab, "ben")
    with lab.write() as session:
        session.add(Alert(id="a" * 10, rule="failed", target="https://h.example", by="ben", created_at=1.0))
    with as_person(lab, "eva"):
        run_requests.request_stop(lab, run_id, 3.0, reason="needed for the demo")
    view = run_queries.run(lab, run_id, 4.0)
    assert view is not None and view.message == "Stopped by eva: needed for the demo"
    with lab.read() as session:
        texts = [row.text for row in session.query(HistoryEntry).filter_by(run_id=run_id)]
        sent = [row.sentence for row in session.query(AlertEvent)]
    assert "stop requested: needed for the demo" in texts
    told = "eva stopped your run train: needed for the demo"
    assert sent == [told]
    with as_person(lab, "ana"):
        assert notices.unread(lab) == []
    with as_person(lab, "ben"):
        (notice,) = notices.unread(lab)
        assert (notice.sentence, notice.run_id) == (told, run_id)
        with as_person(lab, "ana"):
            notices.read(lab, notice.id)
        assert notices.unread(lab) == [notice], "nobody else reads it away"
        notices.read(lab, notice.id)
        assert notices.unread(lab) == []


def test_own_stop_and_one_that_changes_nothing_tell_nobody(lab: Store) -> None:
    run_id = launched(lab, "ben")
    for name in ("ben", "eva"):
        with as_person(lab, name):
            run_requests.request_stop(lab, run_id, 3.0)
    with as_person(lab, "ben"):
        assert notices.unread(lab) == []


def test_removed_persons_runs_stay_theirs_or_become_anothers(lab: Store) -> None:
    run_id, ended = launched(lab, "ben"), launched(lab, "ben")
    with as_person(lab, "ben"):
        run_requests.request_stop(lab, ended, 3.0)
    with as_person(lab, "eva"):
        assert consequences.of_removal(lab, "ben").sentence == "ben has 1 live run."
        with pytest.raises(InvalidRequest, match="no other person 'zoe'"):
            removal.remove(lab, "ben", 4.0, "zoe")
        with pytest.raises(InvalidRequest, match="cy cannot have run"):
            removal.remove(lab, "ben", 4.0, "cy")
        assert removal.remove(lab, "ben", 4.0, "ana") == [run_id]
        given = audit.entries(lab, AuditFilter(action=AuditAction.GIVEN), 9)
    assert [(one.by, one.object, one.more) for one in given] == [
        ("eva", f"run {run_id}", {"name": "train", "to": "ana"})
    ]
    with lab.read() as session:
        assert [session.get_one(Run, one).by for one in (run_id, ended)] == ["ana", "ben"]
    with as_person(lab, "ana"):
        assert [one.sentence for one in notices.unread(lab)] == ["eva gave you ben's run train."]


def test_only_the_owner_gives_runs_away_whose_settings_may_hold_secrets(lab: Store) -> None:
    launched(lab, "ben")
    with lab.write() as session:
        accounts.set_membership(session, "ben", "secret", Role.VIEWER)
        session.add(PrivateProject(project="secret", since=1.0, by="ben"))
    with as_person(lab, "eva"), pytest.raises(Denied, match="Only the owner"):
        removal.remove(lab, "ben", 4.0, "ana")
    with acting.acting(rights_of_owner()):
        assert len(removal.remove(lab, "ben", 4.0, "ana")) == 1


def test_run_of_nobody_in_a_hidden_project_is_hidden(lab: Store) -> None:
    run_id = launched(lab, "ben")
    with lab.write() as session:
        session.get_one(Run, run_id).by = None
        session.add(PrivateProject(project="default", since=1.0, by=None))
    with as_person(lab, "ana"), lab.read() as session:
        assert hidden_among(session, [run_id]) == {run_id}
        assert visible_ids(lab, [run_id]) == []
