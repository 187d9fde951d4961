"""The actions of the Run page: what a run does not have is not offered."""

from __future__ import annotations

from tests.dashboard.pages import served


def test_tensorboard_is_offered_once_there_are_event_files(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 2)
        pages.seed.launch("a", 100, gpus_per_node=1)
        pages.seed.start("a", 90)

        def is_offered() -> bool:
            page = pages.open("run", id=pages.seed.runs["a"])
            return any("/tensorboard/" in link.proto.url for link in page.get("link_button"))

        assert not is_offered()
        pages.seed.file(pages.service.files, "a", "work/runs/events.out.tfevents.1.host", b"x")
        assert is_offered()
