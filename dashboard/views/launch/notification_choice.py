"""The choice of who is told when the run of the form fails or finishes: an address, old or new, or the browser."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import streamlit as st

from dashboard.alerts.request import addresses, check_address, tell_of_end
from dashboard.components import browser
from dashboard.errors import Rejection
from dashboard.service import service
from dashboard.views.layout import style
from db.alerts import alerts
from db.exceptions import NoSuchAlert
from domain.alerts.targets import BROWSER
from domain.requests.errors import InvalidRequest
from domain.text.formats import as_text

TELL, ADDRESS, REFUSED = "launch_tell", "launch_tell_address", "launch_tell_refused"
NOBODY, NEW = "", "new"
SECRET = "alert_secret"
"""Where the session keeps the id of a new alert and its secret, which the Alerts page shows once."""
WORDS = {NOBODY: "nobody", BROWSER: "the browser", NEW: "a new address…"}


@dataclass(frozen=True)
class Recipient:
    """Who is told, checked."""

    target: str
    secret: str | None
    """What a webhook's messages are signed with."""


def field() -> None:
    """Offer the browser, the addresses that alerts have, and a field for a new one."""
    own_addresses = addresses(service.current())
    choices = [NOBODY, BROWSER, *own_addresses, NEW]
    if st.session_state.get(TELL) not in choices:
        st.session_state[TELL] = NOBODY
    with style.explained(
        "tell",
        "When it fails or finishes: the browser, while a tab of these pages is open, or an address. Sets two alerts "
        "for this run.",
    ):
        st.selectbox(
            "Notify", choices, key=TELL, width=420,
            format_func=(WORDS | own_addresses).__getitem__,
        )  # fmt: skip
    if st.session_state[TELL] == NEW:
        with style.explained("address", "The Alerts page then shows a webhook's signing secret."):
            st.text_input(
                "Address", key=ADDRESS, type="password", width=420, placeholder="https://…, slack://…, mailtos://…",
            )  # fmt: skip
    if st.session_state[TELL] == BROWSER:
        browser.notification_permission(key="launch_permission")
    if refusal := st.session_state.pop(REFUSED, None):
        st.error(as_text(refusal))


def recipient() -> Recipient | None:
    """Return who was chosen, None for nobody. Raises InvalidRequest."""
    chosen, current = st.session_state.get(TELL), service.current()
    if not chosen:
        return None
    if chosen in (BROWSER, NEW):
        target = BROWSER if chosen == BROWSER else st.session_state[ADDRESS].strip()
        try:
            return Recipient(target, check_address(current, target))
        except Rejection as error:
            raise InvalidRequest("target", str(error.detail)) from None
    with suppress(NoSuchAlert):  # removed meanwhile
        like = alerts.alert(current.store, chosen)
        return Recipient(like.target, like.secret)
    return None


def refuse(error: InvalidRequest) -> None:
    """Show at the field, at the next run of the page, why nothing was launched."""
    st.session_state[REFUSED] = f"Not launched: {error}"


def launched(run_id: str, recipient: Recipient | None) -> None:
    """Set the alerts of a run that was just launched; the Alerts page shows the secret of a new webhook."""
    if recipient is None:
        return
    alert_id = tell_of_end(service.current(), run_id, recipient.target, recipient.secret)
    if st.session_state[TELL] == NEW and recipient.secret:
        st.session_state[SECRET] = (alert_id, recipient.secret)
