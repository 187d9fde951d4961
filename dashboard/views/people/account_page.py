"""The Account page: one's own e-mail address, password, browsers, tokens and secrets."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.service import service
from dashboard.views.layout import actions, links, permissions, style, visitor
from dashboard.views.people.secrets_section import show_secrets
from domain.agents.budget import hours
from domain.lists import people_lists
from domain.people.accounts import SHORTEST_PASSWORD, WAYS, SessionView, UserView
from domain.people.roles import Action, Role, Scope, in_words
from domain.people.tokens import GRANTS, AccessTokenView, Bounds, BudgetView, TokenWanted, limits_in_words
from domain.requests.errors import InvalidRequest
from domain.text.formats import SHOWN_ONCE, ago, as_list, as_text

REFUSED, TOKEN_REFUSED, TOKEN_MADE = "account_refused", "token_refused", "token_made"
SAVED, ALL_TOKENS = "account_saved", "tokens_all"
FEW_TOKENS = 10
"""The number shown at once, newest first; the others on request."""
DAY_S = 86_400.0
LASTING: dict[str, float | None] = {
    "a week": 7 * DAY_S, "30 days": 30 * DAY_S, "90 days": 90 * DAY_S, "a year": 365 * DAY_S, "until revoked": None,
}  # fmt: skip
ALL_PROJECTS = "all projects"
BUDGET, DEVICES, LONGEST = "token_budget", "token_devices", "token_longest"
BOUNDS = (
    (
        BUDGET,
        "Device-hours",
        "no budget",
        "What its runs may take in all; without it a token of scope mcp only proposes runs.",
    ),
    (DEVICES, "Devices", "any", "What its runs may have at a time."),
    (LONGEST, "Hours a run", "any", "The longest that each trains; it then ends at a checkpoint."),
)
SESSION_COLUMNS = (4, 3, 1.4)
TOKEN_COLUMNS = (2.4, 3.2, 4.4, 1.2)


@style.quiet_without_store
def page() -> None:
    """Show the visitor's own account."""
    me = service.current().people.me()
    st.title(as_text(me.name), anchor=False)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(_roles(me), width="content")
        if permissions.visitor().refusal_anywhere(Action.MANAGE) is None:
            links.link("people", "Invite people", "account_people")
            links.link("audit", "Audit log", "account_audit")
    left, right = st.columns(2, gap="large")
    with left:
        _address_and_password(me)
        _sessions()
    with right:
        _tokens()
        show_secrets([project.name for project in service.current().people.projects()])


def _roles(me: UserView) -> str:
    if me.role is Role.OWNER:
        return "Owner of this installation: you may do everything."
    roles = [in_words(me.role)] if me.role else []
    roles += [in_words(role, project) for project, role in me.projects.items()]
    return as_text(f"You are {as_list(roles)}." if roles else "You have no role: ask an admin for one.")


def _address_and_password(me: UserView) -> None:
    st.header("Sign in", anchor=False)
    if service.current().people.is_at_provider(me):
        st.caption(as_text(f"You sign in at the provider, as {me.email}."))
        return
    if not me.has_password:
        st.caption("With an e-mail address and a password you sign in anywhere without the token.")
    with st.form("account_form", border=False):
        st.text_input("E-mail", me.email or "", key="account_email", max_chars=254, autocomplete="email")
        if me.has_password:
            st.text_input("Current password", key="account_old", type="password", autocomplete="current-password",
                          placeholder="needed for a new address or password")  # fmt: skip
        st.text_input("New password", key="account_new", type="password", autocomplete="new-password",
                      placeholder=f"at least {SHORTEST_PASSWORD} characters")  # fmt: skip
        st.form_submit_button("Save", on_click=actions.attempt, args=(_save, REFUSED))
    saved: str | None = st.session_state.pop(SAVED, None)
    if not actions.show(REFUSED) and saved:
        st.caption(saved)


def _save() -> None:
    state, people = st.session_state, service.current().people
    saved = []
    if (email := state["account_email"].strip()) and email != people.me().email:
        people.set_email(email, state.get("account_old"))
        saved.append("Your address is saved.")
    if state["account_new"]:
        people.set_password(state["account_new"], state.get("account_old"))
        saved.append("Your password is set, and your other browsers are signed out.")
    for name in ("account_new", "account_old"):
        if name in state:
            state[name] = ""
    state[SAVED] = " ".join(saved) or "Nothing has changed."


# Browsers that are signed in.


def _sessions() -> None:
    st.header("Browsers that are signed in", anchor=False)
    current = service.current()
    now, sessions = current.clock(), current.people.sessions()
    with st.container(key="sessions"):
        for session in sessions:
            _session(session, now)
    with st.container(horizontal=True):
        if any(session.is_current for session in sessions) and len(sessions) > 1:
            st.button("Sign out the others", key="sign_out_others", on_click=_sign_out_others)
        st.button("Sign out everywhere", key="sign_out_everywhere", on_click=_sign_out_everywhere)


def _session(session: SessionView, now: float) -> None:
    browser, when, end = st.columns(SESSION_COLUMNS, vertical_alignment="center")
    name = f"**{as_text(session.browser or 'A browser')}**{' (this one)' if session.is_current else ''}"
    address = f" at {as_text(session.address)}" if session.address else ""
    browser.markdown(f"{name}{address}, {as_text(WAYS.get(session.way, session.way))}")
    when.caption(as_text(f"signed in {ago(session.created_at, now)}"))
    if not session.is_current:
        end.button("Sign out", key=f"session_{session.id}", type="tertiary", on_click=_end, args=(session.id,))


@actions.told
def _end(session_id: str) -> None:
    service.current().people.end_session(session_id)


@actions.told
def _sign_out_others() -> None:
    service.current().people.sign_out_others()


@actions.told
def _sign_out_everywhere() -> None:
    service.current().people.sign_out_everywhere()


# Tokens for scripts.


def _tokens() -> None:
    st.header("Access tokens", anchor=False)
    st.caption(
        "For scripts and CI, in the variable `RANKZERO_TOKEN` or after `Authorization: Bearer`. "
        "`rankzero login` makes its own."
    )
    current = service.current()
    tokens, now = current.access_tokens.own(), current.clock()
    _make_form([project.name for project in current.people.projects()])
    actions.show(TOKEN_REFUSED)
    _show_new(tokens)
    shown = tokens if st.session_state.get(ALL_TOKENS) else tokens[:FEW_TOKENS]
    with st.container(key="tokens"):
        for token in shown:
            _token(token, now)
    if len(shown) < len(tokens):
        st.button(f"Show all {len(tokens)}", key="tokens_more", type="tertiary", on_click=_show_all)


def _show_all() -> None:
    st.session_state[ALL_TOKENS] = True


def _show_new(tokens: Sequence[AccessTokenView]) -> None:
    """Show the secret of the newest token, while it is valid."""
    new_token: tuple[str, str] | None = st.session_state.get(TOKEN_MADE)
    if new_token is not None and new_token[0] in {token.name for token in tokens}:
        st.markdown(f"The token **{as_text(new_token[0])}**: {SHOWN_ONCE}.")
        st.code(new_token[1], language=None, wrap_lines=True)


def _token(token: AccessTokenView, now: float) -> None:
    name, extent, used, revoke = st.columns(TOKEN_COLUMNS, vertical_alignment="center")
    name.markdown(f"**{as_text(token.name)}**")
    extent.markdown(as_text(f"{token.scope}, {token.project or ALL_PROJECTS}"))
    last_use = f"used {ago(token.last_used_at, now)}" if token.last_used_at else "not used yet"
    if token.budget is not None:
        with extent:
            _budget(token.budget)
    has_expired = token.expires_at is not None and token.expires_at <= now
    used.caption(as_text(f"{people_lists.end_of(token, now)}, {last_use}"))
    if not has_expired and revoke.button("Revoke", key=f"token_{token.name}", type="tertiary"):
        _confirm_revocation(token.name)


def _budget(budget: BudgetView) -> None:
    """Show how much of a token's budget its runs have taken."""
    used = f"{hours(budget.used_s)} of {hours(budget.budget_s)} device-hours used"
    st.progress(min(budget.used_s / budget.budget_s, 1.0), text=used)
    if limits := limits_in_words(budget):
        st.caption(as_text(limits))


@visitor.dialog("Revoke this token?")
def _confirm_revocation(name: str) -> None:
    st.markdown(f"Requests with **{as_text(name)}** fail from now on. This cannot be undone.")
    actions.confirm(f"token_{name}", "Revoke it", "Keep it", lambda: service.current().access_tokens.revoke(name))


def _make_form(projects: list[str]) -> None:
    with st.form("token_form", border=False):
        _make_fields(projects)


def _make_fields(projects: list[str]) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input("Name", key="token_name", placeholder="ci", max_chars=60, width=150)
        st.selectbox("Scope", list(Scope), key="token_scope", format_func=_grant, width=300)
        st.selectbox("Project", [ALL_PROJECTS, *projects], key="token_project", width=160)
        st.selectbox("Expires", list(LASTING), index=2, key="token_lasts", width=130)
    with st.expander("Budget, for agents"), st.container(horizontal=True):
        for key, label, unset, help in BOUNDS:
            st.number_input(label, 0.0, value=None, step=1.0, key=key, placeholder=unset, help=help, width=150)
    st.form_submit_button("Make a token", on_click=actions.attempt, args=(_make, TOKEN_REFUSED))


def _grant(scope: Scope) -> str:
    return f"{scope}: {GRANTS[scope]}"


def _make() -> None:
    state = st.session_state
    project = None if state["token_project"] == ALL_PROJECTS else state["token_project"]
    lasts_s, bounds = LASTING[state["token_lasts"]], _bounds()
    terms = TokenWanted(state["token_name"].strip(), state["token_scope"], project, lasts_s, bounds)
    view, secret = service.current().access_tokens.make(terms)
    state[TOKEN_MADE] = (view.name, secret)
    state["token_name"] = ""
    for key, *_ in BOUNDS:
        state[key] = None


def _bounds() -> Bounds | None:
    """Return the bounds in the form; None for a token without a budget. Raises InvalidRequest."""
    budget, devices, longest = (st.session_state[key] for key, *_ in BOUNDS)
    if budget is None:
        if devices or longest:
            raise InvalidRequest(None, "Devices and hours a run bound a token with a budget: enter device-hours, too.")
        return None
    return Bounds(budget * 3600.0, int(devices) if devices else None, longest * 3600.0 if longest else None)
