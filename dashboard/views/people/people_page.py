"""The People page: who has an account and which roles, invitations, and the members of projects; for admins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import actions, permissions, style, visitor
from dashboard.views.layout.sharing import reachable_origin
from domain.lists import people_lists
from domain.people.accounts import InvitationView, MemberView, ProjectAccessView, UserView
from domain.people.consequences import Consequence
from domain.people.removal import Fate, RunsOfRemoved
from domain.people.roles import EVERYWHERE, GIVEN_ROLES, Action, Role
from domain.text.formats import SHOWN_ONCE, ago, as_list, as_text, clock_minute, plural

NO_ROLE = "none"
ROLES = [role.value for role in GIVEN_ROLES]
MEANING = {
    Role.VIEWER: "sees",
    Role.MEMBER: "launches, and acts on own runs",
    Role.ADMIN: "acts on all runs, manages nodes and people",
}
INVITED, REFUSED, MEMBER_REFUSED = "person_invited", "person_refused", "member_refused"
VALID_FOR = {"a day": 1.0, "a week": 7.0, "a month": 30.0}
PEOPLE_COLUMNS = (3, 2, 3.2, 1.6, 2.4)
MEMBER_COLUMNS = (3, 2, 7.2)
OPEN_COLUMNS = (3, 4, 3, 1.2)
REFRESH_S = 15


@style.quiet_without_store
def page() -> None:
    """Show the page to people who give roles somewhere, and to others who gives roles."""
    st.title("People", anchor=False)
    current = service.current()
    if permissions.visitor().refusal_anywhere(Action.MANAGE) is not None:
        _say_who_does(current.people.managers())
        return
    projects = current.people.projects()
    managed = [project.name for project in projects if permissions.visitor().may(Action.MANAGE, project.name)]
    _invite(managed)
    _people()
    _projects([project for project in projects if project.name in managed])


def _say_who_does(managers: Sequence[str]) -> None:
    names = as_list([f"**{as_text(name)}**" for name in managers])
    st.markdown(f"People are invited, and given roles, by {names}.")


def _invite(projects: Sequence[str]) -> None:
    everywhere = [EVERYWHERE] if permissions.visitor().may(Action.OPERATE, None) else []
    with st.container(key="invite", border=True):
        st.markdown("**Invite somebody** by a link that works once: they choose a name and a password there.")
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.text_input("E-mail", key="invite_email", placeholder="ana@example.org", max_chars=254, width=260)
            st.selectbox("Role", ROLES, index=1, key="invite_role", format_func=_with_meaning, width=320)
            st.selectbox("Project", [*everywhere, *projects], key="invite_project", width=260, accept_new_options=True)
            st.selectbox("Valid for", list(VALID_FOR), index=1, key="invite_days", width=120)
            st.button("Invite", type="primary", icon=":material/person_add:", key="invite_make",
                      on_click=actions.attempt, args=(_make_invitation, REFUSED))  # fmt: skip
        actions.show(REFUSED)
        _show_new_link()


def _with_meaning(role: str) -> str:
    return f"{role}: {MEANING[Role(role)]}"


def _make_invitation() -> None:
    state = st.session_state
    project = None if state["invite_project"] == EVERYWHERE else state["invite_project"]
    people = service.current().people
    doubt = people.doubt_about(project)
    view, secret = people.invite(state["invite_email"], state["invite_role"], project, VALID_FOR[state["invite_days"]])
    state[INVITED] = (view.id, view.email, secret, view.expires_at, doubt)
    state["invite_email"] = ""


def _make_password_link(email: str) -> None:
    view, secret = service.current().people.invite(email, days=VALID_FOR["a day"])
    st.session_state[INVITED] = (view.id, view.email, secret, view.expires_at, None)


def _show_new_link() -> None:
    invited: tuple[str, str, str, float, str | None] | None = st.session_state.get(INVITED)
    if invited is None:
        return
    invitation_id, email, secret, expires_at, doubt = invited
    if invitation_id not in {one.id for one in _open_invitations()}:
        del st.session_state[INVITED]
        return
    st.markdown(f"Send this to **{as_text(email)}**: {SHOWN_ONCE}.")
    st.code(f"{reachable_origin('invite_origin')}/invite/{secret}", language=None, wrap_lines=True)
    st.caption(f"It can be used once, until {clock_minute(expires_at)}.")
    if doubt:
        st.markdown(f":orange[{as_text(doubt)}]")


def _open_invitations() -> list[InvitationView]:
    current = service.current()
    return [one for one in current.people.invitations() if one.state(current.clock()) == "open"]


# Everybody with an account, and who was invited.


@style.quiet_without_store
def _people() -> None:
    style.refresh_within(REFRESH_S)
    current = service.current()
    now = current.clock()
    everybody = current.people.users()
    matching = _found(everybody) if len(everybody) > FEW else everybody
    with st.container(key="people"):
        _heads(PEOPLE_COLUMNS, ("Name", "Role everywhere", "Roles in projects", "Last seen", ""))
        for person in matching[:FEW]:
            _person(person, now)
    if len(matching) != len(everybody) or len(matching) > FEW:
        others = " Search for the others." if len(matching) > FEW else ""
        st.caption(f"{min(len(matching), FEW)} of {plural(len(everybody), 'person', 'people')}.{others}")
    if opened := _open_invitations():
        st.header("Pending invitations", anchor=False)
    with st.container(key="invitations"):
        for invitation in opened:
            _invitation(invitation, now)


FEW = 30
"""The number of people shown at once; more of them are searched."""


def _found(everybody: Sequence[UserView]) -> list[UserView]:
    """The persons who have the typed words in the name, the address or a role."""
    typed = st.text_input("Find", key="people_find", placeholder="Name, e-mail, role or project", width=320)
    terms = (typed or "").lower().split()
    return [one for one in everybody if all(term in _searched(one) for term in terms)]


def _searched(one: UserView) -> str:
    return " ".join((one.name, one.email or "", one.role or NO_ROLE, *one.projects)).lower()


def _person(person: UserView, now: float) -> None:
    name, role, projects, last_seen, remove = st.columns(PEOPLE_COLUMNS, vertical_alignment="center")
    mail = f" :gray[{as_text(person.email)}]" if person.email else ""
    is_me = person.name == permissions.visitor().by
    name.markdown(f"**{as_text(person.name)}**{' (you)' if is_me else ''}{mail}")
    with role:
        _role_of(person.name, person.role, None, is_fixed=is_me)
    projects.markdown(as_text(people_lists.roles_in_projects(person)))
    last_seen.markdown(as_text(ago(person.last_seen_at, now)))
    if person.role is not Role.OWNER and not is_me and permissions.visitor().may(Action.OPERATE, None):
        with remove, st.container(horizontal=True):
            if person.email:
                make = partial(_make_password_link, person.email)
                st.button("New password link", key=f"person_link_{person.name}", type="tertiary",
                          on_click=actions.attempt, args=(make, REFUSED))  # fmt: skip
            if st.button("Remove", key=f"person_remove_{person.name}", type="tertiary"):
                loss = service.current().people.loss_by_removal(person.name)
                actions.ask(_confirm_removal, person.name, loss)


def _role_of(name: str, role: Role | None, project: str | None, *, is_fixed: bool = False) -> None:
    """Show a person's role; people who may give it can change it."""
    may = permissions.visitor().may(Action.OPERATE if project is None else Action.MANAGE, project)
    if role is Role.OWNER or is_fixed or not may:
        st.markdown(as_text(_role_in_words(role or NO_ROLE)))
        return
    key = f"role_{name}_{project or ''}"
    st.session_state[key] = role.value if role else NO_ROLE
    st.selectbox(
        f"Role of {name}", [*ROLES, NO_ROLE], key=key, label_visibility="collapsed", format_func=_role_in_words,
        on_change=_choose_role, args=(name, project, key),
    )  # fmt: skip


def _role_in_words(role: str) -> str:
    return "no role" if role == NO_ROLE else role


@visitor.acts
def _choose_role(name: str, project: str | None, key: str) -> None:
    """Give the chosen role; ask first if it is lower."""
    people, role = service.current().people, st.session_state[key]
    question = actions.Question(
        key, f"Change the role of {name}?", "Change it", "Keep it", partial(people.loss_by_role, name, role, project)
    )
    actions.act_or_ask(question, partial(people.set_role, name, role, project))


KEEP_RUNS, STOP_RUNS, GIVE_RUNS = "Keep them running, as theirs", "Stop them", "Give them to someone else"
FATES: dict[str, Fate] = {KEEP_RUNS: "keep", STOP_RUNS: "stop", GIVE_RUNS: "give"}


@visitor.dialog("Remove this person?")
def _confirm_removal(name: str, consequence: Consequence) -> None:
    """Ask before a person is removed; it is drawn once more when they are gone."""
    st.markdown(f"**{as_text(name)}** is signed out everywhere at once. Ended runs stay, and the name is never reused.")
    st.markdown(as_text(consequence.sentence))
    if consequence.runs:
        _ask_of_runs(name)
    actions.confirm(f"person_{name}", "Remove", "Keep", partial(_remove, name))


def _ask_of_runs(name: str) -> None:
    """Ask what becomes of a person's live runs."""
    chosen = st.radio("Their live runs", list(FATES), key=f"person_runs_{name}")
    if FATES.get(chosen or KEEP_RUNS) == "give":
        others = [one.name for one in service.current().people.users() if one.name != name]
        st.selectbox("New owner", others, key=f"person_heir_{name}")


def _remove(name: str) -> None:
    """Remove a person; what was chosen last counts, also where the dialog was not drawn again since."""
    fate = FATES[st.session_state.get(f"person_runs_{name}") or KEEP_RUNS]
    heir = st.session_state.get(f"person_heir_{name}") if fate == "give" else None
    service.current().remove_person(name, RunsOfRemoved(fate, heir))


def _invitation(invitation: InvitationView, now: float) -> None:
    email, role, until, revoke = st.columns(OPEN_COLUMNS, vertical_alignment="center")
    email.markdown(as_text(invitation.email))
    place = invitation.project or EVERYWHERE
    to = f"new password of {invitation.user}" if invitation.user else f"{invitation.role} of {place}"
    role.markdown(as_text(f"{to}, by {invitation.by or 'Rankzero'}"))
    until.markdown(as_text(f"until {clock_minute(invitation.expires_at)}"))
    revoke.button("Revoke", key=f"invitation_{invitation.id}", type="tertiary",
                  on_click=_revoke, args=(invitation,))  # fmt: skip


@visitor.acts
def _revoke(invitation: InvitationView) -> None:
    """End an invitation; ask first if it is another person's."""
    revoke = partial(service.current().people.revoke_invitation, invitation.id)
    actions.end_or_ask("link", invitation.id, invitation.by, "Revoke", revoke)


# The members of one project, and whether it exists for others.


def _projects(projects: Sequence[ProjectAccessView]) -> None:
    st.header("Projects", anchor=False)
    if not projects:
        st.caption("There is no project yet: the first run makes one.")
        return
    names = [project.name for project in projects]
    chosen = st.selectbox("Project", names, key="people_project", width=320)
    project = next(one for one in projects if one.name == chosen)
    key = f"project_private_{project.name}"
    st.session_state[key] = project.is_private
    st.toggle(
        "Private: only its members and the owner see it, in lists, searches and addresses; people "
        "still see the runs that they launched there.",
        key=key, on_change=_set_privacy, args=(project.name, not project.is_private),
    )  # fmt: skip
    _members(project.name)


@visitor.acts
def _set_privacy(project: str, is_private: bool) -> None:
    """Open a project, or make it private; ask first if others lose sight of it."""
    people = service.current().people
    if not is_private:
        actions.told(people.set_privacy)(project, False)
        return
    question = actions.Question(
        f"private_{project}", f"Make {project} private?", "Make it private", "Keep it open",
        partial(people.loss_by_privacy, project),
    )  # fmt: skip
    actions.act_or_ask(question, partial(people.set_privacy, project, True))


def _members(project: str) -> None:
    people = service.current().people
    members = people.members(project)
    own = [member for member in members if not member.is_everywhere]
    with st.container(key="members"):
        if own:
            _heads(MEMBER_COLUMNS, ("Name", "Role in this project", ""))
        for member in own:
            _member(member, project)
    if everywhere := [as_text(member.name) for member in members if member.is_everywhere]:
        st.caption(f"By their role everywhere: {as_list(everywhere, MOST_NAMED)}.")
    persons = {person.name for person in people.users() if person.role is not Role.OWNER}
    if others := sorted(persons - {member.name for member in own}):
        _add_member(project, others)


def _member(member: MemberView, project: str) -> None:
    name, role, _ = st.columns(MEMBER_COLUMNS, vertical_alignment="center")
    name.markdown(f"**{as_text(member.name)}**")
    with role:
        _role_of(member.name, member.role, project)


MOST_NAMED = 10


def _add_member(project: str, names: Sequence[str]) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox("Person", names, key=f"member_name_{project}", width=220)
        st.selectbox("Role", ROLES, index=1, key=f"member_role_{project}", format_func=_with_meaning, width=320)
        give = partial(_give, project)
        st.button("Add to project", key=f"member_add_{project}", on_click=actions.attempt, args=(give, MEMBER_REFUSED))
    actions.show(MEMBER_REFUSED)


def _give(project: str) -> None:
    name, role = (st.session_state[f"member_{field}_{project}"] for field in ("name", "role"))
    service.current().people.set_role(name, role, project)


def _heads(widths: Sequence[float], titles: Sequence[str]) -> None:
    with st.container(key=f"heads_{len(titles)}"):
        for column, title in zip(st.columns(widths), titles, strict=True):
            column.caption(title)
