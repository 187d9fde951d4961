"""The Code tab: where code came from, its files, and what differs from another run; words are never markup."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.snapshots.archive import pack
from dashboard.snapshots.origin import LeftBehind, Origin
from dashboard.snapshots.selection import select
from dashboard.views.run import code as run_code
from dashboard.views.run import compare
from tests.dashboard.checkouts import write
from tests.dashboard.pages import Pages, served, texts

MIB = 1024 * 1024
HOSTILE = "[x](javascript:alert(1)) <b>b<"
ORIGIN = Origin(
    kind="folder", path="/home/ada/vision", host="gpu-1", commit="a1b2c3d4e5" * 4, branch="main", dirty=True,
    left_out=[LeftBehind(name="data/", size_bytes=52 * MIB), LeftBehind(name="far", size_bytes=0, why="outside")],
)  # fmt: skip


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 8)
        yield pages


@pytest.fixture
def launch(pages: Pages, tmp_path: Path) -> Any:
    """Launch code of these files, that many seconds ago; returns the run's id."""

    def launched(label: str, age_s: float, origin: Origin | None = ORIGIN, **files: str | bytes) -> str:
        sha256 = keep(pages, write(tmp_path / f"code{age_s}", **files), origin)
        asked = {"target": "/home/ada/vision", "entry": "train.py", "snapshot": sha256, "gpus_per_node": 1}
        return pages.seed.launch(label, age_s, **asked)

    return launched


def keep(pages: Pages, folder: Path, origin: Origin | None) -> str:
    """Take a snapshot of a folder in."""
    snapshots = pages.service.snapshots
    with snapshots.arriving() as arriving:
        return snapshots._keep(pack(select(folder), arriving / "archive", 10 * MIB), origin).sha256


def opened(pages: Pages, run_id: str, **query: str) -> AppTest:
    """A run's page with its Code tab open."""
    page = pages.open("run", id=run_id, tab="code", **query)
    assert not page.exception
    return page


def said(page: AppTest) -> str:
    return texts(page).replace("\\", "")


def labels(page: AppTest) -> list[str]:
    return [each.label.replace("\\", "").replace("\u2002", " ") for each in page.expander]


def test_code_is_not_read_before_its_tab_is_opened(pages, launch, monkeypatch):
    run_id = launch("one", 10, train_py="1\n")
    monkeypatch.setattr(run_code, "code", lambda run: pytest.fail("read"))
    assert not pages.open("run", id=run_id).exception


def test_where_code_came_from_is_told_with_what_was_left_out(pages, launch):
    page = opened(pages, launch("one", 10, train_py="print('hello')\n"))
    text = said(page)
    assert "/home/ada/vision on gpu-1: main, commit a1b2c3d4e5 with uncommitted changes." in text
    assert "Left out: data/ (52 MiB, ignored by git), far (a link out of the folder)." in text
    run = pages.service.run(pages.seed.runs["one"])
    links = [link.proto.url for link in page.get("link_button")]
    assert f"/api/snapshots/{run.spec.snapshot}/archive" in links
    assert run.spec.snapshot in text
    assert "There is no other run to compare with yet." in text


@pytest.mark.parametrize(
    ("origin", "sentence"),
    [
        (None, "The origin of this code is unknown."),
        (Origin(kind="upload", path="a b.zip"), "a b.zip, uploaded in the browser."),
        (
            Origin(kind="git", url="https://x.org/y.git", ref="v1", commit="c" * 40),
            "https://x.org/y.git: v1, commit cccccccccc.",
        ),
        (Origin(kind="script", path="/x/train.py", host="h"), "/x/train.py on h."),
    ],
)
def test_every_origin_has_its_sentence(pages, launch, origin, sentence):
    assert sentence in said(opened(pages, launch("one", 10, origin, train_py="")))


def test_the_file_that_starts_is_shown_first(pages, launch):
    run_id = launch("one", 10, a_py="other = 1\n", train_py="print('hello')\n")
    page = opened(pages, run_id)
    assert labels(page)[0].startswith("2 files, ") and "hello" not in said(page)
    page.session_state[f"files_{run_id}"] = True
    page.run()
    assert not page.exception
    assert list(page.dataframe[0].value["File"]) == ["a.py", "train.py"]
    assert "print('hello')" in said(page)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\0\1", "This file is binary"),
        (b"", "This file is empty."),
        (b"caf\xe9", "caf\ufffd"),
        (b"x\n" * MIB, "The first"),
    ],
)
def test_a_file_that_is_no_text_or_too_long_is_told(pages, launch, content, sentence):
    run_id = launch("one", 10, train_py=content)
    page = opened(pages, run_id)
    page.session_state[f"files_{run_id}"] = True
    assert sentence in said(page.run()) and not page.exception


def test_it_is_compared_with_the_run_before_that_is_akin(pages, launch):
    launch("older", 300, train_py="lr = 0\n")
    before = launch("before", 200, train_py="lr = 1\n", gone_py="1\n")
    pages.seed.launch("stranger", 150)
    run_id = launch("this", 100, train_py="lr = 2\n", come_py="2\n2\n")
    launch("later", 50, train_py="lr = 3\n")
    page = opened(pages, run_id)
    chosen = page.selectbox(key=f"compare_{run_id}")
    assert chosen.value == before
    assert [option.split(" · ")[0] for option in chosen.options] == ["later", "before", "older", "stranger"]
    assert "The same settings." in said(page)
    assert "3 files differ (1 added, 1 removed, 1 changed)" in said(page)
    assert labels(page)[1:] == [
        "come.py :green[+2]", "gone.py :red[−1]", "train.py :green[+1] :red[−1]",
    ]  # fmt: skip
    assert any(code.value == "@@ -1 +1 @@\n-lr = 1\n+lr = 2" for code in page.code)


def test_settings_that_differ_stand_in_a_table(pages):
    pages.seed.launch("a", 20, lr=0.1, gpus_per_node=1)
    run_id = pages.seed.launch(HOSTILE, 10, lr=0.2, gpus_per_node=2)
    page = opened(pages, run_id)
    text = said(page)
    assert "| Learning rate | 0.1 | 0.2 |" in text and "| World size | 1 | 2 |" in text
    assert "The same code. Both train the recipe language_model that ships with Rankzero." in text
    assert "The recipe language_model, which ships with Rankzero (" in text


def test_phases_of_two_runs_stand_side_by_side(pages):
    for label, data_s in (("a", 0.02), ("b", 0.01)):
        pages.seed.launch(label, 20 if label == "a" else 10, gpus_per_node=1)
        pages.seed.start(label, 5)
        pages.seed.spend(label, 101, data_s=data_s, forward_s=0.03)
    text = said(opened(pages, pages.seed.runs["b"], compare=pages.seed.runs["a"]))
    assert "| Phase | a | This run | Change |" in text
    assert "| Step | 50 ms | 40 ms | −20 % |" in text and "| Waiting for data | 20 ms | 10 ms | −50 % |" in text
    assert "Checkpoints |" not in text


def test_a_comparison_can_be_sent_as_an_address(pages, launch):
    first = launch("a", 300, train_py="1\n")
    launch("b", 200, train_py="2\n")
    run_id = launch("c", 100, train_py="1\n")
    page = pages.open("run", id=run_id, compare=first)
    assert not page.exception and page.selectbox(key=f"compare_{run_id}").value == first
    assert "The same code." in said(page)
    page.selectbox(key=f"compare_{run_id}").set_value(pages.seed.runs["b"]).run()
    assert pages.seed.runs["b"] in page.query_params["compare"]
    assert "1 file differs (1 changed)" in said(page)
    page.selectbox(key=f"compare_{run_id}").set_value(None).run()
    assert "compare" not in page.query_params and "differs" not in said(page)


@pytest.mark.parametrize("named", ["zzzzzzzzzz", "../x", HOSTILE, ""])
def test_an_address_with_no_such_run_falls_back(pages, launch, named):
    first = launch("a", 300, train_py="1\n")
    run_id = launch("b", 100, train_py="1\n")
    page = pages.open("run", id=run_id, compare=named)
    assert not page.exception and page.selectbox(key=f"compare_{run_id}").value == first


def test_code_that_was_not_kept_or_is_gone_is_told(pages, launch):
    in_place = pages.seed.launch("in place", 300, target="/home/ada/vision/train.py", workdir="/home/ada/vision")
    page = opened(pages, in_place)
    assert "ran in place, in /home/ada/vision; its code was not stored." in said(page)
    run_id = launch("gone", 100, train_py="1\n")
    page = opened(pages, run_id, compare=in_place)
    assert f"The code cannot be compared. The code of run {in_place} was not stored." in said(page)
    pages.service.snapshots.path(pages.service.run(run_id).spec.snapshot).unlink()
    assert "is no longer on the server." in said(opened(pages, run_id))


def test_the_runs_to_compare_with_keep_their_text_while_time_passes(pages, launch, monkeypatch):
    """Streamlit takes an option with another text for another choice, and puts it into the address."""
    launch("first", 30, train_py="1\n")
    run_id = launch("second", 20, train_py="2\n")
    page = opened(pages, run_id)
    before, now = page.selectbox(key=f"compare_{run_id}").options, pages.service.clock()
    monkeypatch.setattr(pages.service, "clock", lambda: now + 10)
    assert page.run().selectbox(key=f"compare_{run_id}").options == before


def test_names_and_lines_of_code_are_never_markup(pages, launch):
    odd = os.fsdecode(b"\xff.py")
    before = launch("a", 200, **{"train.py": "1\n", HOSTILE: "1\n", odd: "1\n"})
    run_id = launch("b", 100, Origin(kind="upload", path=HOSTILE), **{"train.py": "<script>\n", HOSTILE: "2\n"})
    page = opened(pages, run_id, compare=before)
    page.session_state[f"files_{run_id}"] = True
    page.run()
    assert not page.exception
    shown = [*page.markdown, *page.caption]
    assert not any("](javascript" in each.value or "<b>" in each.value for each in shown)
    assert not any("](javascript" in each.label or "<b>" in each.label for each in page.expander)
    assert '"377.py" :red[−1]' in labels(page)


def test_hundreds_of_files_are_named_and_the_command_is_given(pages, launch):
    before = launch("a", 200, train_py="", **{f"m{i}.py": "1\n" for i in range(300)})
    run_id = launch("b", 100, train_py="", **{f"m{i}.py": "2\n" * 900 for i in range(300)})
    page = opened(pages, run_id, compare=before)
    assert "300 files differ" in said(page) and len(page.expander) == 1 + compare.MOST_FILES
    assert "270 more files differ:" in said(page)
    assert "The first 400 of 902 lines." in said(page)
    assert any(code.value == f"rankzero diff {before} {run_id}" for code in page.code)


def test_long_lines_are_cut():
    assert compare.within("short\n" + "x" * 50, 10) == "short\n" + "x" * 10 + " …"


@pytest.mark.parametrize(("chosen", "address"), [("b", {}), ("c", {"compare": "c"})])
def test_only_another_choice_than_the_one_drawn_is_written_into_the_address(monkeypatch, chosen, address):
    """A slow browser repeats what it was given, as if somebody had chosen it."""
    session = {"compare_a": chosen, f"compare_a{compare.DRAWN}": "b"}
    page = SimpleNamespace(session_state=session, query_params={})
    monkeypatch.setattr(compare, "st", page)
    compare._put_into_address("compare_a")
    assert page.query_params == address
