"""Add nodes: make a join token, show the command for the new machine, and list the tokens."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version

import streamlit as st

from dashboard.cluster.joining import WHERE, HowToJoin, address_for_others, how_to_join
from dashboard.service import service
from dashboard.views.layout import actions, permissions, style, visitor
from dashboard.views.nodes import installing
from domain.lists.people_lists import lasting, state_of
from domain.people.roles import Action
from domain.text.formats import SHOWN_ONCE, ago, as_text, plural, with_code
from domain.views import JoinTokenView

REFRESH_S = 3


COMMAND = "rankzero nodes add 'gpu-[1-8]' me@10.0.0.4"


@style.quiet_without_store
def adding() -> None:
    """Show how machines are added over `ssh`, how far that is, and the other way: a token and a command to paste."""
    if not service.current().nodes():
        st.header("No node has joined yet", anchor=False)
        st.caption("On the dashboard's own machine `rankzero up` starts one; other machines join from here.")
    _, warning = address_for_others(service.current().listening(), st.context.url)
    if permissions.say_why_not(permissions.visitor().refusal(Action.OPERATE, None)):
        return
    if warning:
        st.warning(with_code(warning), icon=":material/wifi_off:")
    st.markdown(
        "A node is a machine that trains. This command turns machines that you reach with `ssh` into nodes, as a "
        "plain user and with nothing preinstalled. Keys and passwords stay with your `ssh`:"
    )
    st.code(COMMAND, language="bash", wrap_lines=True)
    installing.installations()
    joining()


@style.quiet_without_store
def joining() -> None:
    """Show the form for a join token, the command of a new one, and all tokens."""
    style.refresh_within(REFRESH_S)
    current = service.current()
    tokens = {token.id: token for token in current.join_tokens.every()}
    _make()
    created: tuple[str, str] | None = st.session_state.get(MADE)
    if created is not None and created[0] in tokens:
        _show(tokens[created[0]], how_to_join(created[1], current.listening(), st.context.url))
    _tokens(list(tokens.values()), current.clock())


MADE = "join_made"
REFUSED = "join_refused"
HOUR_S, DAY_S = 3600.0, 24 * 3600.0
GOOD_FOR = {
    "1 hour": HOUR_S, "1 day": DAY_S, "7 days": 7 * DAY_S, "30 days": 30 * DAY_S, "1 year": 365 * DAY_S
}  # fmt: skip
COLUMNS = (3, 2, 3, 3, 1.2)


def _make() -> None:
    st.markdown(
        f"Without `ssh`, install Rankzero {version('rankzero')} on the new machine, make a token, and run there the "
        "command that then appears here. One token serves many machines."
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox("Valid for", list(GOOD_FOR), index=1, key="join_for", width=140)
        st.text_input("Name (optional)", key="join_name", placeholder="rack b2, Ada's workstation …", width=300)
        st.button(
            "Make a join token",
            type="primary",
            icon=":material/key:",
            on_click=actions.attempt,
            args=(_create, REFUSED),
            key="join_make",
        )
    actions.show(REFUSED)


def _create() -> None:
    ttl_s, name = GOOD_FOR[st.session_state["join_for"]], st.session_state["join_name"]
    view, secret = service.current().join_tokens.make(ttl_s, name)
    st.session_state[MADE] = (view.id, secret)


def _show(token: JoinTokenView, how: HowToJoin) -> None:
    with st.container(border=True, key="join_command"):
        if how.warning:
            st.warning(with_code(how.warning), icon=":material/wifi_off:")
        if how.trust:
            st.info(with_code(how.trust), icon=":material/verified_user:")
        st.markdown(f"**{WHERE}, paste this**")
        st.code(how.command, language="bash", wrap_lines=True)
        with st.expander("As a service that starts with the machine (systemd)"):
            st.caption(
                "Upgrading or restarting the service does not disturb running jobs; the worker finds them again."
            )
            st.code("\n".join(how.service), language="bash", wrap_lines=True)
        joined = f"{plural(token.uses, 'node')} joined with it." if token.uses else "Waiting for it to join …"
        st.caption(f"{joined} The token: {SHOWN_ONCE}; anyone who has it can add nodes.")


def _tokens(tokens: list[JoinTokenView], now: float) -> None:
    good = [token for token in tokens if state_of(token, now) == "valid"]
    ended = [token for token in tokens if state_of(token, now) != "valid"]
    if not tokens:
        return
    st.markdown("**Join tokens**")
    if not good:
        st.caption("There is no valid token.")
    for token in good:
        _token(token, now)
    if ended and st.toggle(f"Show {plural(len(ended), 'ended token')}", key="join_ended"):
        for token in ended[:50]:
            _token(token, now)


def _token(token: JoinTokenView, now: float) -> None:
    name, state, until, used, revoke = st.columns(COLUMNS, vertical_alignment="center")
    name.markdown(as_text(token.name or token.hint), help=as_text(token.hint))
    is_good = state_of(token, now) == "valid"
    state.badge(state_of(token, now), color="green" if is_good else "gray")
    until.caption(as_text(lasting(token, now)))
    last = f", last {ago(token.last_used_at, now)}" if token.last_used_at else ""
    uses = f"used {plural(token.uses, 'time')}{last}" if token.uses else "never used"
    used.caption(as_text(uses + permissions.signed(token.by, ", made ")))
    if is_good:
        revoke.button(
            "Revoke", key=f"revoke_{token.id}", type="tertiary",
            on_click=_revoke, args=(token,),
            help="No more nodes can join with it; nodes that joined with it stay.",
        )  # fmt: skip


@visitor.acts
def _revoke(token: JoinTokenView) -> None:
    """Revoke a token; ask first if it is another person's."""
    revoke = partial(service.current().join_tokens.revoke, token.id)
    actions.end_or_ask("join token", token.id, token.by, "Revoke", revoke)
