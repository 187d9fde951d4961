"""Show the findings of a running attempt: evidence, meaning and fix."""

from __future__ import annotations

import streamlit as st

from dashboard.service import service
from dashboard.views.run import printed
from db.findings.findings import findings
from domain.printed_pattern import NOT_READ
from domain.text.formats import as_text, with_code
from domain.views import FindingView, RunView


def now(run: RunView) -> None:
    """Show the current findings of the latest attempt, if there are any."""
    all_findings = findings(service.current().store, run.id, run.attempt)
    for finding in sorted(all_findings, key=lambda finding: finding.kind != "hung"):
        if finding.gone_at is None:
            _card(finding)
            if finding.kind == NOT_READ:
                printed.ask(run, finding)


def _card(finding: FindingView) -> None:
    # The first line of the page says where the ranks hang, and says it anew every few seconds.
    evidence = "" if finding.kind == "hung" else as_text(finding.evidence)
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
