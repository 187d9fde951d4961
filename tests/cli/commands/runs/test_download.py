"""What `rankzero download` fetches, continues and refuses."""

from __future__ import annotations

import hashlib

import pytest

from tests.cli.documents import document
from tests.dashboard.fake_dashboard import CHECKPOINT, CONTENT, SHA256


def test_download_takes_the_latest_complete_checkpoint(rankzero, fake, tmp_path) -> None:
    newer = CHECKPOINT | {"id": 8, "complete": False, "latest": False, "created_at": 1_900_000_000.0}
    fake.checkpoints.insert(0, newer)
    assert document(rankzero("download", "abcdefghij", "--json")) == {
        "path": str(tmp_path / "step100.pt"),
        "sha256": SHA256,
    }
    assert (tmp_path / "step100.pt").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["step100.pt"]


def test_a_broken_download_goes_on_where_it_stopped(rankzero, fake, tmp_path) -> None:
    fake.cut_after = 1_000_000
    assert rankzero("download", "abcdefghij", "step100.pt", "-o", str(tmp_path / "my.pt"))[0] == 0
    assert (tmp_path / "my.pt").read_bytes() == CONTENT
    assert fake.ranges == [None, "bytes=1000000-"]


def test_a_download_begun_by_an_earlier_command_is_continued(rankzero, fake, tmp_path) -> None:
    (tmp_path / f".step100.pt.{SHA256[:12]}.part").write_bytes(CONTENT[:4096])
    assert rankzero("download", "abcdefghij")[0] == 0
    assert fake.ranges == ["bytes=4096-"]
    assert hashlib.sha256((tmp_path / "step100.pt").read_bytes()).hexdigest() == SHA256


def test_wrong_bytes_are_deleted_and_said(rankzero, fake, tmp_path) -> None:
    fake.content = CONTENT[:-1] + b"!"
    code, out, err = rankzero("download", "abcdefghij")
    assert (code, out) == (1, "") and "SHA-256" in err and "deleted" in err
    assert fake.ranges == [None, None]
    assert list(tmp_path.iterdir()) == []


def test_one_wrong_byte_of_an_earlier_part_is_fetched_again_from_the_start(rankzero, fake, tmp_path) -> None:
    (tmp_path / f".step100.pt.{SHA256[:12]}.part").write_bytes(b"!" + CONTENT[1:4096])
    assert rankzero("download", "abcdefghij")[0] == 0
    assert fake.ranges == ["bytes=4096-", None]
    assert [path.name for path in tmp_path.iterdir()] == ["step100.pt"]
    assert (tmp_path / "step100.pt").read_bytes() == CONTENT


def test_more_bytes_than_promised_are_not_taken(rankzero, fake, tmp_path) -> None:
    fake.content = CONTENT + b"!"
    code, _, err = rankzero("download", "abcdefghij")
    assert code == 1 and "more than" in err
    assert not (tmp_path / "step100.pt").exists()


def test_another_file_of_that_name_is_kept_unless_named(rankzero, fake, tmp_path) -> None:
    (tmp_path / "step100.pt").write_text("mine")
    code, _, err = rankzero("download", "abcdefghij")
    assert code == 1 and "-o PATH" in err and (tmp_path / "step100.pt").read_text() == "mine"
    assert rankzero("download", "abcdefghij", "-o", "step100.pt")[0] == 0
    assert rankzero("download", "abcdefghij")[1].count("already exists") == 1
    assert len(fake.ranges) == 1


@pytest.mark.parametrize(
    "name", ["../../evil.pt", "..", "/etc/passwd", "a\\..\\b", "\x1b]0;x\x07.pt", "." * 9, "x" * 999]
)
def test_a_checkpoints_name_cannot_lead_elsewhere(rankzero, fake, tmp_path, name) -> None:
    fake.checkpoints[0]["name"] = name
    assert rankzero("download", "abcdefghij")[0] == 0
    (written,) = list(tmp_path.iterdir())
    assert written.read_bytes() == CONTENT and written.name.isprintable()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"complete": False}, "is not complete yet"), ({"name": "other.pt"}, "no checkpoint 'step100.pt'")],
)
def test_refused_download_says_why(rankzero, fake, change, words) -> None:
    fake.checkpoints[0] |= change
    code, _, err = rankzero("download", "abcdefghij", "step100.pt")
    assert code == 1 and words in err
