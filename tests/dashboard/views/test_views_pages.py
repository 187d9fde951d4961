"""Each page shows what the store says, full, empty and broken, and asks before it does harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from dashboard.components import browser
from dashboard.page_titles import TITLES
from dashboard.service import imports
from dashboard.views import page_list
from dashboard.views.layout import actions, sharing, style
from dashboard.views.run import checkpoints, code, dialogs, ranks, tabs
from dashboard.views.run import run_page as run
from db.attempts import attempt_queries
from db.models import Run, User
from db.runs import run_queries
from db.trouble import Trouble
from domain.imported_runs import ImportedPoints, ImportRequest
from domain.messages import State
from tests.dashboard.pages import Pages, button, links, served, served_full, texts
from tests.dashboard.seeded_store import HOSTILE_NAME

AGAIN = "Launch again with changes"
TABS = ["charts", "logs", "ranks", "checkpoints", "history", "code", "spec"]


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as pages:
        yield pages


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Pages]:
    with served_full(tmp_path / "data") as pages:
        yield pages


def test_every_page_can_be_opened_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_list.st, "Page", lambda page, **named: named)
    listed = {f"/{page.get('url_path', '')}": page["title"] for page in page_list.pages().values()}
    assert listed == TITLES


def state_of(pages: Pages, label: str) -> State:
    run = run_queries.run(pages.service.store, pages.seed.runs[label], pages.service.clock())
    assert run is not None
    return run.state


def table_of(page) -> dict[str, object]:
    """The filters that the table of runs was given."""
    tables = [p for p in page.get("bidi_component") if p.proto.component_name == "rankzero.runs_table"]
    return dict(json.loads(tables[0].proto.json))


def test_runs_are_filtered_by_words_and_states_that_stand_in_the_address(full):
    page = full.open()
    assert not page.exception
    page.session_state["runs_search"] = "gpt"
    page.run()
    assert table_of(page) == {"search": "gpt", "problem": None, "states": [], "project": None}
    assert "gpt" in page.query_params["filter"]
    page.session_state["runs_search"] = "gpt sate:failed"
    page.run()
    problem = {
        "text": "gpt sate:failed",
        "start": 4,
        "end": 8,
        "message": 'There is no field "sate": did you mean state?',
    }
    assert table_of(page) == {"search": "gpt", "problem": problem, "states": [], "project": None}
    page.session_state["runs_search"] = "val/loss<2 score/x>1"
    page.run()
    best = [{"key": "best:val/loss", "first": 1}, {"key": "max:score/x", "first": -1}]
    assert table_of(page)["metrics"] == best, "the best of what is searched"
    shared = full.open(state="failed", project="vision", attention="1")
    of_project = {"metrics": [{"key": "best:val/loss", "first": 1}]}
    filters = {"search": "", "problem": None, "states": ["failed"], "project": "vision"}
    assert table_of(shared) == filters | of_project
    assert shared.query_params["attention"] in ("1", ["1"])  # the table's own filter stays


def test_without_any_run_there_is_nothing_to_filter(empty):
    page = empty.open()
    assert not page.exception and not page.text_input and table_of(page) == {}
    assert not page.button


def test_the_only_run_can_be_brought_back_after_its_deletion(full):
    now = full.service.clock()
    with full.service.store.write() as session:
        session.execute(update(Run).values(deleted_at=now, deleted_by="owner"))
    page = full.open()
    page.button("runs_deleted").click().run()
    assert any(one.label == "Restore" for one in page.button)


def test_a_failed_run_shows_the_failing_ranks_own_words(full):
    page = full.open("run", id=full.seed.runs["bad labels"])
    assert not page.exception
    assert "labels must lie in" in page.code[0].value
    assert "rank 1" in texts(page)
    assert "Resume" in [b.label for b in page.button]


def test_checkpoints_are_links_to_the_servers_own_route(full):
    page = full.open("run", id=full.seed.runs["gpt wide, long warm-up"], tab="checkpoints")
    table = next(m.value for m in page.markdown if "SHA" in m.value)
    links = [f"/api/checkpoints/{i}/file" for i in range(3, 7)]
    assert all(f"[Download]({link})" in table for link in links)
    assert "40\\% received" in table and "/api/checkpoints/7/" not in table
    assert table.count(":blue-badge[latest]") == 1
    assert links[-1] in [link.proto.url for link in page.get("link_button")]


def test_runs_are_exported_by_links_and_ended_ones_as_archives_too(full):
    ended, live = (full.seed.runs[name] for name in ("digits baseline", "nan at once"))
    for runs, formats in ([ended], 5), ([live], 4), ([ended, live], 4):
        page = full.open("compare", runs=",".join(runs)) if len(runs) > 1 else full.open("run", id=runs[0])
        urls = [link.proto.url for link in page.get("link_button") if "/api/export" in link.proto.url]
        assert len(urls) == formats and all(f"runs={'%2C'.join(runs)}&" in url for url in urls)
        assert any(url.endswith("format=archive") for url in urls) == (formats == 5)


def test_newest_checkpoints_are_shown_first(full):
    label = "gpt wide, long warm-up"
    for number in range(30):
        full.seed.checkpoint(label, 500 + number, None)
    page = full.open("run", id=full.seed.runs[label], tab="checkpoints")
    table = next(m.value for m in page.markdown if "SHA" in m.value)
    assert "step\\_000529" in table and table.count("[Download]") == 20
    page.toggle(key="all_checkpoints").set_value(True).run()
    table = next(m.value for m in page.markdown if "SHA" in m.value)
    assert table.count("[Download]") == 34


def test_stop_asks_first_and_names_the_grace(full):
    page = full.open("run", id=full.seed.runs["nan at once"])
    button(page, "Stop").click().run()
    assert "30 s" in texts(page) and "SIGTERM" in texts(page)
    button(page, "Keep it going").click().run()
    assert full.service.run(full.seed.runs["nan at once"]).stop_requested_at is None
    button(page, "Stop").click().run()
    button(page, "Stop the run").click().run()
    assert full.service.run(full.seed.runs["nan at once"]).stop_requested_at is not None


def test_an_ended_run_is_resumed_from_the_checkpoint_chosen(full):
    run_id = full.seed.runs["digits baseline"]
    page = full.open("run", id=run_id)
    button(page, "Resume").click().run()
    assert page.selectbox(key=f"resume_from_{run_id}").options[0].startswith("checkpoints/step_000600.pt · step 600")
    button(page, "Resume it").click().run()
    assert not page.exception
    attempts = attempt_queries.attempts(full.service.store, run_id)
    assert [a.resumed_from for a in attempts] == [None, "checkpoints/step_000600.pt"]


def test_an_imported_run_shows_what_it_logged_and_cannot_be_launched_again(empty):
    request = ImportRequest(
        format="wandb", source="gpu-1:/past/run-abc.wandb", digest="0" * 64, name="wide net", state="failed",
        message="It was killed.", started_at=empty.service.clock(), settings={"config": {"width": 7}},
    )  # fmt: skip
    begun = imports.begin(empty.service, request)
    imports.add_points(empty.service, begun.run_id, ImportedPoints(start=0, series={}, is_last=True))
    page = empty.open("run", id=begun.run_id, tab="spec")
    assert "Imported from gpu" in texts(page) and "| width | 7 |" in texts(page) and "None" not in texts(page)
    assert [tab.label for tab in page.tabs] == ["Charts", "History", "Spec"]
    assert [each.label for each in page.button] == ["Make a link"]
    assert page.menu_button(key=f"more_{begun.run_id}").options == [run.EDIT, run.DELETE]
    assert AGAIN not in links(page)
    shown = empty.service.run(begun.run_id)
    assert (shown.imported_from, shown.state, shown.attention) == ("wandb", State.FAILED, None)


def test_delete_is_for_ended_runs_only(full):
    live = full.open("run", id=full.seed.runs["nan at once"])
    live.menu_button(key=f"more_{full.seed.runs['nan at once']}").click(run.DELETE).run()
    assert "Stop it first" in texts(live) and "Delete the run" not in [b.label for b in live.button]
    page = full.open("run", id=full.seed.runs["bad labels"])
    page.menu_button(key=f"more_{full.seed.runs['bad labels']}").click(run.DELETE).run()
    assert "in which it can be restored" in texts(page)
    button(page, "Delete the run").click().run()
    assert run_queries.run(full.service.store, full.seed.runs["bad labels"], 0) is None
    (deleted,) = full.service.deletions.deleted()
    assert deleted.id == full.seed.runs["bad labels"]
    listed = full.open("runs")
    button(listed, "Deleted").click().run()
    button(listed, "Restore").click().run()
    assert run_queries.run(full.service.store, deleted.id, 0) is not None


def test_a_run_is_deleted_for_good_where_the_disk_is_to_be_freed(full):
    page = full.open("run", id=full.seed.runs["bad labels"])
    page.session_state[f"{dialogs.AT_ONCE}_{full.seed.runs['bad labels']}"] = (
        True  # a browser runs the dialog alone again once this is checked
    )
    page.menu_button(key=f"more_{full.seed.runs['bad labels']}").click(run.DELETE).run()
    button(page, "Delete for good").click().run()
    assert full.service.deletions.deleted() == []
    assert run_queries.run(full.service.store, full.seed.runs["bad labels"], 0) is None


def test_a_run_is_edited_and_a_wrong_tag_is_explained(full):
    run_id = full.seed.runs["bad labels"]
    page = full.open("run", id=run_id)
    for tags in ('paper b"', "paper b"):
        page.menu_button(key=f"more_{run_id}").click(run.EDIT).run()
        page.text_input(key=f"edit_name_{run_id}").set_value("good labels")
        page.text_input(key=f"edit_tags_{run_id}").set_value(tags)
        page.text_area(key=f"edit_note_{run_id}").set_value("**why**")
        button(page, "Save").click().run()
        if '"' in tags:  # a browser runs the dialog alone again, which shows this
            assert "a tag has 1 to 64 characters" in page.session_state[actions.DIALOG]
    edited = run_queries.run(full.service.store, run_id, 0)
    assert (edited.name, edited.tags, edited.note) == ("good labels", ["b", "paper"], "**why**")


@pytest.mark.parametrize(
    ("asked", "opened"),
    [
        ({}, ["Charts"]),
        ({"tab": "history"}, ["History"]),
        ({"tab": "Spec"}, ["Spec", "Commands"]),
        ({"tab": "x"}, ["Charts"]),
    ],
)
def test_the_tab_in_the_address_is_open_and_no_other_is_built(full, monkeypatch, asked, opened):
    built = []
    for module, name in ((run, "live_charts"), (run, "log_view"), (ranks, "ranks"), (code, "code"),
                         (checkpoints, "checkpoints"), (tabs, "history"), (tabs, "commands"),
                         (tabs, "specification")):  # fmt: skip
        monkeypatch.setattr(module, name, lambda *_, name=name: built.append(name))
    page = full.open("run", id=full.seed.runs["nan at once"], **asked)
    assert not page.exception
    assert [tab.label for tab in page.tabs] == [tab.capitalize() for tab in TABS]
    assert page.session_state["run_tab"] == opened[0]
    assert built == [{"Charts": "live_charts", "Spec": "specification"}.get(o, o.lower()) for o in opened]


@pytest.mark.parametrize("run_id", ["", "zzzzzzzzzz", "[x](javascript:alert(1))", "../../etc"])
def test_an_unknown_run_is_a_calm_message_with_a_way_back(full, run_id):
    page = full.open("run", id=run_id)
    assert not page.exception
    assert links(page) == {"All runs": "./"}


@pytest.mark.parametrize("tab", TABS)
def test_a_name_that_is_markup_is_shown_as_text_everywhere(full, tab):
    page = full.open("run", id=full.seed.runs[HOSTILE_NAME], tab=tab)
    page.menu_button(key=f"more_{full.seed.runs[HOSTILE_NAME]}").click(run.DELETE).run()
    assert not page.exception
    assert all("](javascript" not in m.value and "<b>" not in m.value for m in page.markdown)


def test_run_page_shows_each_nodes_command(full):
    page = full.open("run", id=full.seed.runs["nan at once"], tab="spec")
    words = ["Python 3.11.9", "torch 2.13.0+cu126", "CUDA 12.6", "NCCL 2.27.5", "/opt/env/bin/python"]
    captions = [caption.value.replace("\\", "") for caption in page.caption]
    assert any(" · ".join(words) in caption for caption in captions), captions


def test_a_start_in_progress_stands_above_the_history_and_not_in_it_too(full):
    live = full.open("run", id=full.seed.runs["just launched"], tab="history")
    assert not live.exception and not live.expander and "No first step" not in texts(live)


def test_live_run_alone_is_waited_for_without_rank_figures(full):
    live = full.open("run", id=full.seed.runs["just launched"], tab="ranks")
    assert "Each rank appears here with its first step" in texts(live).replace("\\", "")
    ended = full.open("run", id=full.seed.runs["digits baseline"], tab="ranks")
    assert "No optimizer step of any rank was seen" in texts(ended)


@pytest.mark.parametrize("address", page_list.SHOWN)
def test_a_store_that_cannot_be_read_is_one_sentence(full, address, monkeypatch):
    def broken():
        raise OperationalError("SELECT", {}, Exception("unable to open database file"))

    monkeypatch.setattr(full.service.store, "read", broken)
    page = full.open(address, id=full.seed.runs["nan at once"])
    assert not page.exception
    assert len(page.error) == 1 and "The store cannot be reached" in page.error[0].value


@pytest.mark.parametrize("tab", ["charts", "ranks", "checkpoints", "history", "commands"])
def test_a_store_that_goes_away_while_a_run_is_shown_is_one_sentence(full, tab, monkeypatch):
    run = full.service.run(full.seed.runs["nan at once"])

    def broken():
        raise OperationalError("SELECT", {}, Exception("unable to open database file"))

    monkeypatch.setattr(full.service, "find_run", lambda run_id: run)
    monkeypatch.setattr(full.service.store, "read", broken)
    page = full.open("run", id=run.id, tab=tab)
    assert not page.exception
    assert len(page.error) == 1 and "The store cannot be reached" in page.error[0].value


@pytest.mark.parametrize(
    "error", [OperationalError("SELECT", {}, Exception("no such table")), OSError("Input/output error")]
)
def test_unreadable_tab_says_so_itself(full, error, monkeypatch):
    def broken(*_):
        raise error

    monkeypatch.setattr("db.ranks.ranks.ranks", broken)
    page = full.open("run", id=full.seed.runs["nan at once"], tab="ranks")
    assert not page.exception
    assert len(page.error) == 1 and "The store cannot be reached" in page.error[0].value


def test_every_page_says_that_the_dashboards_disk_is_full(empty, monkeypatch):
    assert not empty.open().error
    monkeypatch.setattr(empty.service.files, "_reserve_bytes", 2**62)
    for page in ("", "launch", "nodes"):
        assert "nearly full" in empty.open(page).error[0].value


@pytest.mark.parametrize("trouble", list(Trouble), ids=lambda trouble: trouble.name)
def test_every_page_says_why_nothing_can_be_stored_and_what_to_do(empty, trouble):
    empty.service.store.trouble = trouble
    for page in ("", "launch", "nodes"):
        assert empty.open(page).error[0].value.startswith(trouble)
    empty.service.store.trouble = None
    assert not empty.open().error


def test_a_page_is_one_fragment_without_a_timer_of_streamlits():
    """One of several may take the last messages of another, a timer outlives its page: both leave pages empty."""
    views = Path(page_list.__file__).parent
    texts = {path.name: path.read_text(encoding="utf-8") for path in views.rglob("*.py")}
    assert [name for name, text in texts.items() if "run_every=" in text] == []
    assert [name for name, text in texts.items() if "@visitor.fragment" in text] == ["whole_page.py"]


@pytest.mark.parametrize(
    ("address", "every_s"),
    [("", None), ("launch", None), ("alerts", 3), ("studies", 5), ("people", 15), ("nodes?node=gpu-1", 3)],
)
def test_a_page_is_drawn_again_as_often_as_its_quickest_part_asks(full, address, every_s, monkeypatch):
    asked = []
    monkeypatch.setattr(browser, "refresh", lambda every_s, trouble: asked.append((every_s, trouble)))
    page, _, query = address.partition("?")
    full.open(page, **dict(pair.split("=") for pair in query.split("&") if pair))
    assert asked == [(every_s, "")]


def test_a_page_with_a_banner_looks_whether_its_reason_lasts(empty, monkeypatch):
    asked = []
    monkeypatch.setattr(browser, "refresh", lambda every_s, trouble: asked.append(every_s))
    monkeypatch.setattr(empty.service.files, "_reserve_bytes", 2**62)
    assert len(empty.open().error) == 1
    monkeypatch.setattr(style, "_why_away", lambda: OSError("Input/output error"))
    assert len(empty.open().error) == 1
    assert asked == [style.LOOK_AT_DISK_S, style.ASK_AGAIN_S]


def test_the_browser_hears_of_another_trouble_than_the_page_shows(empty, monkeypatch):
    shown = []
    monkeypatch.setattr(browser, "refresh", lambda every_s, trouble: shown.append(trouble))
    empty.service.store.trouble = Trouble.LOCKED
    empty.open()
    assert shown == [Trouble.LOCKED]


def test_a_shared_link_of_a_loopback_address_asks_for_the_one_for_others(full, monkeypatch):
    monkeypatch.setattr(sharing, "_origin", lambda: "http://127.0.0.1:8765")
    page = full.open("run", id=full.seed.runs["nan at once"])
    page = page.button(key=f"share_make_{full.seed.runs['nan at once']}").click().run()
    assert any("Only this machine can open" in one.value and "--host" in one.value for one in page.warning)
    page = page.text_input(key="share_origin").set_value("https://rz.example.com/").run()
    assert any(code.value.startswith("https://rz.example.com/shared/") for code in page.code)


def test_mine_is_offered_once_several_people_are_here(full):
    assert [each.key for each in full.open("runs").button_group if each.key == "runs_mine"] == []
    with full.service.store.write() as session:
        session.add(User(name="ana", role="member", created_at=1.0))
    page = full.open("runs", mine="1")
    (mine,) = (each for each in page.button_group if each.key == "runs_mine")
    assert mine.value == ["Mine"] and page.query_params["mine"] in ("1", ["1"])
    assert table_of(page)["search"] == "by:me" and table_of(page)["has_people"]


def test_mine_knows_who_has_never_launched(full):
    with full.service.store.write() as session:
        session.add(User(name="ana", role="member", created_at=1.0))
    assert table_of(full.open("runs", mine="1"))["has_launched"] is False
    assert "has_launched" not in table_of(full.open("runs"))
    with full.service.store.write() as session:  # a deleted run is one, too
        session.execute(update(Run).where(Run.id == full.seed.runs["nan at once"]).values(by="owner", deleted_at=1.0))
    assert "has_launched" not in table_of(full.open("runs", mine="1"))
