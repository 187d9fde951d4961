"""Beside the form: the figures of the plan, advice, the room there is, and the command of every node."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

import streamlit as st

from dashboard import cautions, interpreters, service
from dashboard.preview import SlurmPreview, capacity, preview, with_recipe_defaults
from dashboard.room import nodes_for, with_devices_counted
from dashboard.views import launch_meaning
from dashboard.views.formats import as_text, count, learning_rate
from db.spec import RunSpec
from db.views import NodeView

MOST_COMMANDS = 8
ROOM_ICONS = {"fits": ":material/check_circle:", "waits": ":material/schedule:", "missing": ":material/info:"}


def device_word(nodes: Sequence[NodeView]) -> str:
    """GPU, or process where no node that is alive has one."""
    alive = [node for node in nodes if node.state == "alive"]
    kinds = {device.kind for node in alive for device in node.devices}
    return "process" if kinds == {"cpu"} else "GPU"


def figures(draft: RunSpec) -> None:
    """Ranks, global batch and learning rate, each with the sentence that explains it."""
    nodes = service.current().nodes()
    spec = _resolved(draft, nodes)
    product, batch_text = launch_meaning.global_batch(spec, draft.batch_size is None)
    rate, rate_text = launch_meaning.scaled_lr(spec, draft.lr is None)
    _figure("World size", launch_meaning.ranks(spec), launch_meaning.world_size(spec, device_word(nodes)))
    _figure("Global batch", count(product), batch_text)
    _figure("Learning rate", learning_rate(rate), rate_text)


def room_and_advice(draft: RunSpec, told: Collection[str]) -> None:
    """Where it would run, what to beware of unless it is told elsewhere, and what experience says."""
    nodes = service.current().nodes()
    spec = _resolved(draft, nodes)
    room = _slurm_room(nodes) if spec.pool == "slurm" else launch_meaning.room(spec, nodes_for(spec, nodes))
    with st.container(key="launch_room"):
        st.markdown(f"{ROOM_ICONS[room.verdict]} {as_text(room.sentence)}")
        told = {*told, *capacity(spec, nodes)}  # the room says it better
        trains_with = interpreters.advice(interpreters.with_project_python(draft, nodes))
        for sentence in preview(draft, nodes).warnings:
            if sentence not in told:
                icon = "info" if sentence == trains_with else "warning"
                st.markdown(f":material/{icon}: {as_text(sentence)}")
        for sentence in launch_meaning.advice(spec):
            st.markdown(f":material/lightbulb: {as_text(sentence)}")


def commands(spec: RunSpec) -> None:
    """What every node would start, from the very function the worker starts with."""
    plan = preview(spec, service.current().nodes())
    if isinstance(plan, SlurmPreview):
        st.caption("The job that its gateway submits")
        st.code(f"{shell_line(plan.job.argv)}\n\n{plan.job.script}", language="bash", wrap_lines=True)
    planned = plan.commands
    for command in planned[:MOST_COMMANDS]:
        st.caption("Command" if len(planned) == 1 else f"Command of node {command.node_rank}")
        st.code(shell_line(command.argv), language="bash", wrap_lines=True)
    if len(planned) > MOST_COMMANDS:
        st.caption("and so on, with `--node-rank` counting up")


def shell_line(argv: Sequence[str]) -> str:
    """A command as one would type it; placeholders such as <port> stay readable."""
    return " ".join(word if _is_placeholder(word) else shlex.quote(word) for word in argv)


def _slurm_room(nodes: Sequence[NodeView]) -> launch_meaning.Room:
    gateways = [node for node in nodes if node.pool == "slurm"]
    if not gateways:
        return launch_meaning.Room(
            "missing", "No gateway to a Slurm cluster has joined: `rankzero gateway` there."
        )
    if not any(node.state == "alive" for node in gateways):
        return launch_meaning.Room("missing", f"No contact with the gateway {gateways[0].name}.")
    return launch_meaning.Room(
        "waits", "Slurm gives the nodes; it says when the job starts and why it waits."
    )


def _resolved(draft: RunSpec, nodes: Sequence[NodeView]) -> RunSpec:
    """The plan with everything filled in that is left to the recipe or to what is free."""
    return cautions.with_script_figures(with_recipe_defaults(with_devices_counted(draft, nodes)))


def _is_placeholder(word: str) -> bool:
    bare = word.replace("<", "").replace(">", "")
    return bare != word and shlex.quote(bare) == bare


def _figure(label: str, value: str, sentence: str) -> None:
    with st.container(key=f"figure_{label.split()[0].lower()}", gap=None):
        st.metric(label, value)
        st.caption(as_text(sentence))
