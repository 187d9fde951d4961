"""A server's answers as a worker of another version reads them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from domain.messages import NodeLoad
from domain.spec import RunSpec
from worker.session.answers import read_desired_state
from worker.session.server_session import Notices

ASSIGNMENT = {
    "run_id": "abcdefghij", "attempt": 1, "fence": 7, "node_rank": 0, "action": "run", "devices": ["cpu:0"],
    "device_kind": "cpu", "spec": RunSpec(target="train.py").model_dump(mode="json"),
}  # fmt: skip


def read_answer(*assignments: dict, **more):
    return read_desired_state({"version": "1", "assignments": list(assignments)} | more)


def test_fields_that_are_not_known_are_ignored_at_every_depth() -> None:
    younger = {**ASSIGNMENT, "spec": ASSIGNMENT["spec"] | {"sharding": "both"}, "colour": "red"}
    younger["resume_from"] = {
        "checkpoint_id": 1, "name": "a", "sha256": "0", "size_bytes": 1, "download_path": "/", "codec": "zstd",
    }  # fmt: skip
    answer = read_answer(younger, weather="fine")
    assert [one.fence for one in answer.assignments] == [7]
    assert answer.unreadable == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"spec": ASSIGNMENT["spec"] | {"strategy": "zero3"}}, "spec.strategy"),
        ({"action": "pause"}, "action"),
        ({"fence": None}, "fence"),
    ],
)
def test_one_that_cannot_be_read_is_skipped_and_told_and_the_others_count(change, field) -> None:
    answer = read_answer(ASSIGNMENT | change, ASSIGNMENT | {"fence": 8}, "nonsense")
    assert [one.fence for one in answer.assignments] == [8]
    unreadable, nonsense = answer.unreadable
    assert "run abcdefghij" in unreadable and f"({field}: " in unreadable and "upgrade the older one" in unreadable
    assert "cannot read an assignment" in nonsense


def test_a_list_that_is_none_is_no_answer_of_the_server() -> None:
    for answer in ({"version": "1"}, {"version": "1", "assignments": {}}):
        with pytest.raises(ValidationError):
            read_desired_state(answer)


def test_the_api_for_people_stays_strict() -> None:
    with pytest.raises(ValidationError):
        RunSpec.model_validate({"target": "train.py", "colour": "red"})


def test_notices_are_said_with_every_load_until_they_end() -> None:
    notices = Notices()
    notices.replace("unreadable", ["One.", "Two."])
    assert notices.add_to(NodeLoad(notice="Disk.")).notice == "Disk. One. Two."
    notices.replace("unreadable", [])
    assert notices.add_to(NodeLoad()).notice is None
