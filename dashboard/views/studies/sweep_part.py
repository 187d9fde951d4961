"""A sweep on the Studies page: its trials in words, and its best one, which is launched again with several seeds."""

from __future__ import annotations

import streamlit as st

from dashboard.api.runs.compare import MOST_RUNS
from dashboard.components import browser
from dashboard.service import service
from dashboard.studies.sweep_document import document
from dashboard.studies.sweep_document import state as state
from dashboard.studies.sweep_request import SEEDS, launch_best_with_seeds, runs_with_seeds
from dashboard.views.layout import actions, links, permissions
from db.people.ownership import project_of
from db.studies.studies import SweepView
from domain.people.roles import Action
from domain.studies import Trial
from domain.sweeps import best_trial, hidden_in_words, params_in_words, saved_in_words
from domain.text.formats import as_text, number, plural

REFUSED = "seeds_refused"


def cells(sweep: SweepView) -> tuple[str, str, str]:
    """Return its parameters, its trials, and the best one or why it ended."""
    best = best_trial(sweep.plan, sweep.trials)
    in_words = f"{sweep.plan.metric} {number(best.value)} with {params_in_words(best.params)}" if best else None
    trials = f"{len(sweep.all_trials)} of {sweep.plan.count}"
    return ", ".join(sweep.plan.parameters), trials, in_words or sweep.message or ""


def words(sweep: SweepView) -> str:
    """Return how many trials there are, and how they are chosen."""
    trials = f"{len(sweep.all_trials)} of {plural(sweep.plan.count, 'trial')}"
    return f"{trials}, {sweep.plan.effective_search}{_limit(sweep)}"


def compare(sweep: SweepView) -> None:
    """Show the link to the comparison of all trials."""
    runs = [trial.run_id for trial in sweep.trials if trial.run_id][-MOST_RUNS:]
    if len(runs) > 1:
        help_text = "Their curves, settings and results side by side"
        links.link("compare", "Compare trials", "sweep_compare", "chart", "tertiary", help_text, runs=",".join(runs))


def show(sweep: SweepView) -> None:
    """Show the best trial, what pruning saved, and all trials."""
    if best := best_trial(sweep.plan, sweep.trials):
        _best(sweep, best)
    for sentence in filter(None, (saved_in_words(document(sweep)), hidden_in_words(len(sweep.hidden)))):
        st.markdown(as_text(sentence))
    browser.study({"sweep_id": sweep.id}, key="sweep_picture")


def _limit(sweep: SweepView) -> str:
    """Return the device-hours of the ended trials where something limits them, in words."""
    if sweep.plan.max_device_hours is None:
        return ""
    used = number(document(sweep)["device_hours"])
    return f", {used} of at most {number(sweep.plan.max_device_hours)} device-hours used by ended trials"


def _best(sweep: SweepView, best: Trial) -> None:
    """Show the best trial, and the button that launches it again with several seeds."""
    figure = f"{sweep.plan.metric} {number(best.value)}"
    with st.container(horizontal=True, vertical_alignment="center", key="sweep_best"):
        st.markdown(f"**{as_text(f'Best: {figure} with {params_in_words(best.params)}')}**", width="content")
        if best.run_id:
            links.link("run", "Open run", "sweep_best_run", kind="tertiary", id=best.run_id)
        help_text = "Launches the best trial again, once with each of these seeds: how much of its value is luck?"
        st.button(
            f"Repeat best with {len(SEEDS)} seeds",
            icon=":material/casino:",
            key=f"sweep_seeds_{sweep.id}",
            on_click=_launch_seeds,
            args=(sweep, best),
            **permissions.limits(Action.LAUNCH, project_of(sweep.spec), help=help_text),
        )
    actions.show(REFUSED)
    if repeated := runs_with_seeds(service.current(), sweep.id):
        with st.container(horizontal=True, vertical_alignment="center", key="sweep_seeded"):
            st.caption("Repeated:", width="content")
            for run in repeated:
                links.link("run", f"seed {run.spec.seed}", f"sweep_seed_{run.id}", kind="tertiary", id=run.id)
            links.link(
                "compare", "Compare them", "sweep_seeds_compare", "chart", "tertiary",
                runs=",".join(run.id for run in repeated), group="all",
            )  # fmt: skip


def _launch_seeds(sweep: SweepView, best: Trial) -> None:
    actions.attempt(lambda: launch_best_with_seeds(service.current(), sweep, best), REFUSED)
