"""What a resume would differ in, and what its checkpoint holds and lacks, in the dialog before the click."""

from __future__ import annotations

import streamlit as st

from dashboard.compare.spec_words import in_words
from domain.checkpoint_use.resuming import ResumeConsequence, ResumePlan
from domain.lists.run_lists import KIND_WORDS, holds_words
from domain.text.formats import as_text


def show(plan: ResumePlan | None) -> bool:
    """Show a resume as it would be; return whether it is possible. None: it starts from the beginning."""
    if plan is None:
        return True
    if plan.checkpoint is not None:
        with st.container(key="resume_plan", gap="xsmall"):
            _contents(plan)
            _differences(plan)
    if plan.why is not None:
        st.error(as_text(plan.why), icon=":material/block:")
    return plan.possible


NOT_READ = "What this checkpoint holds is not known: its node has not read it."
LONGEST_VALUE = 60


def _contents(plan: ResumePlan) -> None:
    if not plan.is_read:
        st.caption(f":material/help: {NOT_READ}")
        return
    st.markdown(f":material/check: It holds {as_text(holds_words(plan.holds))}.")
    lines = [f"- **{as_text(KIND_WORDS[kind])}**: {as_text(plan.consequences[kind])}" for kind in plan.lacks]
    if lines:
        st.markdown("\n".join([":material/info: It lacks", "", *lines]))


def _differences(plan: ResumePlan) -> None:
    if not plan.differs:
        st.markdown(":material/check: Nothing known differs from when it was written.")
        return
    title = f":material/compare_arrows: Different from attempt {plan.attempt}, which wrote it"
    st.markdown("\n".join([title, "", *map(_line, plan.differs)]))


def _line(change: ResumeConsequence) -> str:
    then, now = (as_text(_short(value)) for value in in_words(change.then, change.now))
    return f"- **{as_text(change.label)}** {then} → {now}. {as_text(change.means)}"


def _short(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else f"{value[:LONGEST_VALUE]} …"
