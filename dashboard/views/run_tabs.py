"""The tabs of the Run page: checkpoints, history, the commands really started, and what was asked for."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from dashboard import service
from dashboard.interpreters import described
from dashboard.views import style
from dashboard.views.formats import as_text, clock_time, count, duration, number, plural, size
from dashboard.views.launch_form import LABELS
from dashboard.views.launch_plan import shell_line
from dashboard.views.tables import Markup, download_link, table
from db import queries
from db.spec import RunSpec
from db.views import AttemptView, CheckpointView, PartView

CHECKPOINT_COLUMNS = ("Checkpoint", ">Step", ">Loss", ">Size", "SHA-256", ">Attempt", "Written", "")
MOST_CHECKPOINTS = 20
MOST_LINES = 200
SPEC_UNITS = {"stop_grace_s": " s"}


@st.fragment(run_every=3)
@style.readable_without_store
def checkpoints(run_id: str) -> None:
    """Newest first, each with its download."""
    found = queries.checkpoints(service.current().store, run_id)
    if not found:
        st.caption(
            "No checkpoint yet. What rank 0 saves (.pt, .pth, .safetensors, …) appears here by itself."
        )
        return
    shown = found if st.session_state.get("all_checkpoints") else found[:MOST_CHECKPOINTS]
    table("checkpoints", CHECKPOINT_COLUMNS, [_checkpoint_row(checkpoint) for checkpoint in shown])
    if len(found) > MOST_CHECKPOINTS:
        st.toggle(f"Show all {len(found)} checkpoints", key="all_checkpoints")
    complete = [checkpoint for checkpoint in shown if checkpoint.complete]
    with st.expander("SHA-256 in full, as `sha256sum --check` reads it", key="sums"):
        st.code("\n".join(f"{c.sha256}  {PurePosixPath(c.name).name}" for c in complete), language=None)


def _checkpoint_row(checkpoint: CheckpointView) -> list[object]:
    name = as_text(checkpoint.name)
    name += " :blue-badge[latest]" if checkpoint.latest else ""
    name += " :green-badge[best]" if checkpoint.best else ""
    return [
        Markup(name),
        count(checkpoint.step),
        number(checkpoint.loss, 4),
        size(checkpoint.size_bytes),
        Markup(f"`{checkpoint.sha256[:12]}`"),
        checkpoint.attempt,
        clock_time(checkpoint.created_at, _zone()),
        download_link(checkpoint.id) if checkpoint.complete else _on_its_way(checkpoint),
    ]


def _on_its_way(checkpoint: CheckpointView) -> str:
    share = checkpoint.received_bytes / checkpoint.size_bytes if checkpoint.size_bytes else 0.0
    return f"{share:.0%} received"


@st.fragment(run_every=5)
@style.readable_without_store
def history(run_id: str) -> None:
    """What happened when, newest first."""
    zone = _zone()
    found = queries.history(service.current().store, run_id)
    newest = found[-MOST_LINES:]
    rows = [(clock_time(line.at, zone), line.attempt, line.text) for line in reversed(newest)]
    table("history", ("When", ">Attempt", "What"), rows)
    if len(found) > len(newest):
        st.caption(f"The newest {len(newest)} of {len(found)} lines; the API has them all.")


@st.fragment(run_every=5)
@style.readable_without_store
def commands(run_id: str) -> None:
    """What was really started on each node, attempt by attempt."""
    found = queries.attempts(service.current().store, run_id)
    if not any(part.argv for attempt in found for part in attempt.parts):
        st.caption("Nothing was started yet.")
        return
    for attempt in reversed(found):
        st.markdown(f"**Attempt {attempt.number}** {as_text(_attempt_sentence(attempt))}")
        for part in attempt.parts:
            _command(part)


def _attempt_sentence(attempt: AttemptView) -> str:
    sentence = attempt.state.value
    if attempt.started_at is not None and attempt.ended_at is not None:
        sentence += f" after {duration(attempt.ended_at - attempt.started_at)}"
    if attempt.resumed_from:
        sentence += f", from {attempt.resumed_from}"
    return sentence


def _command(part: PartView) -> None:
    if not part.argv:
        return
    facts = [f"node {part.node_rank}: {part.node}", plural(len(part.devices), "slot")]
    facts += [f"pid {part.pid}"] if part.pid else []
    facts += [f"exit code {part.exit_code}"] if part.exit_code is not None else []
    st.caption(" · ".join(as_text(fact) for fact in facts))
    if part.interpreter:
        st.caption(as_text(" · ".join(described(part.interpreter))))
    lines = [f"cd {shell_line([part.cwd])}"] if part.cwd else []
    lines += [f"export {shell_line([f'{key}={value}'])}" for key, value in sorted((part.env or {}).items())]
    st.code("\n".join([*lines, shell_line(part.argv)]), language="bash", wrap_lines=True)


def specification(spec: RunSpec) -> None:
    """What was asked for, in words and as the API takes it."""
    asked = spec.model_dump(mode="json", exclude_defaults=True) | {"target": spec.target}
    rows = [(LABELS.get(name, name), _told(name, value)) for name, value in asked.items()]
    words, source = st.columns(2)
    with words:
        table("spec", ("Asked for", ""), rows)
        st.caption("Everything else as the recipe or script has it.")
    with source:
        st.code(json.dumps(spec.model_dump(mode="json", exclude_none=True), indent=2), language="json")


def _told(name: str, value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={text}" for key, text in value.items())
    if isinstance(value, list):
        return shell_line([str(word) for word in value])
    if isinstance(value, float):
        return f"{value:g}{SPEC_UNITS.get(name, '')}"
    return str(value)


def _zone() -> ZoneInfo:
    """The browser's time zone, as far as it told one."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")
