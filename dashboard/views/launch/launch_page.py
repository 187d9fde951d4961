"""The Launch page: the form, and beside it the resulting figures, updated at every keystroke."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import streamlit as st
from pydantic import ValidationError
from streamlit.delta_generator import DeltaGenerator

from dashboard.errors import describe
from dashboard.planning import fixes, preview, proposals
from dashboard.planning.resolve import ClusterNodes, resolve
from dashboard.script_reader.options import Option
from dashboard.service import service
from dashboard.studies.sweep_request import SweepRequest
from dashboard.views.launch import code, kept_form, notification_choice, plan, scaling, secret_names, sweeping
from dashboard.views.launch import script as launch_script
from dashboard.views.launch.fields import FORM, MISSING, PREFIX, TARGET_FIELDS, Fields, form_labels
from dashboard.views.launch.form import EMPTY, RECIPE, FormReading, read, values_of
from dashboard.views.launch.script import ScriptForm
from dashboard.views.launch.sweeping import DraftSweep
from dashboard.views.launch.swept_fields import LINES, take_out
from dashboard.views.layout import actions, permissions, style
from dashboard.views.layout.actions import AWAY, cause
from dashboard.views.layout.tables import table
from db.checkpoints import checkpoint_queries
from db.runs.expected_times import expected_time
from domain.catalogue import Section
from domain.people.rights import Denied
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest
from domain.spec import CATALOGUE, RunSpec, names_in
from domain.text.formats import as_text, plural
from domain.views import RunView


@style.quiet_without_store
def page() -> None:
    """Show the form and its meaning; the input stays while other pages are open."""
    if permissions.say_why_not(permissions.visitor().refusal_anywhere(Action.LAUNCH)):
        return
    recipes = {recipe.name: recipe.options for recipe in preview.recipes()}
    _prepare(recipes)
    values = {name: st.session_state[PREFIX + name] for name in EMPTY}
    swept = take_out(values, sweeping.lines())
    script = _script(values | {"args": swept.values["args"]})
    reading = _read(swept.values, script)
    if script is not None:
        swept = swept.with_those(script.swept)
    sweep = sweeping.sweep_of(reading.draft, swept)
    cluster = service.current().cluster()
    wrong = reading.refusals | _target_error(reading.spec, cluster) | _launch_error(reading.spec)
    wrong |= code.refused_environment(reading.spec) | (sweep.refusals if sweep else {})
    labels = form_labels(cluster.has_gpus)
    form, meaning = st.columns([2, 1], gap="large")
    with form, st.container(key="launch_form"):
        recipe = recipes.get(values["recipe"], []) if values["source"] == RECIPE else []
        own = script.own_defaults() if script else {option.name: option.default for option in recipe}
        owner = "script" if script else "recipe"
        defaults = {name: f"default of the {owner}: {value}" for name, value in own.items() if value}
        shown = {name: text for name, text in wrong.items() if name != "target" or not reading.names_no_code}
        is_named = values["source"] == RECIPE or not (reading.names_no_code or "target" in wrong)
        useless = launch_script.useless_fields(script, is_named)
        inputs = Fields(labels, _placeholders(cluster) | defaults, shown)
        _fields(inputs, recipes, recipe, script, cluster, useless)
    with meaning, st.container(key="launch_meaning"):
        _meaning(reading, sweep, cluster, wrong, labels)
    kept_form.keep()


TARGET_LABELS = {source: FORM[name].label if name in FORM else source for source, name in TARGET_FIELDS.items()}
FILLED_FROM, OPENED = "launch_filled_from", "launch_opened"
STUDIES = ("sweep", "study")
"""Names of the popovers that make several runs of the form."""


def _script(values: Mapping[str, Any]) -> ScriptForm | None:
    """Read the named script's own fields."""
    script = launch_script.form_of(values)
    launch_script.follow_strategy(script, PREFIX + "strategy")
    return script


def _read(values: Mapping[str, Any], script: ScriptForm | None) -> FormReading:
    if script is None:
        return read(values)
    guess = script.script.guess
    reading = read(
        {**values, **{name: EMPTY[name] for name in script.unused}},
        script.args,
        None if guess.launcher == "torchrun" else guess.launcher,
    )
    refusals = {**reading.refusals, **script.refusals}
    return FormReading(None if refusals else reading.spec, reading.draft, refusals)


def _prepare(recipes: Collection[str]) -> None:
    """Fill the form: at first with nothing but the last script, or with the settings of the run in the address."""
    _fill_from_proposal(st.query_params.get(proposals.PARAMETER), recipes)
    like_run = st.query_params.get("from")
    with_fix = "fix" in st.query_params
    if like_run and (like_run, with_fix) != st.session_state.get(FILLED_FROM):
        st.session_state[FILLED_FROM] = (like_run, with_fix)
        _fill_from(like_run, recipes, with_fix)
    last = {} if PREFIX + "script" in st.session_state else code.last_code()
    proposed = {"recipe": next(iter(recipes), None), "project": permissions.project_to_launch_in()}
    for name, value in (EMPTY | proposed | last).items():
        st.session_state.setdefault(PREFIX + name, value)
    _open_asked()


def _open_asked() -> None:
    """Open the popover that the address asks for, once a visit: /launch?new=sweep."""
    opened = st.query_params.get("new")
    if opened in STUDIES and opened != st.session_state.get(OPENED):
        st.session_state[PREFIX + opened] = True
    st.session_state[OPENED] = opened


def fill_anew() -> None:
    """Let the form be filled from its address again at its next visit; called on other pages."""
    st.session_state.pop(FILLED_FROM, None)
    st.session_state.pop(OPENED, None)


def _clear() -> None:
    for name in EMPTY:
        st.session_state.pop(PREFIX + name, None)
    launch_script.forget()
    st.session_state.pop("launch_notice", None)
    st.session_state.pop(LINES, None)
    kept_form.forget()


def _fill_from(run_id: str, recipes: Collection[str], with_fix: bool) -> None:
    run = service.current().find_run(run_id)
    if run is None:
        st.session_state["launch_notice"] = f"There is no run {run_id[:20]}; the form is unchanged."
        return
    fix = _fix_of(run) if with_fix else None
    change = f" {fix.sentence}" if fix and fix.spec else ""
    st.session_state["launch_notice"] = f"Filled in from run {run.name} ({run.id}).{change}"
    spec = fix.spec if fix and fix.spec else run.spec
    for name, value in launch_script.fill_from(spec, values_of(spec, recipes)).items():
        st.session_state[PREFIX + name] = value


def _fill_from_proposal(text: str | None, recipes: Collection[str]) -> None:
    """Fill the form with the run that a link of an agent proposes, once a visit."""
    if text is None or text == st.session_state.get(FILLED_FROM, (None, None))[1]:
        return
    current = service.current()
    proposal = proposals.read(current.credentials, text, current.clock())
    st.session_state[FILLED_FROM] = (proposal.like or None if proposal else None, text)
    run = current.find_run(proposal.like) if proposal and proposal.like else None
    if proposal is None or (proposal.like and run is None):
        st.session_state["launch_notice"] = (
            "This proposal is more than a week old, or not of this dashboard; ask again."
        )
        return
    try:
        spec = RunSpec.model_validate((run.spec.model_dump() if run else {}) | dict(proposal.spec))
    except ValidationError as error:
        st.session_state["launch_notice"] = f"The proposal cannot be launched: {describe(error.errors())[1]}"
        return
    st.session_state["launch_notice"] = f"Proposed by {proposal.by}: look at it before you launch it."
    for name, value in launch_script.fill_from(spec, values_of(spec, recipes)).items():
        st.session_state[PREFIX + name] = value


def _fix_of(run: RunView) -> fixes.Fix | None:
    return fixes.fix_of(run, checkpoint_queries.checkpoints(service.current().store, run.id))


def _fields(
    form: Fields,
    recipes: Iterable[str],
    recipe_options: Sequence[Option],
    script: ScriptForm | None,
    cluster: ClusterNodes,
    useless: Collection[str],
) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="launch_filled"):
        if notice := st.session_state.get("launch_notice"):
            st.caption(as_text(notice), width="content")
            st.button("Start from an empty form", type="tertiary", on_click=_clear, key="launch_clear")
    with st.container(border=True):
        _code_section(form, recipes, script)
    with st.container(border=True, key="launch_how"):
        _scale_section(form, cluster, useless)
    with st.container(border=True, key="launch_arguments"):
        with st.container():
            if script is not None:
                script.draw()
        form.show("args")
        _own_options(recipe_options)
    more = st.expander(
        "Advanced: environment, secrets, data, packages, interpreter, directory, resume, nodes, priority and restarts",
        key="launch_more",
        on_change="rerun",
    )
    if more.open:  # a browser would need as long for its many fields as for all others
        with more:
            _advanced_section(form)


def _code_section(form: Fields, recipes: Iterable[str], script: ScriptForm | None) -> None:
    code.code(form, recipes)
    with st.container():
        if st.session_state[PREFIX + "source"] != RECIPE:
            _launcher(form, script)
    form.row((2, 1), "name", "project")
    notification_choice.field()


def _launcher(form: Fields, script: ScriptForm | None) -> None:
    """Show the choice of launcher, and the guess for the script, whose place is kept while there is none."""
    form.show("launcher")
    if script is None:
        st.space(code.LINE_PX)
    else:
        guess = script.script.guess
        strategy = f" Strategy: {guess.strategy}." if guess.strategy != "ddp" else ""
        with st.container(key="launch_guess"):
            st.markdown(f"Automatic is **{guess.launcher}** here. {as_text(guess.reason)}{strategy}")


def _scale_section(form: Fields, cluster: ClusterNodes, useless: Collection[str]) -> None:
    """Show where and how it trains, without the fields that have no effect on the script."""
    is_slurm = st.session_state[PREFIX + "pool"] == "slurm"
    with st.container(key="grid_scale"):
        form.places(names_in(Section.SCALE), useless)
        with st.container(key="whole_pool"):
            if is_slurm:
                *short, options = names_in(Section.SLURM)
                form.row([2] * len(short), *short)
                form.show(options)
            elif cluster.gateways:
                form.row((2, 2, 2, 2), "pool")
        form.places(names_in(Section.TRAINING), useless)


def _placeholders(cluster: ClusterNodes) -> dict[str, str]:
    """Return the texts of empty fields that depend on the nodes."""
    infos = [partition for gateway in cluster.gateways for partition in gateway.get("partitions", [])]
    names = ", ".join(dict.fromkeys(info["name"] for info in infos))
    placeholders = {"partition": names} if names else {}
    return placeholders | ({"gpus_per_node": "1"} if st.session_state[PREFIX + "pool"] == "slurm" else {})


def _own_options(own: Sequence[Option]) -> None:
    """Show the recipe's options beyond the fields above."""
    remaining = [option for option in own if option.name not in CATALOGUE and option.name != "output_dir"]
    if remaining:
        with st.popover("Further options of the recipe", icon=":material/tune:", type="tertiary"):
            rows = [(option.flags[-1], _default(option), option.help) for option in remaining]
            table("recipe_options", ("Option", "Default", "Description"), rows)


def _default(option: Option) -> str:
    return "" if option.default in (None, []) else str(option.default)


def _advanced_section(form: Fields) -> None:
    _, right = _two_columns(form, names_in(Section.ADVANCED))
    if st.session_state[PREFIX + "source"] == RECIPE:
        with right:
            form.show("launcher")
    st.divider()
    _two_columns(form, names_in(Section.FAILURES))


def _two_columns(form: Fields, names: Sequence[str]) -> Sequence[DeltaGenerator]:
    """Show the first half of the fields on the left, the others on the right."""
    columns, middle = st.columns(2), (len(names) + 1) // 2
    for column, shown in zip(columns, (names[:middle], names[middle:]), strict=True):
        with column:
            for name in shown:
                if name == secret_names.FIELD:
                    secret_names.field(form)
                else:
                    form.show(name)
    return columns


def _meaning(
    reading: FormReading,
    sweep: DraftSweep | None,
    cluster: ClusterNodes,
    wrong: Mapping[str, str],
    labels: Mapping[str, str],
) -> None:
    """Show what follows from the form; of a sweep, of its first trial."""
    draft = sweep.trial if sweep and sweep.trial else reading.draft
    planned = None if draft is None else resolve(draft, cluster)
    if planned is not None:
        plan.figures(planned)
    with st.container(key="launch_go"):
        button = st.container()
        _refused_fields(wrong, labels, reading)
    seeds = sweep.seeds if sweep else None
    if seeds:
        sweeping.seeds_panel(seeds)
    request = sweeping.panel(sweep, reading.spec) if sweep and not seeds else None
    with button:
        if sweep is None:
            _launch_button(reading, wrong)
        elif seeds:
            sweeping.seeds_button(reading.spec, seeds, bool(wrong), _like())
        else:
            _sweep_button(request, wrong)
    if planned is not None:
        if not reading.names_no_code:
            refused = code.refused_environment(planned.spec).get("environment", "")
            environment = refused.removeprefix("environment: ") or code.environment(planned.spec)
            expected = expected_time(service.current().store, planned.spec)
            sentence = expected.sentence if expected else ""
            plan.fit_and_advice(planned, set(wrong.values()), environment, sentence)
            code.freeze_button(planned.spec, environment)
            scaling.cite(planned)
        if sweep is None:
            scaling.popover(reading.spec, _like())
        sweeping.popover(wrong.get(LINES))
    if planned is not None and reading.spec is not None:
        plan.commands(planned)


def _launch_button(reading: FormReading, wrong: Mapping[str, str]) -> None:
    """Show the Launch button, disabled while a field is wrong; a launch that the store rejected can be retried."""
    again = "launch_refused" in st.session_state
    # No callback: it would get the spec of the last drawing, which lacks what was typed since.
    if st.button(
        "Launch", type="primary", icon=":material/play_arrow:", width="stretch", key="launch_now",
        disabled=bool(wrong) and not again,
    ):  # fmt: skip
        _launch(reading.spec)


def _sweep_button(request: SweepRequest | None, wrong: Mapping[str, str]) -> None:
    """Show the button that launches the sweep, and why it was refused."""
    label = f"Launch the sweep of {plural(request.count, 'run')}" if request else "Launch the sweep"
    if st.button(
        label, type="primary", icon=":material/tune:", width="stretch", key="launch_now",
        disabled=request is None or bool(wrong),
    ) and request:  # fmt: skip
        sweeping.launch(request, _like())
    actions.show(sweeping.REFUSED)


def _refused_fields(wrong: Mapping[str, str], labels: Mapping[str, str], reading: FormReading) -> None:
    """Name the fields that are wrong; of a form whose only lack is its code, what to do first."""
    if not wrong:
        return
    if reading.names_no_code and wrong.keys() == {"target"}:
        missing = MISSING[st.session_state[PREFIX + "source"]]
        st.caption(as_text(f"First {missing}"))
        return
    again = "launch_refused" in st.session_state
    target = TARGET_LABELS[st.session_state[PREFIX + "source"]]
    labels = {**labels, "target": target, "snapshot": target, LINES: "Sweep"}
    fields = ", ".join(dict.fromkeys(labels.get(name, "the script's arguments") for name in wrong))
    sentence = "Not launched. Fix these fields and try again" if again else "Fix these fields to launch"
    st.caption(f":red[{sentence}: {as_text(fields)}.]")


def _launch(spec: RunSpec | None) -> None:
    """Launch the run and open it, or show the error."""
    if spec is None:
        return
    try:
        recipient = notification_choice.recipient()
    except InvalidRequest as error:
        notification_choice.refuse(error)
        st.rerun()
    try:
        run_id = service.current().launch(spec, _like())
    except (InvalidRequest, Denied) as error:
        field = "project" if isinstance(error, Denied) else error.field or "target"
        refusal = {"spec": spec, "field": field, "message": str(error)}
        st.session_state["launch_refused"] = refusal
        st.rerun()
    except AWAY as error:
        st.error(as_text(f"Not launched. {cause(error)}"), icon=":material/cloud_off:")
        return
    notification_choice.launched(run_id, recipient)
    st.session_state.pop("launch_notice", None)
    kept_form.leave_for("run", id=run_id)


def _like() -> str | None:
    """Return the run that the form was filled from, whose masked values are used."""
    run_id: str | None = st.session_state.get("launch_filled_from", (None, False))[0]
    return run_id


def _target_error(spec: RunSpec | None, cluster: ClusterNodes) -> dict[str, str]:
    """Return the error of a target that cannot be launched: missing code, an empty masked value, too long arguments."""
    try:
        if spec is not None:
            service.current().launchable(spec, cluster, _like())
    except InvalidRequest as error:
        return {error.field or "target": str(error)}
    return {}


def _launch_error(spec: RunSpec | None) -> dict[str, str]:
    """Return the error of the last launch at its field, until the form is changed."""
    refusal = st.session_state.get("launch_refused")
    if refusal is None or refusal["spec"] != spec:
        st.session_state.pop("launch_refused", None)
        return {}
    return {refusal["field"]: refusal["message"]}
