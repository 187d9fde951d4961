"""A sweep in the form: several values or a range in its fields make trials; how these are compared and chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from pydantic import ValidationError

from dashboard.errors import describe
from dashboard.service import service
from dashboard.studies.sweep_request import SweepRequest, create, launch_with_seeds, seed_specs
from dashboard.studies.trial_spec import trial_spec
from dashboard.views.launch import kept_form, notification_choice
from dashboard.views.launch.swept_fields import LINES, NUMBERS, SweptFields
from dashboard.views.layout import actions
from domain.choices import RECIPES
from domain.requests.errors import InvalidRequest
from domain.series.goals import goal
from domain.spec import RunSpec
from domain.sweeps import EarlyStop, SweepPlan, SweptParameter, Value, as_argument, listed, params_in_words
from domain.text.formats import as_text, plural


@dataclass(frozen=True)
class DraftSweep:
    """The sweep of a form whose fields have several values."""

    fields: SweptFields
    trial: RunSpec | None = None
    """The spec of the first trial; None where a parameter has no way to the program."""
    refusals: dict[str, str] = field(default_factory=dict)

    @property
    def parameters(self) -> Mapping[str, SweptParameter]:
        """The parameters that differ between the trials, by name."""
        return self.fields.parameters

    @property
    def seeds(self) -> list[int] | None:
        """The seeds where nothing else has several values: these are no trials, but one run for each."""
        return seeds_in(self.parameters)


PREFIX, REFUSED = "sweep_", "sweep_refused"
GOALS = {"min": "low", "max": "high"}
RECIPE_METRIC = "val/loss"
MOST_TRIALS_SHOWN = 6
HINT = (
    "Type several values or a range into the fields of the form: `1e-4, 3e-4`, `16..256` or `1e-5..1e-2 log`; "
    "in the extra arguments in braces: `--width {64,128}`. The form then launches a sweep."
)


def lines() -> str:
    """The parameters that have no field of their own, one a line."""
    return str(st.session_state.get(LINES) or "")


def sweep_of(base: RunSpec | None, fields: SweptFields) -> DraftSweep | None:
    """Return the sweep of the form's parameters; None without any."""
    if not (fields.parameters or fields.refusals):
        return None
    if base is None or fields.refusals:
        return DraftSweep(fields, base, fields.refusals)
    first = {name: parameter.tried[0] for name, parameter in fields.parameters.items()}
    wrong = {name: why for name, value in first.items() if (why := _no_way(base, {name: value}))}
    if not wrong and (seeds := seeds_in(fields.parameters)):
        wrong = {"seed": why} if (why := seeds_refusal(base, seeds)) else {}
    elif not wrong and (why := _no_way(base, first)):
        wrong = {LINES: why}
    shown = {name if name in NUMBERS else LINES: why for name, why in wrong.items()}
    return DraftSweep(fields, None if wrong else trial_spec(base, first), shown)


def _no_way(base: RunSpec, params: Mapping[str, Value]) -> str | None:
    """Why a trial with these values cannot be made; None where it can."""
    try:
        trial_spec(base, params)
    except ValidationError as error:
        return describe(error.errors())[1]
    except InvalidRequest as error:
        return str(error).removeprefix("parameters: ")
    return None


def popover(refusal: str | None) -> None:
    """Say how a sweep is typed, and ask for parameters that have no field."""
    with st.popover("Sweep", icon=":material/tune:", key="launch_sweep", on_change="rerun"):
        st.markdown(HINT)
        st.text_area(
            "Other parameters, one a line",
            key=LINES,
            height=96,
            placeholder="precision=fp32,bf16\nstrategy=ddp,fsdp",
            persist_state="session",
        )
        if refusal:
            st.markdown(f":red[{as_text(refusal)}]")


def panel(sweep: DraftSweep, spec: RunSpec | None) -> SweepRequest | None:
    """Show the trials and how they are compared; return what is to be launched, None while something is wrong."""
    with st.container(border=True, key="launch_trials"):
        trials = st.container()
        metric = _metric(spec)
        plan = _plan(sweep, metric)
        with trials:
            _trials(plan if not sweep.refusals else None)
        if st.session_state.get(notification_choice.TELL):
            st.caption("Single trials send no notifications; set an alert on the Alerts page.")
        if LINES in sweep.refusals:
            st.markdown(f":red[{as_text(sweep.refusals[LINES])}]")
    if plan is None or spec is None or sweep.refusals or not metric:
        return None
    return SweepRequest.model_validate(plan.model_dump() | {"spec": spec})


def launch(request: SweepRequest, like: str | None) -> None:
    """Launch the sweep and open its page, or remember why not."""
    actions.attempt(lambda: kept_form.leave_for("sweeps", id=create(service.current(), request, like)), REFUSED)


def _metric(spec: RunSpec | None) -> str:
    own = RECIPE_METRIC if spec is not None and spec.target in RECIPES else ""
    typed = st.text_input(
        "Metric: the series that is compared",
        key=f"{PREFIX}metric",
        placeholder=f"{own or 'for example val/loss'}",
        live=True,
        autocomplete="off",
        persist_state="session",
    )
    metric = str(typed or "").strip() or own
    if not metric:
        st.markdown(":red[Name the series that is compared, for example val/loss.]")
    return metric


def _plan(sweep: DraftSweep, metric: str) -> SweepPlan | None:
    """Show the fields of the plan; None, with the rule, where they do not go together."""
    likely = goal(metric) or "min"
    left, right = st.columns(2)
    better = left.segmented_control(
        "Better values are",
        list(GOALS),
        default=likely,
        format_func=GOALS.__getitem__,
        key=f"{PREFIX}goal_{likely}",
    )
    search = right.segmented_control("Search", ["grid", "random", "tpe"], key=f"{PREFIX}search")
    early_stop, first_rung = _early_stop()
    left, right = st.columns(2)
    trials = left.number_input("Trials", 1, 10_000, None, key=f"{PREFIX}trials", placeholder="the grid, or 20")
    hours = right.number_input("Device-hours at most", 0.01, None, None, key=f"{PREFIX}hours", placeholder="no limit")
    fields: dict[str, Any] = {
        "parameters": sweep.parameters,
        "metric": metric or RECIPE_METRIC,
        "goal": better or likely,
    }
    fields |= {"search": search, "trials": trials, "max_device_hours": hours}
    try:
        return SweepPlan.model_validate(fields | {"early_stop": early_stop, "first_rung": first_rung})
    except ValidationError as error:
        if sweep.parameters:  # else the fields say what is wrong
            sentence = describe(error.errors())[1].removeprefix("parameters: ")
            st.markdown(f":red[{as_text(sentence[:1].upper() + sentence[1:])}]")
        return None


def _early_stop() -> tuple[EarlyStop, int | None]:
    left, right = st.columns(2)
    chosen: EarlyStop = (
        left.segmented_control(
            "Early stopping",
            ["none", "asha", "median"],
            default="none",
            key=f"{PREFIX}early_stop",
            help="asha: those not in the best third at a step; they resume from their checkpoint if they re-enter it. "
            "median: those behind half of the others.",
        )
        or "none"
    )
    first_rung = right.number_input(
        "First judged at step",
        1,
        None,
        None,
        key=f"{PREFIX}first_rung",
        placeholder="a ninth of the steps",
        disabled=chosen == "none",
    )
    return chosen, first_rung if chosen != "none" else None


def _trials(plan: SweepPlan | None) -> None:
    """Show how many trials there are, and the first of a grid, else what the search draws from."""
    if plan is None:
        st.markdown("**Sweep**")
        return
    search = plan.effective_search
    st.markdown(f"**Sweep of {plural(plan.count, 'run')}**, {search} search")
    if search == "grid":
        shown = [params_in_words(plan.of_grid(number)) for number in range(min(plan.count, MOST_TRIALS_SHOWN))]
        shown += [f"and {plan.count - len(shown)} more"] if plan.count > len(shown) else []
    else:
        shown = list(map(_in_words, plan.parameters.items()))
    st.code("\n".join(shown), language=None, wrap_lines=True)
    st.caption("The figures above and the command below are those of the first trial.")


def _in_words(named: tuple[str, SweptParameter]) -> str:
    name, parameter = named
    if parameter.low is None or parameter.high is None:
        return f"{name}: {', '.join(map(as_argument, parameter.values or ()))}"
    scale = " (log)" if parameter.log else ""
    return f"{name}: {as_argument(parameter.low)} to {as_argument(parameter.high)}{scale}"


# Several seeds in the form: one run for each, launched together and compared as one group.

SEEDS_REFUSED = "seeds_refused"


def seeds_in(parameters: Mapping[str, SweptParameter]) -> list[int] | None:
    """Return the seeds where nothing else has several values; None for a sweep."""
    return listed(parameters["seed"]) if parameters.keys() == {"seed"} else None


def seeds_refusal(base: RunSpec, seeds: list[int]) -> str | None:
    """Return why the spec cannot be launched with these seeds; None where it can."""
    try:
        seed_specs(base, seeds)
    except InvalidRequest as error:
        return str(error).removeprefix("seed: ")
    return None


def seeds_panel(seeds: list[int]) -> None:
    """Say what several seeds are launched as."""
    st.markdown(f"**{plural(len(seeds), 'run')}, one for each seed.** They are compared as one group, averaged.")
    st.caption("The command below is that of the first seed.")


def seeds_button(spec: RunSpec | None, seeds: list[int], is_wrong: bool, like: str | None) -> None:
    """Show the button that launches the runs and opens their comparison, and why it was refused."""
    if st.button(
        f"Launch {plural(len(seeds), 'run')}, one for each seed", type="primary", icon=":material/play_arrow:",
        width="stretch", key="launch_now", disabled=is_wrong or spec is None,
    ) and spec is not None:  # fmt: skip
        actions.attempt(lambda: _launch_seeds(spec, seeds, like), SEEDS_REFUSED)
    actions.show(SEEDS_REFUSED)


def _launch_seeds(spec: RunSpec, seeds: list[int], like: str | None) -> None:
    recipient = notification_choice.recipient()
    runs = launch_with_seeds(service.current(), spec, seeds, like=like)
    for run_id in runs:
        notification_choice.launched(run_id, recipient)
    st.session_state.pop("launch_notice", None)
    kept_form.leave_for("compare", runs=",".join(runs), group="all")
