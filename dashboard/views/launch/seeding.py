"""Several seeds in the form: one run for each, launched together and compared as one group."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboard.service import service
from dashboard.sweeps.seeds import launch_with_seeds, seed_specs
from dashboard.views.launch import keeping, telling
from dashboard.views.layout import refusals
from domain.errors import InvalidRequest
from domain.spec import RunSpec
from domain.sweeps import SweptParameter, listed
from domain.text.formats import plural

REFUSED = "seeds_refused"


def seeds_in(parameters: Mapping[str, SweptParameter]) -> list[int] | None:
    """Return the seeds where nothing else has several values; None for a sweep."""
    return listed(parameters["seed"]) if parameters.keys() == {"seed"} else None


def refusal(base: RunSpec, seeds: list[int]) -> str | None:
    """Return why the spec cannot be launched with these seeds; None where it can."""
    try:
        seed_specs(base, seeds)
    except InvalidRequest as error:
        return str(error).removeprefix("seed: ")
    return None


def panel(seeds: list[int]) -> None:
    """Say what several seeds are launched as."""
    st.markdown(f"**{plural(len(seeds), 'run')}, one for each seed.** They are compared as one group: mean and band.")
    st.caption("The command below is that of the first seed.")


def button(spec: RunSpec | None, seeds: list[int], is_wrong: bool, like: str | None) -> None:
    """Show the button that launches the runs and opens their comparison, and why it was refused."""
    if st.button(
        f"Launch {plural(len(seeds), 'run')}, one for each seed", type="primary", icon=":material/play_arrow:",
        width="stretch", key="launch_now", disabled=is_wrong or spec is None,
    ) and spec is not None:  # fmt: skip
        refusals.attempt(lambda: _launch(spec, seeds, like), REFUSED)
    refusals.show(REFUSED)


def _launch(spec: RunSpec, seeds: list[int], like: str | None) -> None:
    told = telling.recipient()
    runs = launch_with_seeds(service.current(), spec, seeds, like=like)
    for run_id in runs:
        telling.launched(run_id, told)
    st.session_state.pop("launch_notice", None)
    keeping.leave_for("compare", runs=",".join(runs), group="all")
