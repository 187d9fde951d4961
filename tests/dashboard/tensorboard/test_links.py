"""The links by which TensorBoard finds a run's event files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.tensorboard.process import arrange, event_links
from domain.views import FileView
from tests.dashboard.tensorboard.event_files import EVENT


def file(number: int, path: str, attempt: int = 1, node_rank: int = 0, generation: int = 0) -> FileView:
    return FileView(number, attempt, node_rank, path, generation, size_bytes=1)


def test_files_are_named_as_the_script_named_them_with_attempts_apart() -> None:
    files = [
        file(1, f"work/{EVENT}"),
        file(2, f"work/runs/a b/{EVENT}", attempt=2),
        file(3, f"workdir/lightning_logs/version_0/{EVENT}"),
        file(4, "logs/rank0.out"),
        file(5, "work/tfevents/model.pt"),
        file(6, "logs/tfevents.out"),
    ]
    assert event_links(files, nodes=1) == {
        f"attempt 1/{EVENT}": 1,
        f"attempt 1/lightning_logs/version_0/{EVENT}": 3,
        f"attempt 2/runs/a b/{EVENT}": 2,
    }


def test_nodes_are_apart_where_there_are_several() -> None:
    files = [file(1, f"work/{EVENT}"), file(2, f"work/{EVENT}", node_rank=1)]
    assert event_links(files, nodes=2) == {f"attempt 1/node 0/{EVENT}": 1, f"attempt 1/node 1/{EVENT}": 2}


def test_a_file_begun_anew_comes_after_what_it_held_before() -> None:
    links = event_links([file(8, f"work/{EVENT}", generation=k) for k in (0, 2, 10)], nodes=1)
    assert sorted(links) == [f"attempt 1/{EVENT}{end}" for end in ("", ".000002", ".000010")]


@pytest.mark.parametrize(
    "path",
    [
        f"../../../{EVENT}", f"/etc/{EVENT}", f"work/../../{EVENT}", f"work/{'x' * 5000}/{EVENT}", f"a//./{EVENT}",
        f"work/a\nb\0c/{EVENT}", "work/" + "d/" * 500 + EVENT, f"work/{'é' * 200}{EVENT}", "work/\udc80tfevents",
    ],
)  # fmt: skip
def test_no_name_leads_out_of_the_folder(path: str, tmp_path: Path) -> None:
    target = tmp_path / "17"
    target.write_text("events")
    links = event_links([file(17, path)], nodes=1)
    arrange(tmp_path / "events", dict.fromkeys(links, target))
    made = [path for path in tmp_path.rglob("*") if path.is_symlink()]
    assert [link.readlink() for link in made] == [target]
    assert made[0].is_relative_to(tmp_path / "events" / "attempt 1")
    assert "tfevents" in made[0].name


def test_names_that_become_one_are_kept_apart() -> None:
    links = event_links([file(1, f"work/a\x01/{EVENT}"), file(2, f"work/a\x02/{EVENT}")], nodes=1)
    assert sorted(links.values()) == [1, 2]


def test_links_come_and_go_with_the_files(tmp_path: Path) -> None:
    target = tmp_path / "1"
    target.touch()
    arrange(
        tmp_path / "events",
        {"a/tfevents.1": target, "a/tfevents.1/tfevents.2": target, "b/c": tmp_path / "gone"},
    )
    arrange(tmp_path / "events", {"a/tfevents.1": target, "c/tfevents.1": target})
    shown = {str(p.relative_to(tmp_path / "events")) for p in tmp_path.rglob("*") if p.is_symlink()}
    assert shown == {"a/tfevents.1", "c/tfevents.1"}
