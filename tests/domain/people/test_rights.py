"""What roles, scopes and private projects allow, and the sentences with which the rest is denied."""

from __future__ import annotations

import pytest

from domain.people.rights import PROGRAM, Denied, Rights, rights_of_owner
from domain.people.roles import Action, Role, Scope

ANA = Rights("ana", everywhere=Role.MEMBER, in_projects={"lab": Role.ADMIN}, private=frozenset({"lab", "secret"}))
IVO = Rights("ivo", everywhere=Role.VIEWER, private=frozenset({"lab", "secret"}))


@pytest.mark.parametrize(
    ("rights", "action", "project", "owner", "is_allowed"),
    [
        (IVO, Action.SEE, "open", "ana", True),
        (IVO, Action.LAUNCH, "open", None, False),
        (IVO, Action.SEE, "secret", None, False),
        (ANA, Action.LAUNCH, "open", None, True),
        (ANA, Action.ACT, "open", "ana", True),
        (ANA, Action.ACT, "open", "ivo", False),
        (ANA, Action.ACT, "open", None, False),
        (ANA, Action.ACT, "lab", "ivo", True),
        (ANA, Action.MANAGE, "lab", None, True),
        (ANA, Action.MANAGE, "open", None, False),
        (ANA, Action.OPERATE, None, None, False),
        (rights_of_owner(), Action.OPERATE, None, None, True),
        (PROGRAM, Action.ACT, "secret", "ana", True),
    ],
)
def test_role_and_ownership_decide(
    rights: Rights, action: Action, project: str | None, owner: str | None, is_allowed: bool
) -> None:
    assert rights.may(action, project, owner) is is_allowed


def test_private_project_without_membership_is_hidden() -> None:
    assert ANA.hidden == {"secret"} and IVO.hidden == {"lab", "secret"} and not rights_of_owner().hidden
    assert not IVO.sees("lab") and ANA.sees("lab") and IVO.sees("open")


def test_token_is_bound_by_its_scope_and_project() -> None:
    token = Rights("ana", "token ci", Role.ADMIN, scope=Scope.LAUNCH, only_project="open")
    assert token.may(Action.LAUNCH, "open") and not token.may(Action.LAUNCH, "other")
    assert not token.sees("other")
    with pytest.raises(Denied, match=r"The scope of token ci is launch: it may not act on this\. .*--scope act"):
        token.check(Action.ACT, "open", "ana")
    assert not token.may(Action.SEE, None)


FOR_AGENTS = (Action.SEE, Action.SEE_DELETED, Action.LAUNCH, Action.STOP, Action.STEER)


@pytest.mark.parametrize(("action", "is_allowed"), [(action, action in FOR_AGENTS) for action in Action])
def test_agents_token_does_what_is_for_agents_to_what_it_made_and_nothing_else(
    action: Action, is_allowed: bool
) -> None:
    agent = Rights("ana", "token agent", Role.ADMIN, scope=Scope.MCP, token_id="a1")
    assert (agent.refusal(action, "open", "ana", "a1") is None) is is_allowed
    assert (agent.scope_refusal(action) is None) is is_allowed


@pytest.mark.parametrize("made_with", [None, "b2"])
@pytest.mark.parametrize("action", [Action.STOP, Action.STEER])
def test_agents_token_acts_on_nothing_else_of_its_person(action: Action, made_with: str | None) -> None:
    agent = Rights("ana", "token agent", Role.ADMIN, private=frozenset({"lab"}), scope=Scope.MCP, token_id="a1")
    for project in ("open", "lab"):  # the second is hidden, so ana may only stop what is hers there
        refusal = agent.refusal(action, project, "ana", made_with)
        assert refusal is not None and ("not made with token agent" in refusal or project == "lab")
    more = Rights("ana", "token agent", Role.MEMBER, scope=Scope.ACT, token_id="a1")
    assert more.may(action, "open", "ana", made_with)


def test_token_of_more_scope_is_not_advised_where_the_role_is_too_low() -> None:
    token = Rights("ivo", "token ci", Role.VIEWER, scope=Scope.READ)
    for refusal in (token.refusal(Action.LAUNCH, "open"), token.refusal_anywhere(Action.LAUNCH)):
        assert refusal is not None and refusal.startswith("You are a viewer of ")
    assert "The scope of token ci" in str(
        Rights("ana", "token ci", Role.MEMBER, scope=Scope.READ).refusal_anywhere(Action.LAUNCH)
    )


def test_refusal_anywhere_sends_nobody_to_the_admin_of_one_project() -> None:
    several = Rights("ivo", everywhere=Role.MEMBER, in_projects={"lab": Role.MEMBER}, private=frozenset({"lab"}))
    assert (several.refusal_anywhere(Action.MANAGE) or "").startswith("Your highest role is member: only admins")
    one = Rights("ivo", in_projects={"lab": Role.MEMBER})
    assert (one.refusal_anywhere(Action.MANAGE) or "").endswith("Ask an admin of project lab.")


def test_refused_launch_names_the_projects_to_launch_in() -> None:
    ivo = Rights("ivo", in_projects={"nlp": Role.MEMBER, "speech": Role.MEMBER, "vision": Role.VIEWER})
    assert (ivo.refusal(Action.LAUNCH, "default") or "").endswith("project default. You may launch in nlp and speech.")
    assert "You may" not in (ivo.refusal(Action.ACT, "vision", "ivo") or "")
    bound = Rights("ivo", "token ci", in_projects=ivo.in_projects, only_project="vision")
    assert "You may" not in (bound.refusal(Action.LAUNCH, "vision") or "")


def test_denial_says_the_role_and_who_gives_it() -> None:
    with pytest.raises(Denied, match=r"You are a viewer of project open: only members can launch\. Ask an admin"):
        IVO.check(Action.LAUNCH, "open")
    with pytest.raises(Denied, match="It belongs to ivo: only they and an admin of project open may act on this"):
        ANA.check(Action.ACT, "open", "ivo")
