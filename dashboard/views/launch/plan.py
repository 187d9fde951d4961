"""The column beside the form: the plan's figures, advice, free nodes, and the command of every node."""

from __future__ import annotations

from collections.abc import Collection

import streamlit as st

from dashboard.planning import interpreters
from dashboard.planning.preview import slurm_job
from dashboard.planning.resolve import Resolved
from dashboard.views.launch import meaning
from domain.launch.plan import shell_line
from domain.text.formats import as_text, count, learning_rate

MOST_COMMANDS = 8
FIT_ICONS = {"fits": ":material/check_circle:", "waits": ":material/schedule:", "missing": ":material/info:"}


def figures(planned: Resolved) -> None:
    """Show ranks, global batch and learning rate, each with an explanation."""
    spec, asked = planned.figures(), planned.asked
    product, batch_text = meaning.global_batch(spec, asked.batch_size is None)
    rate, rate_text = meaning.scaled_lr(spec, asked.lr is None)
    device = "GPU" if planned.cluster.has_gpus else "process"
    _figure("World size", meaning.ranks(spec), meaning.world_size(spec, device))
    _figure("Global batch", count(product), batch_text)
    _figure("Learning rate", learning_rate(rate), rate_text)


def fit_and_advice(planned: Resolved, shown: Collection[str]) -> None:
    """Show where the run would start, warnings that are not in `shown`, and advice."""
    fit, uses_python = planned.fit, interpreters.advice(planned.spec)
    refusal = [str(planned.refusal)] if planned.refusal else []
    with st.container(key="launch_room"):
        st.markdown(f"{FIT_ICONS[fit.verdict]} {as_text(fit.sentence)}")
        for sentence in [*planned.warnings, *refusal]:
            if sentence not in (*shown, fit.warning):  # the sentence above says it better
                icon = "info" if sentence == uses_python else "warning"
                st.markdown(f":material/{icon}: {as_text(sentence)}")
        for sentence in meaning.advice(planned.figures()):
            st.markdown(f":material/lightbulb: {as_text(sentence)}")


def commands(planned: Resolved) -> None:
    """Show the command of every node, built by the same function that the worker uses."""
    if planned.spec.pool == "slurm":
        job = slurm_job(planned.spec, planned.cluster)
        st.caption("The job that the gateway submits")
        st.code(f"{shell_line(job.argv)}\n\n{job.script}", language="bash", wrap_lines=True)
    node_commands = planned.commands
    for command in node_commands[:MOST_COMMANDS]:
        st.caption("Command" if len(node_commands) == 1 else f"Command of node {command.node_rank}")
        st.code(shell_line(command.argv), language="bash", wrap_lines=True)
    if len(node_commands) > MOST_COMMANDS:
        st.caption("and so on, with `--node-rank` counting up")


def _figure(label: str, value: str, sentence: str) -> None:
    with st.container(key=f"figure_{label.split()[0].lower()}", gap=None):
        st.metric(label, value)
        st.caption(as_text(sentence))
