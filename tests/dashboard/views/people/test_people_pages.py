"""The Account, People and Audit pages, for whoever may and for whoever may not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update
from streamlit.testing.v1 import AppTest

from dashboard.service import service
from dashboard.views.people import people_page
from dashboard.views.people.account_page import DAY_S, FEW_TOKENS
from dashboard.views.people.people_page import FEW
from db import acting
from db.models import AccessToken
from db.nodes.node_reports import register_node
from db.people import access_tokens, audit
from db.runs import run_requests
from domain.messages import State
from domain.people.rights import NOBODY, Rights, rights_of_owner
from domain.people.roles import Role, Scope
from domain.people.tokens import BudgetView, TokenWanted
from domain.spec import RunSpec
from tests.dashboard.pages import Pages, button, served
from tests.dashboard.persons import person
from tests.db.cluster import facts


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as opened, acting.acting(rights_of_owner()):
        visited_by(opened, rights_of_owner())
        yield opened


@pytest.fixture
def lab(pages: Pages) -> Pages:
    person(pages.service, "ana", Role.MEMBER)
    person(pages.service, "eva", Role.ADMIN)
    return pages


def visited_by(pages: Pages, rights: Rights) -> None:
    """Let the pages that are opened from now on be this person's."""
    service.use(pages.service, lambda: acting.enter(rights))


def plain(page: AppTest) -> str:
    return words(page).replace("\\", "")


def words(page: AppTest) -> str:
    return "\n".join(str(one.value) for one in (*page.markdown, *page.caption, *page.title, *page.code))


def test_invitation_is_a_link_shown_once(lab: Pages) -> None:
    page = lab.open("people")
    page.text_input("invite_email").set_value("new@lab.example").run()
    page.button("invite_make").click().run()
    assert [one.value for one in page.code if "/invite/" in one.value]
    (invitation,) = [one for one in lab.service.people.invitations() if one.email == "new@lab.example"]
    page.button(f"invitation_{invitation.id}").click().run()
    assert not page.code
    assert not lab.open("people").code


def test_invitation_to_a_project_that_nothing_names_says_so_below_its_link(lab: Pages) -> None:
    lab.service.people.set_role("ana", "viewer", "vision")
    page = lab.open("people")
    page.text_input("invite_email").set_value("new@lab.example").run()
    typed = page.selectbox("invite_project")
    typed.options.append("visoin")  # AppTest types none into a field of choices
    typed.set_value("visoin")
    page.button("invite_make").click().run()
    assert [one.value for one in page.code if "/invite/" in one.value]
    assert "No run is in project 'visoin' (did you mean vision?)" in words(page).replace("\\", "")


def test_new_password_link_is_shown_once(lab: Pages) -> None:
    page = lab.open("people")
    page.button("person_link_ana").click().run()
    assert [one.value for one in page.code if "/invite/" in one.value]
    assert [one.user for one in lab.service.people.invitations()] == ["ana"]
    assert not [one for one in page.button if one.key == "person_link_owner"]


def test_refused_invitation_says_why(lab: Pages) -> None:
    page = lab.open("people")
    page.text_input("invite_email").set_value("nobody").run()
    page.button("invite_make").click().run()
    assert "email must be an address" in page.error[0].value.replace("\\", "")


def test_role_is_changed_where_it_is_shown(lab: Pages) -> None:
    page = lab.open("people")
    page.selectbox("role_ana_").set_value("admin").run()
    assert lab.service.people.user("ana").role is Role.ADMIN
    assert page.selectbox("role_ana_").value == "admin"


def test_many_people_are_searched(lab: Pages) -> None:
    assert not any(one.key == "people_find" for one in lab.open("people").text_input)
    person(lab.service, "p00", None, vision=Role.ADMIN)
    for number in range(1, 30):
        person(lab.service, f"p{number:02d}", Role.VIEWER)
    page = lab.open("people")
    assert f"{FEW} of 33 people." in words(page)
    assert "Search for the others." in words(page)
    page.text_input("people_find").set_value("VISION none").run()
    assert [one.key for one in page.selectbox if one.key.startswith("role_") and one.key.endswith("_")] == ["role_p00_"]
    assert "1 of 33 people." in words(page)


def test_owner_and_oneself_keep_their_role(lab: Pages) -> None:
    keys = {one.key for one in lab.open("people").selectbox}
    assert "role_owner_" not in keys and "role_eva_" in keys


def test_project_is_made_private_and_gets_a_member(lab: Pages) -> None:
    lab.service.people.set_role("ana", "viewer", "vision")
    page = lab.open("people")
    page.selectbox("people_project").set_value("vision").run()
    page.toggle("project_private_vision").set_value(True).run()
    assert "vision: 1 person (eva) loses sight of the project." in words(page).replace("\\", "")
    assert not projects_that_are_private(lab), "it asks first"
    button(page, "Make it private").click().run()
    assert projects_that_are_private(lab) == ["vision"]
    assert "owner" not in page.selectbox("member_name_vision").options
    assert "By their role everywhere: owner." in words(page)
    page.selectbox("member_name_vision").set_value("eva").run()
    page.button("member_add_vision").click().run()
    assert {one.name: one.role for one in lab.service.people.members("vision")}["eva"] is Role.MEMBER


def projects_that_are_private(pages: Pages) -> list[str]:
    return [one.name for one in pages.service.people.projects() if one.is_private]


@pytest.fixture
def two_projects(lab: Pages) -> Pages:
    lab.service.people.set_role("ana", "viewer", "default")
    lab.service.people.set_role("ana", "viewer", "lab-secret")
    lab.service.people.set_privacy("lab-secret", True)
    return lab


def test_choosing_a_private_project_makes_no_other_private(two_projects: Pages) -> None:
    page = two_projects.open("people")
    assert page.toggle("project_private_default").value is False
    page.selectbox("people_project").set_value("lab-secret").run()
    assert page.toggle("project_private_lab-secret").value is True
    assert "project_private_default" not in {one.key for one in page.toggle}
    assert projects_that_are_private(two_projects) == ["lab-secret"]


def test_click_that_meets_the_choice_of_another_project_is_of_the_project_that_was_shown(two_projects: Pages) -> None:
    page = two_projects.open("people")
    page.selectbox("people_project").set_value("lab-secret")
    page.toggle("project_private_default").set_value(True).run()  # both arrive in one message
    assert projects_that_are_private(two_projects) == ["lab-secret"], "it asks first"
    assert "default: 1 person (eva) loses sight of the project." in words(page).replace("\\", "")
    button(page, "Make it private").click().run()
    assert projects_that_are_private(two_projects) == ["default", "lab-secret"]


def test_opening_a_project_asks_nothing(two_projects: Pages) -> None:
    page = two_projects.open("people")
    page.selectbox("people_project").set_value("lab-secret").run()
    page.toggle("project_private_lab-secret").set_value(False).run()
    assert projects_that_are_private(two_projects) == []


def test_project_that_nobody_else_sees_is_made_private_without_a_question(pages: Pages) -> None:
    with acting.acting(rights_of_owner()):
        person(pages.service, "ben", None)
        pages.service.people.set_role("ben", "viewer", "vision")
    page = pages.open("people")
    page.toggle("project_private_vision").set_value(True).run()
    assert projects_that_are_private(pages) == ["vision"]


def test_lower_role_is_asked_about_with_what_is_lost(two_projects: Pages) -> None:
    page = two_projects.open("people")
    page.selectbox("role_ana_").set_value("viewer").run()
    assert two_projects.service.people.user("ana").role is Role.MEMBER
    assert "ana is now a member of all projects that are not private, and would be a viewer." in plain(page)
    button(page, "Change it").click().run()
    assert two_projects.service.people.user("ana").role is Role.VIEWER
    page = two_projects.open("people")
    page.selectbox("role_ana_default").set_value("none").run()
    assert "would be without a role" in plain(page)
    button(page, "Keep it").click().run()
    assert page.selectbox("role_ana_default").value == "viewer"


def launched_by(pages: Pages, name: str, project: str = "default", title: str = "train") -> str:
    """A queued run of that person."""
    rights = pages.service.identities.rights(name)
    assert rights is not None
    with acting.acting(rights):
        spec = RunSpec(target="image_classifier", gpus_per_node=1, project=project, name=title)
        return run_requests.submit(pages.service.store, spec, pages.service.clock())


@pytest.mark.parametrize("fate", ["keep", "stop", "give"])
def test_removing_a_person_asks_what_becomes_of_live_runs(lab: Pages, fate: str) -> None:
    register_node(lab.service.store, facts(), None, lab.service.clock())
    run_id = launched_by(lab, "ana")
    page = lab.open("people")
    fates = {"keep": people_page.KEEP_RUNS, "stop": people_page.STOP_RUNS, "give": people_page.GIVE_RUNS}
    page.session_state["person_runs_ana"] = fates[fate]  # a browser runs the dialog alone again once it is chosen
    page.button("person_remove_ana").click().run()
    assert "ana has 1 live run." in plain(page)
    page.button("confirm_person_ana").click().run()
    assert "ana" not in {one.name for one in lab.service.people.users()}
    run = lab.service.run(run_id)
    assert run.by == ("eva" if fate == "give" else "ana")
    assert (run.state is State.STOPPED) is (fate == "stop")


def test_audit_says_in_words_what_was_done(lab: Pages) -> None:
    lab.service.people.set_role("ana", "none")
    lab.service.sessions.begin("ana", "token")
    with acting.acting(NOBODY):
        audit.record_refused_sign_in(lab.service.store, "eve")
    text = words(lab.open("audit")).replace("\\", "")
    assert "person ana :gray[without a role]" in text and ":gray[with the token printed at start]" in text
    assert "somebody" in text and "dashboard" not in text, "who was refused is nobody of ours"


def test_others_are_told_who_invites(lab: Pages) -> None:
    visited_by(lab, Rights("ana", everywhere=Role.MEMBER))
    page = lab.open("people")
    assert "given roles, by **eva** and **owner**" in words(page)
    assert not page.button and not page.text_input


def test_token_is_shown_once_and_revoked(lab: Pages) -> None:
    page = lab.open("account")
    page.text_input("token_name").set_value("ci")
    button(page, "Make a token").click().run()
    assert [one.value for one in page.code if one.value.startswith("rz_")]
    assert "rz_" not in words(lab.open("account"))
    page.button("token_ci").click().run()
    assert len(lab.service.access_tokens.own()) == 1, "it asks first"
    button(page, "Revoke it").click().run()
    assert lab.service.access_tokens.own() == []


def test_token_with_a_budget_shows_what_is_left_of_it(lab: Pages) -> None:
    page = lab.open("account")
    page.text_input("token_name").set_value("agent")
    page.selectbox("token_scope").set_value(Scope.MCP)
    for key, value in (("token_budget", 20.0), ("token_devices", 2.0), ("token_longest", 2.0)):
        page.number_input(key).set_value(value)
    button(page, "Make a token").click().run()
    assert not page.exception and not page.error
    (made,) = lab.service.access_tokens.own()
    assert made.budget == BudgetView(72_000.0, 2, 7_200.0)
    assert "at most 2 devices at a time, 2 h a run" in words(page).replace("\\", "")
    assert page.number_input("token_budget").value is None, "the next one is made without"
    assert [bar.proto.text for bar in page.get("progress")] == ["0 of 20 device-hours used"]


def test_bounds_without_a_budget_are_refused_beside_the_form(lab: Pages) -> None:
    page = lab.open("account")
    page.text_input("token_name").set_value("agent")
    page.number_input("token_devices").set_value(2.0)
    button(page, "Make a token").click().run()
    assert "enter device-hours, too" in page.error[0].value.replace("\\", "")
    assert lab.service.access_tokens.own() == []


def make_token(pages: Pages, name: str, lasts_s: float, age_s: float = 0.0) -> None:
    """Give the owner a token that was made so long ago."""
    made_at = pages.service.clock() - age_s
    access_tokens.make(pages.service.store, "owner", TokenWanted(name, Scope.READ, None, lasts_s), name, made_at)


def test_expired_token_says_so_beside_a_new_one_of_the_same_name(lab: Pages) -> None:
    make_token(lab, "ci", DAY_S, age_s=2 * DAY_S)
    with lab.service.store.write() as session:
        session.execute(update(AccessToken).values(secret_hash="earlier"))
    make_token(lab, "ci", DAY_S)
    page = lab.open("account")
    assert not page.exception
    assert sum("until 20" in one.value for one in page.caption) == 1
    assert sum("expired 24 h ago" in one.value for one in page.caption) == 1
    assert [one.key for one in page.button if one.label == "Revoke"] == ["token_ci"]


def test_many_tokens_do_not_push_the_rest_of_the_page_away(lab: Pages) -> None:
    for number in range(FEW_TOKENS + 3):
        make_token(lab, f"ci-{number}", DAY_S)
    page = lab.open("account")
    assert sum(one.label == "Revoke" for one in page.button) == FEW_TOKENS
    page.button("tokens_more").click().run()
    assert sum(one.label == "Revoke" for one in page.button) == FEW_TOKENS + 3


def test_saving_says_what_has_changed(lab: Pages) -> None:
    page = lab.open("account")
    button(page, "Save").click().run()
    assert "Nothing has changed." in words(page)
    page.text_input("account_email").set_value("owner@lab.example")
    button(page, "Save").click().run()
    assert "Your address is saved." in words(page) and "password is set" not in words(page)


def test_password_too_short_is_refused_with_the_rule(lab: Pages) -> None:
    page = lab.open("account")
    page.text_input("account_email").set_value("owner@lab.example")
    page.text_input("account_new").set_value("short")
    button(page, "Save").click().run()
    assert "at least 10 characters" in page.error[0].value


def test_audit_page_shows_who_did_what(lab: Pages) -> None:
    lab.service.people.set_role("ana", "viewer", "vision")
    page = lab.open("audit")
    text = words(page).replace("\\", "")
    assert "| owner | role changed | person ana" in text
    page.selectbox("audit_action").set_value("launched").run()
    assert "role changed" not in words(page)


def test_audit_page_denies_with_a_sentence(lab: Pages) -> None:
    visited_by(lab, Rights("ana", everywhere=Role.MEMBER))
    text = words(lab.open("audit"))
    assert "only admins can" in text and "| When" not in text


def test_bar_of_one_person_alone_asks_nothing_new(pages: Pages) -> None:
    page = pages.open()
    assert not any("ana" in one.label for one in page.get("popover"))
    assert any("Sign out" in str(one.body) for one in page.get("html"))
