"""Show the findings of a running attempt (evidence, meaning and fix), and ask for the pattern of printed lines."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from pydantic import ValidationError

from dashboard.errors import describe
from dashboard.logs.pattern_preview import FittingLine, PatternPreview, preview
from dashboard.service import service
from dashboard.views.layout import actions, permissions
from dashboard.views.layout.tables import table
from db.findings.findings import findings
from domain.messages import State
from domain.requests.errors import InvalidRequest
from domain.series.printed_pattern import MOST_CHARACTERS, NOT_READ, SUCH_AS, proposal
from domain.spec import RunEdit, label_of
from domain.text.formats import as_text, plural, with_code
from domain.views import FindingView, RunView


def now(run: RunView) -> None:
    """Show the current findings of the latest attempt, if there are any."""
    all_findings = findings(service.current().store, run.id, run.attempt)
    for finding in sorted(all_findings, key=lambda finding: finding.kind != "hung"):
        if finding.gone_at is None:
            _card(finding.beyond(_header(run)))
            if finding.kind == NOT_READ:
                ask_for_pattern(run, finding)


def _header(run: RunView) -> str:
    """Return what the first lines of the page say: why the run failed and what to do, or its first finding."""
    if run.state == State.FAILED:
        return f"{run.message or ''}\n{run.next_step or ''}"
    return run.finding or "" if run.state == State.RUNNING and not run.lost_contact else ""


def _card(finding: FindingView) -> None:
    # The header says anew every few seconds where the ranks hang.
    evidence = "" if finding.kind == "hung" else with_code(finding.evidence)
    lines = [f"**{as_text(_headline(finding.kind))}** {evidence}".strip()]
    lines += [as_text(finding.meaning)] if finding.meaning else []
    lines += [f"**What to do:** {with_code(finding.fix)}"] if finding.fix else []
    show = st.error if finding.kind == "hung" else st.warning
    show(
        "\n\n".join(lines),
        icon=":material/hourglass_disabled:" if finding.kind == "hung" else ":material/warning:",
    )


def _headline(kind: str) -> str:
    """Return a finding's kind as a headline; one that begins with a code name is not capitalised."""
    first_word = kind.partition(" ")[0]
    return f"{kind}." if "_" in first_word else f"{kind[:1].upper()}{kind[1:]}."


# Ask for the pattern of printed values that no rule reads, and show at once what it reads.

FIELD, REFUSED = "printed_pattern", "printed_pattern_refused"
HELP = (
    "One of the lines, with names in braces for its numbers: {step} and {epoch} place the values (without them the "
    "lines count 0, 1, 2 …), any other name becomes a chart, {*} may be anything."
)
IN_USE = "In use. The curves appear once the node has read the log again."
NEXT = "for the next attempt and for *Launch again with changes*"
AFTER_END = f"This attempt has ended and is not read again: the pattern applies {NEXT}."
LEAST_FITTING = 3
"""Lines that a proposed pattern fits: that of the finding and two more."""
STORED = f"Stored {NEXT}. This attempt has ended and is not read again."


def ask_for_pattern(run: RunView, finding: FindingView) -> None:
    """Show the field, what its text reads in the run's own lines, and the button that stores it."""
    with st.container(border=True, key="printed_pattern_form"):
        text = _field(run, finding)
        preview, error = _preview(run, text)
        if error is not None:
            st.markdown(f":red[{as_text(error)}]")
        elif preview is not None:
            _show(preview)
        in_use = run.spec.printed_pattern
        if in_use is not None and text.strip() == in_use:
            st.caption(STORED if run.state.is_terminal else IN_USE)
            return
        st.button(
            "Use this pattern",
            type="primary",
            icon=":material/check:",
            key=f"printed_pattern_use_{run.id}",
            **permissions.limits_on(run, disabled=preview is None or not preview.number),
            on_click=actions.attempt,
            args=(lambda: _use(run.id, text), REFUSED),
        )
        actions.show(REFUSED)
        if run.state.is_terminal:
            st.caption(AFTER_END)


def _field(run: RunView, finding: FindingView) -> str:
    """Show the pattern in use, or a proposal from the line that the finding shows."""
    # Not by way of the session state: where a rerun overtakes the first run, the browser would get no value.
    return st.text_input(
        label_of("printed_pattern"),
        run.spec.printed_pattern or _proposed(run, finding),
        key=f"{FIELD}_{run.id}",
        help=HELP,
        live=True,
        autocomplete="off",
        max_chars=MOST_CHARACTERS,
    )


def _proposed(run: RunView, finding: FindingView) -> str:
    """Return a pattern of the line that the finding shows; none if it fits fewer than two others."""
    text = proposal(finding.evidence.partition(SUCH_AS)[2])[:MOST_CHARACTERS]
    read, _ = _preview(run, text)
    return text if read is not None and read.number >= LEAST_FITTING else ""


def _preview(run: RunView, text: str) -> tuple[PatternPreview | None, str | None]:
    """Return what the pattern reads, or the rule that it breaks."""
    try:
        return preview(service.current(), run.id, text), None
    except ValueError as error:
        return None, f"The pattern {error}."


def _show(preview: PatternPreview) -> None:
    lines = f"the last {plural(preview.lines, 'line')}"
    if not preview.number:
        st.caption(f"No line fits among {lines}.")
        return
    st.caption(f"{preview.number} of {lines} fit, the newest:")
    has_epoch = any(line.epoch is not None for line in preview.fitting)
    names = list(preview.fitting[-1].values)
    titles = [">Step", *([">Epoch"] if has_epoch else []), *(f">{name}" for name in names)]
    table("printed_pattern", titles, [_row(line, names, has_epoch) for line in preview.fitting])


def _row(line: FittingLine, names: Sequence[str], has_epoch: bool) -> list[object]:
    counted = "" if has_epoch else "counted"
    step: object = counted if line.step is None else line.step
    epoch = [f"{line.epoch:g}"] if line.epoch is not None else []
    return [step, *epoch, *(f"{line.values[name]:g}" if name in line.values else "" for name in names)]


def _use(run_id: str, text: str) -> None:
    """Store the pattern. Raises InvalidRequest."""
    try:
        change = RunEdit(printed_pattern=text)
    except ValidationError as error:
        raise InvalidRequest(*describe(error.errors())) from None
    service.current().edit(run_id, change)
