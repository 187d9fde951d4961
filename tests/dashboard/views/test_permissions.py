"""What a person may not do is not offered, or shown disabled with the reason; and no page shows what is hidden."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from dashboard.service import service
from dashboard.views.layout import permissions
from dashboard.views.page_list import SHOWN
from dashboard.views.people.no_role import OPEN_PAGES
from db.models import Run
from domain.people.rights import Denied, Rights, rights_of_owner
from domain.people.roles import Role
from tests.dashboard.pages import Pages, button, links, served_full, texts, visited_by
from tests.dashboard.persons import person

VIEWER = Rights("vic", everywhere=Role.VIEWER)
MEMBER = Rights("mia", everywhere=Role.MEMBER)
OUTSIDER = Rights("out", everywhere=Role.ADMIN, private=frozenset({"vision"}))
GUEST = Rights("gus", in_projects=MappingProxyType({"vision": Role.MEMBER}))
LOWER = "You are a viewer of project default: only members can stop this. Ask an admin of project default."
FOREIGN = "It belongs to owner: only they and an admin of project default may stop this."


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Pages]:
    with served_full(tmp_path / "data") as pages:
        with pages.service.store.write() as session:
            session.execute(update(Run).values(by="owner"))
        yield pages


def opened(pages: Pages, rights: Rights, page: str = "", **query: str) -> AppTest:
    with visited_by(pages, rights):
        test = pages.open(page, **query)
    assert not test.exception
    return test


def plain(text: str) -> str:
    """Markdown as it is read."""
    return text.replace("\\", "")


@pytest.mark.parametrize(("rights", "reason"), [(VIEWER, LOWER), (MEMBER, FOREIGN), (rights_of_owner(), None)])
def test_run_is_acted_on_by_its_person_and_admins_alone(full: Pages, rights: Rights, reason: str | None) -> None:
    page = opened(full, rights, "run", id=full.seed.runs["gpt wide, long warm-up"])
    stop = button(page, "Stop")
    assert (stop.disabled, plain(stop.help) or None) == (reason is not None, reason)
    assert button(page, "Make a link") is not None
    ended = opened(full, rights, "run", id=full.seed.runs["digits baseline"])
    assert button(ended, "Resume").disabled is (reason is not None)


def test_viewer_is_told_whom_to_ask_in_place_of_the_forms(full: Pages) -> None:
    sentence = "You are a viewer of this installation: only members can launch. Ask an admin"
    launch = opened(full, VIEWER, "launch")
    assert sentence in plain(texts(launch)) and not launch.button
    assert sentence in plain(texts(opened(full, VIEWER, "alerts")))
    assert not any(address.startswith("launch") for address in links(opened(full, VIEWER, "studies")).values())
    assert "Here that is owner." in plain(texts(launch))
    guest = Rights("gil", in_projects=MappingProxyType({"vision": Role.VIEWER}))
    shown = plain(texts(opened(full, guest, "launch")))
    assert "You are a viewer of project vision: only members can launch" in shown and "Here that is" not in shown
    assert opened(full, MEMBER, "launch").button


def test_address_of_a_deleted_run_leads_back_to_it_where_the_visitor_may(full: Pages) -> None:
    run_id = full.seed.runs["bad labels"]
    full.service.delete(run_id)
    assert "it may have been deleted" in plain(texts(opened(full, VIEWER, "run", id=run_id)))
    member = opened(full, MEMBER, "run", id=run_id)
    assert "deleted just now" in texts(member) and button(member, "Restore").disabled
    page = opened(full, rights_of_owner(), "run", id=run_id)
    assert [one.value for one in page.title] == ["This run was deleted"] and "**bad labels**" in texts(page)
    with visited_by(full, rights_of_owner()):
        button(page, "Restore").click().run()
    assert full.service.find_run(run_id) is not None


def test_who_lost_a_role_is_told_so_of_what_they_have_seen_and_nobody_else(full: Pages) -> None:
    run_id, left = full.seed.runs["bad labels"], Rights("gus", in_projects=MappingProxyType({"speech": Role.VIEWER}))
    for page, query in (("run", {"id": run_id}), ("project", {"name": "vision"})):
        seen = opened(full, GUEST, page, **query)
        with visited_by(full, left):
            seen.run()
        assert [one.value for one in seen.title] == ["You no longer have a role here"], page
        assert "deleted" not in texts(seen)
        assert "role" not in texts(opened(full, left, page, **query)), page


def test_project_offers_a_launch_to_those_who_may(full: Pages) -> None:
    for rights, is_offered in ((VIEWER, False), (MEMBER, True)):
        addresses = links(opened(full, rights, "project", name="default")).values()
        assert any(address.startswith("launch") for address in addresses) is is_offered


def test_pages_show_nothing_of_a_private_project(full: Pages) -> None:
    hidden = full.seed.runs["bad labels"]
    assert "ValueError" in texts(opened(full, rights_of_owner(), "run", id=hidden))
    for page, query in (("run", {"id": hidden}), ("project", {"name": "vision"}), ("compare", {"runs": hidden})):
        shown = texts(opened(full, OUTSIDER, page, **query))
        assert "bad labels" not in shown and "ValueError" not in shown, page
    runs = opened(full, OUTSIDER)
    assert "vision" not in runs.selectbox(key="runs_project").options
    assert opened(full, GUEST).selectbox(key="runs_project").options == ["vision"]


@pytest.mark.parametrize("rights", [VIEWER, MEMBER])
def test_forged_click_on_a_disabled_button_changes_nothing(full: Pages, rights: Rights) -> None:
    with visited_by(full, rights):
        service.act_for_visitor()
        current = service.current()
        for act in (
            lambda: current.health.ask_test("gpu-1"),
            lambda: current.health.release("gpu-1"),
            lambda: current.preflights.ask(None, False),
            lambda: current.drain("gpu-1"),
            lambda: current.stop(full.seed.runs["nan at once"]),
            lambda: current.resume(full.seed.runs["bad labels"]),
            current.join_tokens.every,
        ):
            with pytest.raises(Denied):
                act()


def test_page_gets_the_service_only_while_it_acts_for_its_visitor(full: Pages) -> None:
    with visited_by(full, VIEWER), ThreadPoolExecutor(1) as thread:  # a new one has entered nobody's rights
        for ask in (service.current, permissions.visitor):
            with pytest.raises(RuntimeError, match="Nobody's rights were entered"):
                thread.submit(ask).result()
        thread.submit(service.act_for_visitor).result()
        assert thread.submit(service.current).result() is full.service
        assert thread.submit(permissions.visitor).result() == VIEWER


@pytest.mark.parametrize("page", sorted(SHOWN.keys() - OPEN_PAGES))
def test_a_visitor_without_a_role_reads_whom_to_ask_on_every_page(full: Pages, page: str) -> None:
    shown = opened(full, Rights("new"), page)
    assert [one.value for one in shown.title] == ["You have no role"]
    assert "roles are given by **owner**" in texts(shown) and not shown.button


def test_whoever_has_no_role_yet_still_has_an_account_and_sees_the_page_once_they_have_one(full: Pages) -> None:
    person(full.service, "new")
    assert "Secrets" in [one.value for one in opened(full, Rights("new"), "account").header]
    assert "no role" not in str(opened(full, GUEST).title)


@pytest.mark.parametrize(("rights", "project"), [(MEMBER, "default"), (GUEST, "vision")])
def test_launch_form_proposes_a_project_to_launch_in(full: Pages, rights: Rights, project: str) -> None:
    assert opened(full, rights, "launch").text_input(key="launch_project").value == project


def test_whoever_has_no_role_is_shown_no_node(full: Pages) -> None:
    with visited_by(full, Rights("new")):
        service.act_for_visitor()
        assert service.current().nodes() == []
