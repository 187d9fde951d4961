"""Tabs of the Run page: history, the commands that were started, and the spec."""

from __future__ import annotations

import json
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from dashboard.cluster.preflights import picture, verdict
from dashboard.compare.spec_changes import settings_in_words
from dashboard.components.browser import preflight
from dashboard.logs.logged_settings import Settings, flat, logged_settings
from dashboard.planning.interpreters import described
from dashboard.service import service
from dashboard.views.layout import style
from dashboard.views.layout.permissions import signed
from dashboard.views.layout.tables import show_list, table
from dashboard.views.run import start
from db.attempts import attempt_queries
from db.metrics.performance import usage
from db.people.users import has_several
from db.runs import run_queries
from domain.launch.plan import shell_line
from domain.lists import run_lists
from domain.spec import RunSpec
from domain.text.formats import as_text, duration, plural, signature, usage_sentence
from domain.views import AttemptView, RunView, TaskView

MOST_LINES = 200


@style.quiet_without_store
def history(run: RunView) -> None:
    """Show the run's events, newest first."""
    start.folded(run)
    _preflight(run.id)
    _usage(run.id)
    lines = run_queries.history(service.current().store, run.id)
    newest = lines[-MOST_LINES:]
    columns = run_lists.history(browser_zone(), has_several(service.current().store))
    show_list("history", columns, reversed(newest))
    if len(lines) > len(newest):
        st.caption(f"The newest {len(newest)} of {len(lines)} lines; the API returns all of them.")


def _preflight(run_id: str) -> None:
    """Show the preflight of the latest attempt, expanded where it failed."""
    current = service.current()
    check = current.preflights.of_run(run_id)
    if check is None:
        return
    label = {"red": "red", "green": "all well", "asking": "in progress"}[verdict(check)]
    with st.expander(f"Preflight, the check that its nodes can train together: {label}", expanded=bool(check.failed)):
        preflight(picture(check), key="run_preflight")


def _usage(run_id: str) -> None:
    """Show the device-hours of all attempts, and the energy that their devices measured."""
    current = service.current()
    used = usage(current.store, run_id, current.clock())
    if used.device_hours:
        st.caption(as_text(usage_sentence(used.device_hours, used.energy_j)))


@style.quiet_without_store
def commands(run_id: str) -> None:
    """Show the commands started on each node, attempt by attempt."""
    attempts = attempt_queries.attempts(service.current().store, run_id)
    st.header("Commands", anchor=False)
    st.caption("Of each attempt: one execution of the run, by its launch, a resume or a restart.")
    if not any(task.argv for attempt in attempts for task in attempt.tasks):
        st.caption("Nothing has been started yet.")
        return
    for attempt in reversed(attempts):
        sentence = _attempt_sentence(attempt) + signed(signature(attempt.by, attempt.via))
        st.markdown(f"**Attempt {attempt.number}** {as_text(sentence)}")
        for task in attempt.tasks:
            _command(task)


def _attempt_sentence(attempt: AttemptView) -> str:
    sentence = attempt.state.value
    if attempt.started_at is not None and attempt.ended_at is not None:
        sentence += f" after {duration(attempt.ended_at - attempt.started_at)}"
    if attempt.resumed_from:
        sentence += f", from {attempt.resumed_from}"
    return sentence


def _command(task: TaskView) -> None:
    if not task.argv:
        return
    properties = [f"node {task.node_rank}: {task.node}", plural(len(task.devices), "slot")]
    properties += [f"pid {task.pid}"] if task.pid else []
    properties += [f"exit code {task.exit_code}"] if task.exit_code is not None else []
    st.caption(" · ".join(as_text(text) for text in properties))
    if task.interpreter:
        st.caption(as_text(" · ".join(described(task.interpreter))))
    lines = [f"cd {shell_line([task.cwd])}"] if task.cwd else []
    lines += [f"export {shell_line([f'{key}={value}'])}" for key, value in sorted((task.env or {}).items())]
    st.code("\n".join([*lines, shell_line(task.argv)]), language="bash", wrap_lines=True)


def specification(spec: RunSpec) -> None:
    """Show the spec's settings in words and as JSON."""
    spec_values = spec.model_dump(mode="json", exclude_defaults=True) | {"target": spec.target}
    words, source = st.columns(2)
    with words:
        table("spec", ("Setting", "Value"), settings_in_words(spec_values))
        st.caption("All other settings are the defaults of the recipe or script.")
    with source:
        st.code(json.dumps(spec.model_dump(mode="json", exclude_none=True), indent=2), language="json")


def browser_zone() -> ZoneInfo:
    """Return the browser's time zone, UTC where it is unknown."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


# What the script told its loggers about the run: hyperparameters, tags, and that one of them is offline.

TITLES = {
    "wandb": "W&B", "mlflow": "MLflow", "trackio": "trackio", "swanlab": "SwanLab", "comet": "Comet",
    "clearml": "ClearML", "csv": "Lightning's CSVLogger", "tensorboard": "TensorBoard", "neptune": "Neptune",
}  # fmt: skip
OFFLINE = "W&B is offline here: {reason}. Its files stay in the run's directory; `wandb sync` uploads them."


@style.quiet_without_store
def offline_note(run: RunView) -> None:
    """Say that W&B was set to offline, and why."""
    if reason := _settings(run).get("wandb", {}).get("offline_because"):
        st.caption(OFFLINE.format(reason=as_text(str(reason))))


def logged(run: RunView) -> None:
    """Show each logger's hyperparameters, tags and summary in the latest attempt."""
    for name, settings in sorted(_settings(run).items()):
        rows = flat(settings.get("config")) + flat(settings.get("summary") or {}, "summary.")
        tags = ", ".join(map(str, settings.get("tags") or ()))
        rows += [("tags", tags)] if tags else []
        if rows:
            st.markdown(f"**Logged with {as_text(TITLES.get(name, name))}**{_place(settings)}")
            table(f"logged_{name}", ("Hyperparameter", "Value"), rows)


def _place(settings: dict[str, Any]) -> str:
    """Return the project and name of the logger's run, where it has them."""
    words = [str(settings[key]) for key in ("project", "name", "mode") if settings.get(key)]
    return "".join(f" · {as_text(setting)}" for setting in words)


def _settings(run: RunView) -> Settings:
    return logged_settings(service.current(), run.id, run.attempt)
