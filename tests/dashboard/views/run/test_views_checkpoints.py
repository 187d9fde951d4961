"""The Run page's checkpoints: what is said of each, and merges: asked for, followed, cancelled, proven."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from db.checkpoints import checkpoint_reports
from db.models import Node
from db.runs import run_queries
from domain.checkpoint_use.tasks import CheckpointTaskView
from tests.dashboard.pages import Pages, button, texts
from tests.dashboard.views.run.checkpoint_pages import RUN, pages, report, store

__all__ = ["pages"]
PROOF = {"tensors": 2, "sums": {"method": "crc32", "equal": 2}, "samples": {"tensors": 2, "parts": 2, "bytes": 1024}}


def opened(pages: Pages) -> AppTest:
    return pages.open("run", id=pages.seed.runs[RUN], tab="checkpoints")


def merges(pages: Pages) -> list[CheckpointTaskView]:
    return pages.service.checkpoint_tasks.of_run(pages.seed.runs[RUN])


def test_a_merge_is_asked_for_followed_and_cancelled(pages: Pages) -> None:
    store(pages, "work/step_1.pt", b"weights", "module.")
    page = opened(pages)
    assert ":gray-badge[DDP prefix]" in texts(page).replace("\\", "")
    assert "merged/step_1.safetensors" in texts(page).replace("\\", "")
    page.radio(key="merge_format").set_value("hf").run()
    assert "merged/step_1-hf.tar" in texts(page).replace("\\", "")
    button(page, "Merge").click().run()
    (task,) = merges(pages)
    assert (task.name, task.options) == ("work/step_1.pt", {"format": "hf"})
    report(pages, task, "running", doing="reads tensors", done_bytes=1, total_bytes=4)
    page.run()
    (bar,) = page.get("progress")
    assert (bar.proto.value, bar.proto.text.replace("\\", "")) == (
        25, "Merge of work/step_1.pt: node gpu-1 reads tensors: 1 of 4 B",
    )  # fmt: skip
    button(page, "Cancel").click().run()
    report(pages, task, "cancelled")
    assert not page.run().get("progress") and merges(pages)[0].state == "cancelled"


def test_a_refusal_of_the_program_is_said_until_another_merge_is_asked_for(pages: Pages) -> None:
    store(pages, "work/list.pt", b"[1, 2]")
    button(opened(pages), "Merge").click().run()
    report(pages, merges(pages)[0], "failed", message="It does not contain a *dictionary*.")
    page = opened(pages)
    assert page.warning[0].value.replace("\\", "") == "work/list.pt: It does not contain a *dictionary*."
    button(page, "Merge").click().run()
    assert not page.warning


def test_why_no_node_can_merge_is_said(pages: Pages) -> None:
    store(pages, "work/step_1.pt", b"weights")
    page = opened(pages)
    with pages.service.store.write() as session:
        session.get_one(Node, pages.seed.node_ids["gpu-1"]).info = {}
    button(page, "Merge").click().run()
    assert "upgrade it" in page.toast[0].value and merges(pages) == []


def test_what_was_merged_names_its_source_and_shows_its_proof(pages: Pages) -> None:
    store(pages, "work/step_1.pt", b"weights", "module.")
    task = pages.service.checkpoint_tasks.merge(1, "safetensors")
    store(pages, "merged/step_1.safetensors", b"merged", task_id=task.id)
    report(pages, task, "succeeded", result={"tensors": 2, "bytes": 2048, "proof": PROOF}, merged_id=2)
    page = opened(pages)
    said = texts(page).replace("\\", "")
    assert ":gray-badge[merged from step_1.pt]" in said and said.count("badge[latest]") == 1
    assert "**merged/step_1.safetensors** 2 tensors, 2 KiB; 2 checksums agree with the shards, 1 KiB read" in said
    assert page.selectbox(key="merge_of").options == ["work/step_1.pt · latest · DDP prefix"]


def test_a_folder_says_how_it_is_unpacked(pages: Pages) -> None:
    store(pages, "work/out/checkpoint-5.tar", b"archive")
    page = opened(pages)
    assert any("tar -xf" in caption.value for caption in page.caption)
    assert "merged/out/checkpoint-5.tar" in texts(page).replace("\\", "")


def test_checkpoint_that_never_arrived_differs_from_one_being_sent(pages: Pages) -> None:
    store(pages, "work/a.pt", b"0123456789", received=0.4)
    assert "40\\% received" in texts(opened(pages))
    pages.seed.report(RUN, "failed", 10)
    page = opened(pages)
    assert "never completed" in texts(page) and "Merge" not in [b.label for b in page.button]


def test_without_checkpoints_the_page_says_what_would_count(pages: Pages) -> None:
    assert any("No checkpoint yet." in caption.value for caption in opened(pages).caption)


def test_why_a_checkpoint_waits_is_said(pages: Pages) -> None:
    store(pages, "work/step_1.pt", b"weights and more", received=0.5)
    sentence = "The bucket training cannot be reached (EndpointConnectionError)."
    assert checkpoint_reports.troubled(pages.service.store, 1, sentence, 3.0)
    assert not checkpoint_reports.troubled(pages.service.store, 1, sentence, 4.0)
    page = opened(pages)
    assert "50% received, waiting" in texts(page).replace("\\", "")
    (warning,) = page.warning
    assert warning.value.replace("\\", "").startswith(sentence)
    history = run_queries.history(pages.service.store, pages.seed.runs[RUN])
    assert [line.text for line in history].count(f"checkpoint work/step_1.pt waits: {sentence}") == 1


def test_where_nothing_tells_which_files_are_one_checkpoint_the_page_asks(pages: Pages) -> None:
    for path in ("work/best.pt", "work/optimizer.pt"):
        store(pages, path, path.encode())
    pages.seed.report(RUN, "failed", 10)
    run_id = pages.seed.runs[RUN]
    page = opened(pages)
    assert [info.value for info in page.info if "unclear" in info.value]
    assert ":gray-badge[only a part]" in texts(page) and ":blue-badge[latest]" not in texts(page)
    page.button(key=f"resume_{run_id}").click().run()
    choice = page.selectbox(key=f"resume_from_{run_id}")
    assert choice.value is None and "Resume it" not in [one.label for one in page.button]
    assert [option.partition(" · ")[2] for option in choice.options] == ["", "only a part"]
