"""The Alerts page: set an alert, and list, test and remove those that are set."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import streamlit as st

from dashboard.alerts.request import AlertRequest, create
from dashboard.components import browser
from dashboard.errors import Rejection
from dashboard.service import service
from dashboard.views.launch.notification_choice import SECRET
from dashboard.views.layout import actions, permissions, style
from db.alerts import alerts, events
from db.alerts.alerts import AlertView
from db.exceptions import NoSuchAlert
from domain.alerts.rules import AFTER_THE_END, HAVE_A_STEP, LIMITS, LR_FACTOR, ON_SERIES, Act, Trigger, act_in_words
from domain.alerts.targets import BROWSER, masked_target
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest
from domain.text.formats import SHOWN_ONCE, ago, as_text, plural, with_code


@style.quiet_without_store
def page() -> None:
    """Show the form and the list."""
    _form()
    _list()


REFRESH_S = 3
REFUSED = "alert_refused"
ACTS = {None: "Only tell", Act.END: "End the run", Act.ROLLBACK: "Go back to the last checkpoint before"}
TELLS = {False: "an address", True: "the browser"}
COLUMNS = (3, 4, 4, 1.2, 1.4)
LABELS = {
    Trigger.FAILED: "A run failed",
    Trigger.FINISHED: "A run succeeded",
    Trigger.HUNG: "A run hangs",
    Trigger.LOSS_NAN: "The loss is not a number",
    Trigger.WAITS: "A run waits in the queue for longer than",
    Trigger.DISK_FULL: "A disk is full in less than",
    Trigger.SPIKE: "The loss jumps",
    Trigger.NO_IMPROVEMENT: "The loss has not improved for",
    Trigger.IDLE_GPU: "A GPU of a run has been idle for",
    Trigger.QUARANTINE: "A node or GPU is in quarantine",
}


def _form() -> None:
    refusal = permissions.visitor().refusal_anywhere(Action.LAUNCH)
    if permissions.say_why_not(refusal and f"Only people who may launch runs may set alerts. {refusal}"):
        return
    st.markdown(
        "When a run or a node meets a rule, Rankzero sends its name, the sentence from its page, its curve and a link "
        "to an address: a signed webhook at `https://…`, or any service that Apprise knows, such as "
        "`slack://…`, `discord://…`, `msteams://…`, `ntfy://…` or `mailtos://…`. Your browser can show the sentence "
        "too, while one of these pages is open."
    )
    with st.container(horizontal=True):
        st.markdown("[Apprise's addresses](https://appriseit.com/services/)", width="content")
        st.markdown("[How a webhook is verified](https://www.standardwebhooks.com)", width="content")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        to_browser = _fields()
        st.button(
            "Set alert", type="primary", icon=":material/notifications:", key="alert_set",
            on_click=actions.attempt, args=(_create, REFUSED),
        )  # fmt: skip
    actions.show(REFUSED)
    if to_browser or any(alert.target == BROWSER for alert in alerts.alerts(service.current().store)):
        browser.notification_permission(key="alert_permission")


def _fields() -> bool:
    """Show the fields of a rule; returns whether browsers are to be told."""
    condition = st.selectbox("Rule", list(LABELS), format_func=LABELS.__getitem__, key="alert_rule", width=330)
    if condition in LIMITS:
        st.text_input("Limit", key="alert_limit", placeholder=LIMITS[condition], max_chars=20, width=130)
    if condition in ON_SERIES:
        st.text_input(
            "Series (optional)",
            key="alert_series",
            placeholder="the training loss",
            max_chars=150,
            width=200,
        )
    acts = [act for act in ACTS if _can(condition, act)]
    if len(acts) > 1:
        act = st.selectbox("And", acts, format_func=ACTS.__getitem__, key="alert_act", width=330)
        if act == Act.ROLLBACK:
            st.number_input("Learning rate ×", 0.001, 1.0, LR_FACTOR, 0.05, key="alert_factor", width=150, format="%g")
    to_browser = st.selectbox("Tell", [False, True], format_func=TELLS.__getitem__, key="alert_to_browser", width=180)
    if not to_browser:
        st.text_input("Address", key="alert_target", type="password", width=330)
    if condition != Trigger.QUARANTINE:  # about hardware
        st.text_input("Project (optional)", key="alert_project", placeholder="all", max_chars=200, width=180)
    return to_browser


def _can(condition: Trigger, act: Act | None) -> bool:
    """Whether a rule of this condition can do this."""
    if act is None:
        return True
    return condition in HAVE_A_STEP if act == Act.ROLLBACK else condition not in {*AFTER_THE_END, Trigger.QUARANTINE}


def _create() -> None:
    state = st.session_state
    condition = state["alert_rule"]
    limit = f"={state['alert_limit'].strip()}" if condition in LIMITS else ""
    series = state["alert_series"].strip() if condition in ON_SERIES else ""
    rule = f"{condition}{limit}{f':{series}' if series else ''}"
    project = state.get("alert_project", "").strip() or None
    act = state.get("alert_act") if _can(condition, state.get("alert_act")) else None
    factor = state["alert_factor"] if act == Act.ROLLBACK else None
    request = AlertRequest(
        rule=rule,
        target=BROWSER if state["alert_to_browser"] else state["alert_target"],
        project=project,
        act=act,
        lr_factor=factor,
    )
    try:
        added = create(service.current(), request)
    except Rejection as error:
        raise InvalidRequest(error.field, str(error.detail)) from None
    state[SECRET] = (added["id"], added["secret"]) if added["secret"] else None
    state["alert_target"] = ""


@style.quiet_without_store
def _list() -> None:
    style.refresh_within(REFRESH_S)
    current = service.current()
    listed = alerts.alerts(current.store)
    secret: tuple[str, str] | None = st.session_state.get(SECRET)
    if secret is not None and secret[0] in {alert.id for alert in listed}:
        st.markdown(f"**The messages of the new webhook are signed with this secret: {SHOWN_ONCE}.**")
        st.code(secret[1], language=None, wrap_lines=True)
    if not listed:
        st.caption("No alert is set.")
    with st.container(key="alert_list"):
        for alert in listed:
            _row(alert, current.clock())


def _row(alert: AlertView, now: float) -> None:
    rule, target, sent, test, remove = st.columns(COLUMNS, vertical_alignment="center")
    everything = "all nodes" if alert.rule == Trigger.QUARANTINE else "all runs"
    project = f"project {alert.project}" if alert.project else everything
    scope = f"run {alert.run_id}" if alert.run_id else project
    by = permissions.signed(alert.by)
    acts = act_in_words(alert.act, alert.lr_factor)
    rule.markdown(f"**{as_text(alert.rule)}**, {as_text(scope)}{f', {acts}' if acts else ''}{as_text(by)}")
    target.text(masked_target(alert.target))
    waiting = f", {plural(alert.waiting, 'event')} waiting" if alert.waiting else ""
    last_sent = f"sent {ago(alert.last_sent_at, now)}" if alert.last_sent_at else "nothing sent yet"
    sent.markdown(as_text(f"{last_sent}{waiting}"))
    if alert.problem:
        sent.caption(with_code(alert.problem))
    limits = permissions.limits(Action.ACT, alert.of_project, alert.by)
    test.button("Test", key=f"alert_test_{alert.id}", type="tertiary", on_click=_test, args=(alert.id,),
                disabled=limits["disabled"], help=limits["help"] or "Send a message now.")  # fmt: skip
    remove.button(
        "Remove",
        key=f"alert_remove_{alert.id}",
        type="tertiary",
        on_click=_remove,
        args=(alert,),
        **permissions.limits(Action.STOP, alert.of_project, alert.by),
    )


@actions.told
def _test(alert_id: str) -> None:
    current = service.current()
    events.record_test(current.store, alert_id, current.clock())


def _remove(alert: AlertView) -> None:
    """Remove an alert; ask first if it is another person's."""
    actions.end_or_ask("alert", alert.id, alert.by, "Remove", partial(_remove_now, alert.id))


def _remove_now(alert_id: str) -> None:
    with suppress(NoSuchAlert):  # removed elsewhere
        alerts.remove(service.current().store, alert_id)
