"""The column beside the form: the plan's figures, advice, free nodes, and the command of every node."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import streamlit as st

from dashboard.planning import interpreters, script_defaults
from dashboard.planning.eligible_nodes import nodes_for, with_devices_counted
from dashboard.planning.preview import SlurmPreview, capacity, preview, with_recipe_defaults
from dashboard.service import service
from dashboard.views.launch import meaning
from domain.spec import RunSpec
from domain.text.formats import as_text, count, learning_rate
from domain.text.shell import shell_line
from domain.views import NodeView

MOST_COMMANDS = 8
ROOM_ICONS = {"fits": ":material/check_circle:", "waits": ":material/schedule:", "missing": ":material/info:"}


def device_word(nodes: Sequence[NodeView]) -> str:
    """Return "GPU", or "process" where no online node has one."""
    online = [node for node in nodes if node.state == "alive"]
    kinds = {device.kind for node in online for device in node.devices}
    return "process" if kinds == {"cpu"} else "GPU"


def figures(draft: RunSpec) -> None:
    """Show ranks, global batch and learning rate, each with an explanation."""
    nodes = service.current().nodes()
    spec = _resolved(draft, nodes)
    product, batch_text = meaning.global_batch(spec, draft.batch_size is None)
    rate, rate_text = meaning.scaled_lr(spec, draft.lr is None)
    _figure("World size", meaning.ranks(spec), meaning.world_size(spec, device_word(nodes)))
    _figure("Global batch", count(product), batch_text)
    _figure("Learning rate", learning_rate(rate), rate_text)


def fit_and_advice(draft: RunSpec, shown: Collection[str]) -> None:
    """Show where the run would start, warnings that are not in `shown`, and advice."""
    nodes = service.current().nodes()
    spec = _resolved(draft, nodes)
    fit = _slurm_fit(nodes) if spec.pool == "slurm" else meaning.fit(spec, nodes_for(spec, nodes))
    with st.container(key="launch_room"):
        st.markdown(f"{ROOM_ICONS[fit.verdict]} {as_text(fit.sentence)}")
        shown = {*shown, *capacity(spec, nodes)}  # the sentence above says it better
        trains_with = interpreters.advice(interpreters.with_project_python(draft, nodes))
        for sentence in preview(draft, nodes).warnings:
            if sentence not in shown:
                icon = "info" if sentence == trains_with else "warning"
                st.markdown(f":material/{icon}: {as_text(sentence)}")
        for sentence in meaning.advice(spec):
            st.markdown(f":material/lightbulb: {as_text(sentence)}")


def commands(spec: RunSpec) -> None:
    """Show the command of every node, built by the same function that the worker uses."""
    plan = preview(spec, service.current().nodes())
    if isinstance(plan, SlurmPreview):
        st.caption("The job that the gateway submits")
        st.code(f"{shell_line(plan.job.argv)}\n\n{plan.job.script}", language="bash", wrap_lines=True)
    planned = plan.commands
    for command in planned[:MOST_COMMANDS]:
        st.caption("Command" if len(planned) == 1 else f"Command of node {command.node_rank}")
        st.code(shell_line(command.argv), language="bash", wrap_lines=True)
    if len(planned) > MOST_COMMANDS:
        st.caption("and so on, with `--node-rank` counting up")


def _slurm_fit(nodes: Sequence[NodeView]) -> meaning.Fit:
    gateways = [node for node in nodes if node.pool == "slurm"]
    if not gateways:
        return meaning.Fit("missing", "No Slurm gateway has joined: run `rankzero gateway` on the cluster.")
    if not any(node.state == "alive" for node in gateways):
        return meaning.Fit("missing", f"No contact with the gateway {gateways[0].name}.")
    return meaning.Fit("waits", "Slurm allocates the nodes and reports when the job starts or why it waits.")


def _resolved(draft: RunSpec, nodes: Sequence[NodeView]) -> RunSpec:
    """Return the plan with defaults filled in from the recipe, the script and the free devices."""
    return script_defaults.with_script_figures(with_recipe_defaults(with_devices_counted(draft, nodes)))


def _figure(label: str, value: str, sentence: str) -> None:
    with st.container(key=f"figure_{label.split()[0].lower()}", gap=None):
        st.metric(label, value)
        st.caption(as_text(sentence))
