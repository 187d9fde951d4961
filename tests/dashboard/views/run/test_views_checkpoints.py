"""The Run page's checkpoints: what is said of each, and another form of one, prepared and linked."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from db.attempts import attempt_queries
from db.checkpoints import checkpoint_reports
from db.runs import run_queries
from domain.messages import CheckpointOffer
from tests.dashboard.pages import Pages, button, served, texts
from tests.end_to_end.product import wait_for

torch = pytest.importorskip("torch")
RUN = "wrapped"


def saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        pages.seed.launch(RUN, 100, gpus_per_node=1)
        pages.seed.start(RUN, 90)
        yield pages


def store(pages: Pages, path: str, content: bytes, prefix: str | None = None, received: float = 1.0) -> None:
    """A checkpoint on the server, or on its way."""
    (attempt,) = attempt_queries.attempts(pages.service.store, pages.seed.runs[RUN])
    offer = CheckpointOffer(
        path=path,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        written_at=1.0,
        prefix=prefix,
    )
    node_id = pages.seed.node_ids["gpu-1"]
    row = checkpoint_reports.offered(pages.service.store, node_id, attempt.fence, 0, offer, 2.0)
    checkpoint_reports.received(pages.service.store, row.id, int(received * len(content)))
    if received == 1.0:
        checkpoint_reports.completed(pages.service.store, row.id, 2.0)
        pages.service.files.checkpoint(row.id).write_bytes(content)


def opened(pages: Pages) -> AppTest:
    return pages.open("run", id=pages.seed.runs[RUN], tab="checkpoints")


def links(page: AppTest) -> list[str]:
    """The addresses of checkpoints in another form."""
    urls = [link.proto.url for link in page.get("link_button")]
    return [url for url in urls if url.startswith("/api/checkpoints/") and "?" in url]


@pytest.mark.long
def test_a_prefix_is_shown_and_taken_off(pages: Pages) -> None:
    store(pages, "work/step_1.pt", saved({"model": {"module.w": torch.ones(2)}, "step": 1}), "module.")
    page = opened(pages)
    assert ":gray-badge[DDP prefix]" in texts(page).replace("\\", "")
    assert links(page) == []
    (tensors,) = (box for box in page.checkbox if box.label == "As safetensors")
    tensors.check().run()
    button(page, "Prepare the file").click().run()
    wait_for(lambda: links(page.run()), "the link")
    assert links(page) == ["/api/checkpoints/1/file?prefix=strip&format=safetensors"]
    said = "1 tensor of 'model' is in it, the names lost the prefix module."
    assert said in texts(page).replace("\\", "")


@pytest.mark.long
def test_why_there_can_be_no_other_form_is_said_once_and_not_tried_again(pages: Pages) -> None:
    store(pages, "work/list.pt", saved([1, 2]))
    page = opened(pages)
    (tensors,) = (box for box in page.checkbox if box.label == "As safetensors")
    tensors.check().run()
    button(page, "Prepare the file").click().run()
    wait_for(lambda: page.run().warning, "the sentence")
    assert "It does not contain a dictionary" in page.warning[0].value
    page.run()
    assert links(page) == [] and page.warning


def test_a_folder_says_how_it_is_unpacked(pages: Pages) -> None:
    store(pages, "work/out/checkpoint-5.tar", b"archive")
    page = opened(pages)
    assert any("tar -xf" in caption.value for caption in page.caption)
    assert all(box.disabled for box in page.checkbox if box.label in ("As safetensors", "Without a prefix"))
    assert button(page, "Prepare the file").disabled


def test_checkpoint_that_never_arrived_differs_from_one_being_sent(pages: Pages) -> None:
    store(pages, "work/a.pt", b"0123456789", received=0.4)
    assert "40\\% received" in texts(opened(pages))
    pages.seed.report(RUN, "failed", 10)
    page = opened(pages)
    assert "never completed" in texts(page) and "Prepare the file" not in [b.label for b in page.button]


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
