"""The form says what code is kept, refuses what cannot be, and launches an earlier run's code as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.snapshots.git_address import CodeRefused
from db.runs import run_queries
from domain.spec import RunSpec
from tests.dashboard.checkouts import commit, write
from tests.dashboard.pages import Pages, button, served, texts, with_advanced


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as opened:
        opened.seed.node("here", 2, kind="cpu")
        yield opened


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = write(tmp_path / "code", **{"train_py": "print(1)\n", "model_py": "", ".gitignore": "data\n"})
    write(folder, data__x="y" * 2048)
    commit(folder)
    return folder


def source(page: AppTest, name: str) -> AppTest:
    return page.segmented_control(key="launch_source").set_value(name).run()


def fill(page: AppTest, **values: str) -> AppTest:
    for name, value in values.items():
        page.text_input(key=f"launch_{name}").set_value(value)
    return page.run()


def said_on(page: AppTest) -> str:
    """All texts of the page without Markdown's escapes."""
    return texts(page).replace("\\", "")


def newest(pages: Pages) -> RunSpec:
    return run_queries.runs(pages.service.store, pages.service.clock())[0].spec


def test_a_script_says_what_is_kept_and_is_launched_with_it(pages, code):
    page = fill(source(pages.open("launch"), "Script"), script=str(code / "train.py"))
    said = said_on(page)
    assert f"Stored with the run: 3 files, 14 B of {code} (main, commit" in said
    assert f"data/ (2 KiB) is ignored by git and not in the snapshot; the link data={code}/data" in said
    assert page.code[-1].value.endswith("<run-dir>/work/train.py")
    button(page, "Launch").click().run()
    assert pages.service.snapshots.find(newest(pages).snapshot).files == 3


def test_a_folder_asks_what_to_start(pages, code):
    page = fill(source(pages.open("launch"), "Script"), script=str(code))
    assert "is a folder; name the file or module to start in it" in said_on(page)
    page = fill(page, entry="../x.py")
    assert "lies outside of" in said_on(page)
    page = fill(page, entry="train.py")
    assert not button(page, "Launch").disabled and "Stored with the run: 3 files" in said_on(page)


def test_an_address_that_is_not_taken_is_refused_below_it(pages):
    page = fill(source(pages.open("launch"), "Git"), git_url="https://me:s3cret@example.org/a", entry="a.py")
    assert "A git address must not hold a user's name or password" in said_on(page)
    assert button(page, "Launch").disabled
    page = fill(page, git_url="https://example.org/a", ref="--upload-pack=x")
    assert "cannot be the name of a branch, tag or commit" in said_on(page)
    page = fill(page, ref="v1")
    assert "The dashboard clones it at launch" in texts(page) and not button(page, "Launch").disabled


@pytest.mark.parametrize("choice", ["as it was", "as it is now"])
def test_launch_again_offers_the_code_as_it_was_and_as_it_is_now(pages, code, choice):
    spec = RunSpec(target=str(code / "train.py"))
    first = pages.service.run(pages.service.launch(spec))
    write(code, train_py="print(2)\n")
    page = pages.open("launch", **{"from": first.id})
    assert f"From {code}/train.py, main, commit" in said_on(page)
    page = page.segmented_control(key="launch_code_as").set_value(choice).run()
    assert ("uncommitted changes" in texts(page)) == (choice == "as it is now")
    button(page, "Launch").click().run()
    assert (newest(pages).snapshot == first.spec.snapshot) == (choice == "as it was")
    assert newest(pages).entry == "train.py"


def test_the_code_as_it_was_outlives_its_source(pages, code, tmp_path):
    first = pages.service.run(pages.service.launch(RunSpec(target=str(code), entry="train.py")))
    code.rename(tmp_path / "moved")
    page = pages.open("launch", **{"from": first.id})
    assert not button(page, "Launch").disabled
    button(page, "Launch").click().run()
    assert (newest(pages).snapshot, newest(pages).entry) == (first.spec.snapshot, "train.py")
    page = pages.open("launch", **{"from": first.id})
    page = page.segmented_control(key="launch_code_as").set_value("as it is now").run()
    assert "does not exist on the dashboard" in texts(page)


def test_a_run_in_place_says_that_its_code_is_not_kept(pages, code):
    form = with_advanced(source(pages.open("launch"), "Script"))
    page = fill(form, script=str(code / "train.py"), workdir=str(code))
    assert "the code is not stored with the run" in texts(page)


def test_an_empty_upload_asks_for_a_file(pages):
    page = source(pages.open("launch"), "Upload")
    assert not page.exception and "choose a script or an archive" in texts(page)
    assert button(page, "Launch").disabled


def test_a_lock_that_the_code_lacks_is_refused_at_its_field(pages, code):
    page = with_advanced(fill(source(pages.open("launch"), "Script"), script=str(code / "train.py")))
    page = fill(page, environment="lock")
    assert said_on(page).count("There is no uv.lock, pylock.toml or requirements.txt in the run's code") == 2
    assert button(page, "Launch").disabled
    with pytest.raises(CodeRefused, match="environment: There is no gpu"):
        pages.service.launch(RunSpec(target=str(code / "train.py"), environment="gpu.txt"))
