"""The Sweeps page: the list of sweeps, or one sweep with its best trial, curves, parameters and trials."""

from __future__ import annotations

import streamlit as st

from dashboard.api.runs.compare import MOST_RUNS
from dashboard.components.browser import scaling, sweep
from dashboard.service import service
from dashboard.sweeps.document import best_trial, document, state
from dashboard.sweeps.request import SEEDS, launch_best_with_seeds, runs_with_seeds
from dashboard.views.layout import actions, links, permissions, style
from db.exceptions import NoSuchSweep
from db.people.ownership import project_of
from db.sweeps import sweeps
from db.sweeps.sweeps import SweepView
from db.sweeps.trials import TrialView
from domain.launch.plan import program_name
from domain.people.roles import Action
from domain.sweeps import hidden_in_words, params_in_words, saved_in_words
from domain.text.formats import ago, as_text, number, plural

EXAMPLE = "rankzero sweep train.py --param lr=1e-4,3e-4,1e-3 --param accumulate=1,2 --metric val/loss"
LIST = ("Sweep", "Parameters", "Trials", "State", "Started", "Best")
REFUSED = "seeds_refused"


@style.quiet_without_store
def page() -> None:
    """Show the sweep in the address, else all sweeps."""
    sweep_id = st.query_params.get("id")
    if sweep_id is None:
        all_sweeps()
    else:
        _sweep(sweep_id)


@style.refreshed(5)
@style.quiet_without_store
def all_sweeps() -> None:
    """Show the list of sweeps, or what a sweep is, and the way to a new one."""
    current = service.current()
    newest = sweeps.sweeps(current.store)
    links.list_head("Sweeps", "Which values train best?", "New sweep", "sweep")
    if newest:
        rows = [_row(one, current.clock()) for one in newest]
        scaling({"label": "Sweeps", "columns": LIST, "rows": rows}, key="sweep_list")
        return
    purpose = "A sweep trains one spec with different parameters, each trial as a run in the queue, and names the best."
    how = "Enter several values in a field on the Launch page, or start one from a terminal:"
    links.nothing_listed(purpose, how, EXAMPLE)


def _row(one: SweepView, now: float) -> dict[str, object]:
    best = best_trial(one)
    parameters = ", ".join(one.plan.parameters)
    trials = f"{len(one.all_trials)} of {one.plan.count}"
    words = f"{one.plan.metric} {number(best.value)} with {params_in_words(best.params)}" if best else one.message or ""
    cells = [program_name(one.spec), parameters, trials, state(one), ago(one.created_at, now), words]
    return {"cells": cells, "at": 0, "address": links.address("sweeps", id=one.id)}


@style.refreshed(2)
@style.quiet_without_store
def _sweep(sweep_id: str) -> None:
    current = service.current()
    try:
        one = sweeps.sweep(current.store, sweep_id)
    except NoSuchSweep as error:
        st.error(as_text(str(error)))
        links.link("studies", "All studies", key="sweep_all")
        return
    with st.container(horizontal=True, vertical_alignment="center", key="sweep_head"):
        st.header(as_text(program_name(one.spec)), anchor=False, width="content")
        trials = plural(one.plan.count, "trial")
        words = f"{state(one)}, {len(one.all_trials)} of {trials}, {one.plan.effective_search}{_limit(one)}"
        st.markdown(words + as_text(permissions.signed(one.by)), width="content")
        if state(one) == "running":
            limits = permissions.limits(Action.STOP, project_of(one.spec), one.by)
            key = f"sweep_stop_{one.id}"
            st.button("Stop", icon=":material/stop_circle:", key=key, on_click=_stop, args=(one,), **limits)
        runs = [trial.run_id for trial in one.trials if trial.run_id][-MOST_RUNS:]
        if len(runs) > 1:
            help_text = "Their curves, settings and results side by side"
            links.link(
                "compare",
                "Compare trials",
                "sweep_compare",
                "chart",
                "tertiary",
                help_text,
                runs=",".join(runs),
            )
        links.link("studies", "All studies", key="sweep_all", kind="tertiary")
    best = best_trial(one)
    if best:
        _best(one, best)
    if saved := saved_in_words(document(one)):
        st.markdown(as_text(saved))
    for sentence in filter(None, (hidden_in_words(len(one.hidden)), one.message)):
        st.markdown(as_text(sentence))
    sweep(one.id, key="sweep_picture")


def _limit(one: SweepView) -> str:
    """Return the device-hours of the ended trials where something limits them, in words."""
    if one.plan.max_device_hours is None:
        return ""
    used = number(document(one)["device_hours"])
    return f", {used} of at most {number(one.plan.max_device_hours)} device-hours used by ended trials"


def _best(one: SweepView, best: TrialView) -> None:
    """Show the best trial, and the button that launches it again with several seeds."""
    figure = f"{one.plan.metric} {number(best.value)}"
    with st.container(horizontal=True, vertical_alignment="center", key="sweep_best"):
        st.markdown(f"**{as_text(f'Best: {figure} with {params_in_words(best.params)}')}**", width="content")
        if best.run_id:
            links.link("run", "Open run", "sweep_best_run", kind="tertiary", id=best.run_id)
        help_text = "Launches the best trial again, once with each of these seeds: how much of its value is luck?"
        st.button(
            f"Repeat best with {len(SEEDS)} seeds",
            icon=":material/casino:",
            key=f"sweep_seeds_{one.id}",
            on_click=_launch_seeds,
            args=(one, best),
            **permissions.limits(Action.LAUNCH, project_of(one.spec), help=help_text),
        )
    actions.show(REFUSED)
    if repeated := runs_with_seeds(service.current(), one.id):
        with st.container(horizontal=True, vertical_alignment="center", key="sweep_seeded"):
            st.caption("Repeated:", width="content")
            for run in repeated:
                links.link("run", f"seed {run.spec.seed}", f"sweep_seed_{run.id}", kind="tertiary", id=run.id)
            links.link(
                "compare", "Compare them", "sweep_seeds_compare", "chart", "tertiary",
                runs=",".join(run.id for run in repeated), group="all",
            )  # fmt: skip


def _launch_seeds(one: SweepView, best: TrialView) -> None:
    actions.attempt(lambda: launch_best_with_seeds(service.current(), one, best), REFUSED)


def _stop(one: SweepView) -> None:
    """End a sweep; another person's is asked about."""

    def stop() -> None:
        current = service.current()
        sweeps.request_stop(current.store, one.id, current.clock())

    actions.end_or_ask("sweep", one.id, one.by, "Stop", stop, no="Keep it going")
