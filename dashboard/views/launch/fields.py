"""The inputs of the launch form, each with its help and, directly below it, what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from domain.field_labels import LABELS
from domain.text.formats import as_text

PREFIX = "launch_"
HELP = {
    "script": "Absolute path on the dashboard's machine. Code that is elsewhere comes with `rankzero launch`.",
    "git_url": "https:// or ssh://, or git@host:path; fetched with the dashboard's own keys and credentials.",
    "ref": "Empty: the repository's default branch.",
    "entry": "The file to start, relative to the folder.",
    "module": "Instead of a file: started with -m.",
    "code_as": "The snapshot of the earlier run, or what is there now.",
    "nodes": "2:4 is a run that starts with 2 to 4 nodes, as there are, and grows and shrinks at a checkpoint.",
    "gpus_per_node": "Processes started on each node. Empty: as many as the emptiest node has free slots.",
    "batch_size": "Samples per GPU and forward pass. Out of memory? Lower this and raise the accumulation.",
    "accumulate": "Forward passes per optimizer step. Multiplies the global batch, costs no memory.",
    "lr": "The rate for one GPU, before the scaling rule. 3e-4 is understood.",
    "lr_scaling": "linear: times the ranks (SGD, Goyal et al. 2017). sqrt: times their square root (Adam).",
    "warmup_steps": "Optimizer steps over which the rate rises from nearly 0.",
    "strategy": "ddp: a replica on every rank. fsdp: parameters sharded over the ranks. "
    "dp: one process, all GPUs. single: one process, one GPU.",
    "precision": "bf16 and fp16 are autocast; fp16 with a gradient scaler.",
    "seed": "Each rank derives its own from it. Empty: the script's own.",
    "args": "Added to the command, quoted as in a shell. {lr}, {batch_size}, {epochs}, {max_steps}, {seed}, "
    "{run_dir} and {resume} are filled in; the environment has the same values as RANKZERO_LR and so on.",
    "env": "One NAME=VALUE a line.",
    "links": "One NAME=PATH a line: a folder of the node that appears as NAME in the working directory.",
    "priority": "-100 to 100; in the queue higher ones start first.",
    "labels": "One NAME=VALUE a line: only nodes with these labels, as `rankzero worker --label` gave them.",
    "on_nodes": "Names, separated by commas: only these nodes. Empty: any.",
    "workdir": "Empty: a fresh directory for every attempt. A path: the run works in place.",
    "python": "The Python that trains, or the folder of a virtual environment, on the nodes. Empty: the .venv or "
    "venv in the script's project where every node is on this machine, else each node's default.",
    "launcher": "automatic: torchrun, or python for a single process.",
    "resume": "RUN or RUN:CHECKPOINT; without a name the latest complete one.",
    "probe": "Steps, waiting for data, memory, and the line of every rank; finds hangs and silent mistakes. "
    "Costs less than 1 % of the step rate; the script is not changed.",
    "hang_after_s": "Seconds without a step of any rank; saving, validating and compiling do not count.",
    "on_hang": "report: say which rank is behind. end: stop the run. resume: stop it, and go on from its "
    "latest checkpoint.",
    "max_restarts": "So often the run goes on by itself, from its last complete checkpoint, after it failed.",
    "min_nodes": "With so many nodes an attempt makes do that follows a loss; the global batch is kept by "
    "accumulation. Empty: as many as at first.",
    "on_lost_node": "wait: as long as the other ranks step. end: as soon as the node counts as lost.",
    "lr_on_resize": "keep: as at first, for the global batch is kept. scale: by the scaling rule for the ranks "
    "there are.",
    "torchrun_restarts": "torchrun starts its ranks again within the attempt, and Rankzero does not hear of it. "
    "Restarts, above, are the ones it looks after.",
    "pool": "nodes: those on the Nodes page. slurm: a job of the cluster to which a gateway has joined.",
    "partition": "Empty: the cluster's default.",
    "account": "Empty: yours, as Slurm knows it.",
    "time_limit": "90 (minutes), 12:00:00 or 2-12 (days-hours). Shortly before, the ranks are told to save.",
    "sbatch_options": "Quoted as in a shell: --constraint=a100 --mem=64G --cpus-per-gpu=8",
    "stop_grace_s": "Seconds between SIGTERM and SIGKILL when the run is stopped.",
}


class Fields:
    """The inputs of the form: what is wrong with one stands directly below it."""

    def __init__(self, own: Mapping[str, Any], refusals: Mapping[str, str], owner: str) -> None:
        self._own = own
        self._refusals = refusals
        self._owner = owner

    def text(self, name: str, label: str | None = None, placeholder: str | None = None) -> None:
        """One line; committed a quarter of a second after the last key."""
        own = self._own.get(name)
        st.text_input(
            label or LABELS[name],
            key=PREFIX + name,
            placeholder=f"{self._owner}'s own: {own}" if own else placeholder,
            help=HELP.get(name),
            live=True,
            autocomplete="off",
            persist_state="session",
        )
        self.refusal(name)

    def area(self, name: str, placeholder: str) -> None:
        """Several lines."""
        st.text_area(
            LABELS[name],
            key=PREFIX + name,
            placeholder=placeholder,
            help=HELP.get(name),
            height=68,
            persist_state="session",
        )
        self.refusal(name)

    def choice(self, name: str, label: str | None, options: tuple[str, ...]) -> None:
        """One of a few."""
        st.segmented_control(
            label or LABELS[name],
            options,
            key=PREFIX + name,
            help=HELP.get(name),
            required=True,
            persist_state="session",
        )
        self.refusal(name)

    def refusal(self, name: str) -> None:
        """The sentence that says what is wrong, if anything is."""
        if name in self._refusals:
            with st.container(key=f"refusal_{name}"):
                sentence = self._refusals[name].removeprefix(f"{name}: ")
                st.markdown(f":red[{as_text(sentence[:1].upper() + sentence[1:])}]")
