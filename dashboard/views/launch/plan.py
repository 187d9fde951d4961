"""The column beside the form: the plan's figures in words, advice, free nodes, and the command of every node."""

from __future__ import annotations

from collections.abc import Collection

import streamlit as st

from dashboard.planning import interpreters
from dashboard.planning.preview import slurm_job
from dashboard.planning.resolve import Resolved
from domain.choices import RECIPES
from domain.launch.plan import shell_line
from domain.scheduling import resizing
from domain.spec import RunSpec
from domain.text.formats import as_text, count, learning_rate, plural, with_code

MOST_COMMANDS = 8
FIT_ICONS = {"fits": ":material/check_circle:", "waits": ":material/schedule:", "missing": ":material/info:"}


def figures(planned: Resolved) -> None:
    """Show ranks, global batch and learning rate, each with an explanation."""
    spec, requested = planned.figures(), planned.submitted
    product, batch_text = global_batch(spec, requested.batch_size is None)
    rate, rate_text = scaled_lr(spec, requested.lr is None)
    device = "GPU" if planned.cluster.has_gpus else "process"
    _figure("World size", ranks(spec), world_size(spec, device))
    _figure("Global batch", count(product), batch_text)
    _figure("Learning rate", learning_rate(rate), rate_text)


def fit_and_advice(planned: Resolved, shown: Collection[str], environment: str = "", expected: str = "") -> None:
    """Show where the run would start, how long it takes as `expected`, the environment that it builds, warnings that
    are not in `shown`, and advice."""
    fit, uses_python = planned.fit, interpreters.advice(planned.spec)
    refusal = [str(planned.refusal)] if planned.refusal else []
    with st.container(key="launch_room"):
        st.markdown(f"{FIT_ICONS[fit.verdict]} {as_text(fit.sentence)}")
        if expected:
            st.markdown(f":material/timer: {as_text(expected)}")
        if environment:
            st.markdown(f":material/deployed_code: {with_code(environment)}")
        for sentence in [*planned.warnings, *refusal]:
            if sentence not in (*shown, fit.warning):  # the sentence above says it better
                icon = "info" if sentence == uses_python else "warning"
                st.markdown(f":material/{icon}: {as_text(sentence)}")
        for sentence in advice(planned.figures()):
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


# Explain a plan: ranks, global batch, learning rate, and advice.


def world_size(spec: RunSpec, device: str) -> str:
    """Return the world size in words: 2 nodes × 4 GPUs = 8 ranks."""
    per_node = plural(spec.processes_per_node, device, "processes" if device == "process" else None)
    nodes, ranks = plural(spec.nodes, "node"), plural(spec.world_size, "rank")
    if not spec.elastic:
        return f"{nodes} × {per_node} = {ranks}"
    fewest = spec.fewest_nodes
    fewest_ranks = count(fewest * spec.processes_per_node)
    return f"{count(fewest)} to {nodes} × {per_node} = {fewest_ranks} to {ranks}, as available"


def ranks(spec: RunSpec) -> str:
    """Return the number of ranks: 8, or 4 – 8 of an elastic run."""
    most = count(spec.world_size)
    return f"{count(spec.fewest_nodes * spec.processes_per_node)} – {most}" if spec.elastic else most


def global_batch(spec: RunSpec, is_own: bool) -> tuple[int | None, str]:
    """Return the samples of an optimizer step (None: set by the script), and the sentence that explains them."""
    owner = _owner(spec)
    factors = f"× {plural(spec.world_size, 'rank')} × {plural(spec.accumulate, 'accumulation step')}"
    on_fewer_nodes = _batch_on_fewer(spec)
    if spec.batch_size is None:
        return None, f"Batch set by the script {factors}{on_fewer_nodes}"
    own = f" ({owner}’s default)" if is_own else ""
    product = spec.batch_size * spec.world_size * spec.accumulate
    return (
        product,
        f"{count(spec.batch_size)}{own} {factors} = {count(product)} samples a step{on_fewer_nodes}",
    )


def scaled_lr(spec: RunSpec, is_own: bool) -> tuple[float | None, str]:
    """Return the learning rate of every rank (None: set by the script), and the sentence that explains it."""
    if spec.lr is None:
        return None, "Set by the script. Enter a rate to scale it."
    base = f"{learning_rate(spec.lr)}{f' ({_owner(spec)}’s default)' if is_own else ''}"
    on_fewer_nodes = _lr_on_fewer(spec)
    if spec.lr_scaling == "none" or spec.world_size == 1:
        return spec.scaled_lr, f"{base} on {plural(spec.world_size, 'rank')}, not scaled{on_fewer_nodes}"
    return spec.scaled_lr, (
        f"{base} on one rank becomes {learning_rate(spec.scaled_lr)} "
        f"on {plural(spec.world_size, 'rank')} ({spec.lr_scaling}){on_fewer_nodes}"
    )


def advice(spec: RunSpec) -> list[str]:
    """Return advice on the plan, one sentence each, the most important first."""
    return [*_scaling(spec), *_batch_norm(spec)]


def _batch_on_fewer(spec: RunSpec) -> str:
    """Return how the global batch changes on fewer nodes."""
    if spec.fewest_nodes == spec.nodes:
        return ""
    fewer = resizing.sizes(spec)
    if all(now.accumulate == spec.accumulate for now in fewer[:1]):
        return "; on fewer nodes it shrinks"
    most = max(abs(_samples(now) / _samples(spec) - 1) for now in fewer)
    near = "" if most == 0 else f", to within {100 * most:.2g} %,"
    return (
        f"; on fewer nodes kept{near} by accumulation ({count(fewer[0].accumulate)} on "
        f"{plural(fewer[0].nodes, 'node')})"
    )


def _lr_on_fewer(spec: RunSpec) -> str:
    if spec.fewest_nodes == spec.nodes:
        return ""
    fewest = resizing.sizes(spec)[0]
    if spec.lr_on_resize == "keep":
        return "; unchanged on fewer nodes"
    return f"; {learning_rate(fewest.scaled_lr)} on {plural(fewest.nodes, 'node')}"


def _samples(spec: RunSpec) -> int:
    return (spec.batch_size or 1) * spec.world_size * spec.accumulate


def _owner(spec: RunSpec) -> str:
    return "recipe" if spec.target in RECIPES else "script"


def _scaling(spec: RunSpec) -> list[str]:
    if spec.lr is not None and spec.lr_scaling == "none" and spec.world_size > 1:
        return [
            f"The global batch is {spec.world_size}x larger; a higher learning rate usually works: "
            "the linear rule for SGD, sqrt for Adam."
        ]
    return []


def _batch_norm(spec: RunSpec) -> list[str]:
    if spec.target != "image_classifier" or spec.world_size == 1:
        return []
    rank_batch = "its own batch" if spec.batch_size is None else f"its own {plural(spec.batch_size, 'sample')}"
    if "batch" in spec.args or "--norm=batch" in spec.args:
        return [f"BatchNorm normalises over what one rank sees, {rank_batch}, not over the global batch."]
    return [f"GroupNorm is the same on any number of ranks; with --norm batch each rank sees only {rank_batch}."]
