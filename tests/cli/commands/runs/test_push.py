"""What `rankzero checkpoint push` chooses, asks for, shows and returns."""

from __future__ import annotations

from typing import Any

import pytest

from cli.server import checkpoint_tasks
from tests.cli.documents import document
from tests.dashboard.fake_dashboard import CHECKPOINT

RUN = "abcdefghij"
MERGED = CHECKPOINT | {"id": 9, "name": "merged/step100.safetensors", "latest": False, "merged_from": 7}
ASKED = {"to": "hf:lab/digits", "public": False, "secrets": [], "as_saved": False}


def task(state: str, **more: Any) -> dict[str, Any]:
    about = {"id": 3, "node": "gpu-3", "name": MERGED["name"], "doing": "sends", "done_bytes": 1, "total_bytes": 4}
    return about | {"state": state, "message": None, "result": None} | more


RESULT = {"url": "https://hub/lab/digits", "files": 2, "bytes": 2048, "sent_bytes": 1024, "notes": ["README.md stays."]}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_tasks, "POLL_S", 0.0)


def test_the_newest_merged_one_is_pushed_and_followed_to_its_end(rankzero, fake) -> None:
    fake.checkpoints.append(MERGED)
    fake.tasks = [task("waiting"), task("running"), task("succeeded", result=RESULT)]
    code, out, _ = rankzero("checkpoint", "push", RUN, "--to", "hf:lab/digits")
    assert code == 0 and out == (
        "merged/step100.safetensors is at https://hub/lab/digits: 2 files, 2 KiB, of which 1 KiB were sent. "
        "README.md stays.\n"
    )
    assert ("POST", "/api/checkpoints/9/push") in fake.asked and fake.bodies == [ASKED]


def test_its_document_has_address_and_size(rankzero, fake) -> None:
    fake.checkpoints.append(MERGED)
    fake.tasks = [task("succeeded", result=RESULT)]
    assert document(rankzero("checkpoint", "push", RUN, "--to", "hf:lab/digits", "--json")) == {
        "id": 3, "state": "succeeded", "url": "https://hub/lab/digits", "files": 2, "bytes": 2048,
    }  # fmt: skip


def test_as_saved_takes_the_latest_that_the_training_saved(rankzero, fake) -> None:
    fake.checkpoints.append(MERGED)
    fake.tasks = [task("waiting")]
    options = ["--as-saved", "--public", "--secret", "LAB_TOKEN", "--no-wait"]
    assert rankzero("checkpoint", "push", RUN, "--to", "hf:lab/digits", *options)[0] == 0
    assert ("POST", "/api/checkpoints/7/push") in fake.asked
    assert fake.bodies == [ASKED | {"public": True, "secrets": ["LAB_TOKEN"], "as_saved": True}]


def test_a_failed_push_is_one_sentence_and_code_1(rankzero, fake) -> None:
    fake.tasks = [task("failed", message="hf:lab/digits is public: push to another repository, or with --public.")]
    code, out, err = rankzero("checkpoint", "push", RUN, "step100.pt", "--to", "hf:lab/digits")
    assert (code, out) == (1, "") and err.strip().endswith("push to another repository, or with --public.")
