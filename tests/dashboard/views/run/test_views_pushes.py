"""Pushes on the Run page: the form, a push under way, and how one ended."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from db.attempts import attempt_queries
from db.checkpoints import checkpoint_reports
from domain.checkpoint_use.tasks import CheckpointTaskReport, CheckpointTaskView, TaskKind
from domain.messages import CheckpointOffer
from tests.dashboard.pages import Pages, button, served, texts

RUN = "pushed"
TOKEN = "hf_a-token-of-somebody"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    """A run with a checkpoint of safetensors, and a secret."""
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        pages.seed.launch(RUN, 100, gpus_per_node=1)
        pages.seed.start(RUN, 90)
        store(pages, "work/model.safetensors", b"weights")
        pages.service.secrets.set("HF_TOKEN", TOKEN)
        yield pages


def attempt_of(pages: Pages) -> Any:
    (attempt,) = attempt_queries.attempts(pages.service.store, pages.seed.runs[RUN])
    return attempt


def store(pages: Pages, path: str, content: bytes) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    offer = CheckpointOffer(path=path, size_bytes=len(content), sha256=sha256, written_at=1.0)
    node_id, fence = pages.seed.node_ids["gpu-1"], attempt_of(pages).fence
    row = checkpoint_reports.offered(pages.service.store, node_id, fence, 0, offer, 2.0)
    checkpoint_reports.received(pages.service.store, row.id, len(content))
    checkpoint_reports.completed(pages.service.store, row.id, 2.0)
    pages.service.files.checkpoint(row.id).write_bytes(content)


def opened(pages: Pages) -> AppTest:
    return pages.open("run", id=pages.seed.runs[RUN], tab="checkpoints")


def pushes(pages: Pages) -> list[CheckpointTaskView]:
    return pages.service.checkpoint_tasks.of_run(pages.seed.runs[RUN], TaskKind.PUSH)


def push(pages: Pages, place: str = "lab/digits") -> AppTest:
    page = opened(pages)
    page.text_input(key="push_place_hf").set_value(place).run()
    return button(page, "Push").click().run()


def shown(markdown: str) -> str:
    """The characters that Markdown shows."""
    return markdown.replace("\\", "").replace("\u2060", "")


def report(pages: Pages, task: CheckpointTaskView, state: str, **more: Any) -> None:
    told = CheckpointTaskReport.model_validate({"state": state, **more})
    pages.service.checkpoint_tasks.reported(pages.seed.node_ids["gpu-1"], attempt_of(pages).fence, task.id, told)


def test_a_push_is_asked_for_followed_and_ends_with_its_address(pages: Pages) -> None:
    page = push(pages)
    (task,) = pushes(pages)
    assert (task.options["target"], task.options["visibility"]) == ("hf:lab/digits", "private")
    assert task.options["secrets"]["HF_TOKEN"]["name"] == "HF_TOKEN"
    report(pages, task, "running", doing="sends model.safetensors", done_bytes=1, total_bytes=4)
    (bar,) = page.run().get("progress")
    text = shown(bar.proto.text)
    assert text == "Push of work/model.safetensors to hf:lab/digits: node gpu-1 sends model.safetensors: 1 of 4 B"
    result = {"url": "https://hub/lab/digits", "files": 2, "bytes": 2048, "sent_bytes": 9, "notes": ["It is *so*."]}
    report(pages, task, "succeeded", result=result)
    page.run()
    said = shown(page.success[0].value)
    assert said == "work/model.safetensors is at https://hub/lab/digits: 2 files, 2 KiB. It is *so*."
    assert TOKEN not in texts(page)


def test_a_failure_is_said_with_its_target(pages: Pages) -> None:
    page = push(pages)
    report(pages, pushes(pages)[0], "failed", message="hf:lab/digits is public.")
    said = shown(page.run().warning[0].value)
    assert said == "work/model.safetensors to hf:lab/digits: hf:lab/digits is public."


def test_a_wrong_place_is_refused_and_nothing_is_asked(pages: Pages) -> None:
    page = push(pages, "one two")
    assert "must be hf:ORG/NAME" in shown(page.toast[0].value) and pushes(pages) == []


def test_a_bucket_asks_for_both_keys_and_offers_no_public(pages: Pages) -> None:
    pages.service.secrets.set("LAB_ID", "an-id-of-the-lab")
    page = opened(pages)
    assert page.checkbox(key="push_public").label == "Public"
    page.radio(key="push_kind").set_value("s3").run()
    assert [box.label for box in page.selectbox if box.label.startswith("AWS_")] == [
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
    ]  # fmt: skip
    assert "push_public" not in [box.key for box in page.checkbox]
    page.text_input(key="push_place_s3").set_value("models/digits").run()
    page.selectbox(key="push_secret_AWS_ACCESS_KEY_ID").set_value("LAB_ID").run()
    page.selectbox(key="push_secret_AWS_SECRET_ACCESS_KEY").set_value("HF_TOKEN").run()
    button(page, "Push").click().run()
    secrets = pushes(pages)[0].options["secrets"]
    assert {name: secret["name"] for name, secret in secrets.items()} == {
        "AWS_ACCESS_KEY_ID": "LAB_ID", "AWS_SECRET_ACCESS_KEY": "HF_TOKEN",
    }  # fmt: skip
