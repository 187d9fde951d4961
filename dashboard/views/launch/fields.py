"""The inputs of the launch form, each with its help and its error directly below."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, get_args

import streamlit as st

from dashboard.snapshots.git_address import is_git_address
from dashboard.views.layout import style
from domain import choices
from domain.spec import LABELS, RunSpec
from domain.text.formats import as_text


class Fields:
    """The inputs of the form, each with its error directly below."""

    def __init__(self, labels: Mapping[str, str], placeholders: Mapping[str, str], refusals: Mapping[str, str]) -> None:
        self._labels = labels
        self._placeholders = placeholders
        self._refusals = refusals

    def row(self, widths: Sequence[int], *names: str) -> None:
        """Show fields side by side."""
        for column, name in zip(st.columns(widths), names, strict=False):
            with column:
                self.show(name)

    def places(self, names: Iterable[str], hidden: Collection[str] = ()) -> None:
        """Show fields in a grid (pages.css), choices twice as wide as texts.

        Each has a place of its own, also one that is hidden: else, while a rerun draws, a field that moves would
        stand at its old place and at its new one."""
        for name in names:
            with st.container(key=f"{'wide' if name in CHOICES else 'narrow'}_{name}"):
                if name not in hidden:
                    self.show(name)

    def show(self, *names: str) -> None:
        """Show fields below each other."""
        for name in names:
            with style.explained(name, None if name in self._refusals else HELP.get(name)):
                self._input(name)
            self.refusal(name)

    def refusal(self, name: str) -> None:
        """Show the error of a field, if there is one."""
        if name in self._refusals:
            with st.container(key=f"refusal_{name}"):
                sentence = self._refusals[name].removeprefix(f"{name}: ")
                st.markdown(f":red[{as_text(sentence[:1].upper() + sentence[1:])}]")

    def _input(self, name: str) -> None:
        if name in CHOICES:
            self._choice(name)
        elif name in AREAS:
            self._area(name)
        else:
            self._text(name)

    def _text(self, name: str) -> None:
        """Show a text field, which is read a quarter of a second after the last key."""
        st.text_input(
            self._labels[name],
            key=PREFIX + name,
            placeholder=self._placeholders.get(name),
            live=True,
            autocomplete="off",
            persist_state="session",
        )

    def _area(self, name: str) -> None:
        st.text_area(
            self._labels[name],
            key=PREFIX + name,
            placeholder=self._placeholders.get(name),
            height=68,
            persist_state="session",
        )

    def _choice(self, name: str) -> None:
        st.segmented_control(
            self._labels[name],
            CHOICES[name],
            key=PREFIX + name,
            required=True,
            persist_state="session",
        )


PREFIX = "launch_"
FORM_LABELS = LABELS | {"source": "Train", "script": "Script or folder", "code_as": "Code"}
HELP = {
    "script": "Absolute path on the dashboard's machine. For code elsewhere, use `rankzero launch` there.",
    "git_url": "https:// or ssh://, or git@host:path; fetched with the dashboard's own keys and credentials.",
    "ref": "Empty: the repository's default branch.",
    "entry": "The file to start, relative to the folder.",
    "module": "Instead of a file: run as a module with -m.",
    "code_as": "The snapshot of the earlier run, or the current files.",
    "nodes": "2:4 starts with 2 to 4 available nodes, and grows and shrinks at checkpoints.",
    "gpus_per_node": "Processes started on each node. Empty: all free slots (a slot is "
    "a GPU, or the place of one process on a node without) of the node with the most.",
    "batch_size": "Samples per process and forward pass. Out of memory? Lower this and raise the accumulation. "
    "Several make a sweep: 16, 32, 64.",
    "accumulate": "Forward passes per optimizer step. Multiplies the global batch, costs no memory.",
    "lr": "Rate for one process, before the scaling rule. Several make a sweep: 1e-4, 3e-4 or 1e-5..1e-2 log.",
    "lr_scaling": "linear: times the ranks (SGD, Goyal et al. 2017). sqrt: times their square root (Adam).",
    "warmup_steps": "Optimizer steps over which the rate rises from nearly 0.",
    "strategy": "ddp: a replica on every rank. fsdp: parameters sharded over the ranks. "
    "dp: one process, all GPUs. single: one process, one GPU.",
    "precision": "bf16 and fp16 are autocast; fp16 with a gradient scaler.",
    "seed": "Each rank derives its own seed. Empty: set by the script. Several (1, 2, 3) launch a run for each.",
    "args": "Added to the command, quoted as in a shell. {lr}, {batch_size}, {epochs}, {max_steps}, {seed}, "
    "{run_dir} and {resume} are filled in; the environment has the same values as RANKZERO_LR and so on. "
    "Several values in braces make a sweep: --width {64,128}.",
    "env": "One NAME=VALUE a line.",
    "secrets": "Each reaches the ranks as an environment variable of its name. Yours goes before the project's.",
    "links": "One NAME=PATH a line: a folder of the node that appears as NAME in the working directory.",
    "stage": "One NAME=SOURCE a line: what each node brings before the start, once: an http, https or s3 address, "
    "a path there, or HOST:PATH over the node's ssh; archives are unpacked. It is NAME in the working directory.",
    "priority": "-100 to 100; higher priorities start first.",
    "labels": "One NAME=VALUE a line: only nodes with these labels, as `rankzero worker --label` gave them.",
    "on_nodes": "Names, separated by commas: only these nodes. Empty: any.",
    "workdir": "Empty: a new directory for every attempt. A path: the run works in place.",
    "python": "The Python to use, or a virtual environment's folder, on the nodes. Empty: the .venv or "
    "venv in the script's project where every node is on this machine, else each node's default.",
    "environment": "auto: each node builds the environment of the code's uv.lock, pylock.toml or requirements.txt. "
    "lock: not without one. none: as the node is. Or the path of a lock file in the code, or of an environment there.",
    "launcher": "automatic: torchrun, or python for a single process.",
    "resume": "RUN or RUN:CHECKPOINT; by default the latest complete checkpoint.",
    "probe": "Records steps, data waits, memory and stack traces of every rank; detects hangs and silent mistakes. "
    "Costs less than 1 % of the step rate; the script needs no change.",
    "printed_pattern": "For a script whose printed values no rule reads: one of its lines with names in braces for its "
    "numbers; {*} may be anything.",
    "hang_after_s": "Seconds without a step of any rank, apart from saving, validating and compiling.",
    "on_hang": "report: name the rank that is behind. end: stop the run. resume: stop it and resume from its "
    "latest checkpoint.",
    "max_restarts": "Automatic restarts from the last complete checkpoint after a failure.",
    "min_nodes": "Minimum nodes for a restart after a node is lost; accumulation keeps the global batch. "
    "Empty: the same number as at first.",
    "on_lost_node": "wait: continue as long as the other ranks step. end: stop as soon as the node counts as lost.",
    "lr_on_resize": "keep: unchanged, because the global batch is kept. scale: by the scaling rule for the number "
    "of ranks.",
    "torchrun_restarts": "torchrun restarts its ranks within the attempt, unknown to Rankzero. "
    "Automatic restarts, above, are managed by Rankzero.",
    "pool": "nodes: those on the Nodes page. slurm: a job on the cluster whose gateway has joined.",
    "partition": "Empty: the cluster's default.",
    "account": "Empty: your default account.",
    "time_limit": "90 (minutes), 12:00:00 or 2-12 (days-hours). Shortly before, the ranks get a signal to save.",
    "sbatch_options": "Quoted as in a shell: --constraint=a100 --mem=64G --cpus-per-gpu=8",
    "stop_grace_s": "Seconds between SIGTERM and SIGKILL when the run is stopped.",
}

# Convert the form's code fields to a part of a spec, and back.

RECIPE, SCRIPT, GIT, UPLOAD = "Recipe", "Script", "Git", "Upload"
SOURCES = (RECIPE, SCRIPT, GIT, UPLOAD)
AS_IT_WAS, AS_IT_IS = "as it was", "as it is now"
CHOICES: dict[str, tuple[str, ...]] = {
    "source": SOURCES,
    "code_as": (AS_IT_WAS, AS_IT_IS),
    "launcher": ("automatic", *get_args(choices.Launcher)),
    "strategy": get_args(choices.Strategy),
    "precision": get_args(choices.Precision),
    "lr_scaling": get_args(choices.LrScaling),
    "on_hang": get_args(choices.OnHang),
    "on_lost_node": get_args(choices.OnLostNode),
    "lr_on_resize": get_args(choices.LrOnResize),
    "pool": get_args(choices.Pool),
}
"""Fields with a few options; all others are texts."""
AREAS = ("env", "links", "stage", "labels")
"""Texts of several lines."""
PLACEHOLDERS = {
    "script": "/home/me/train.py",
    "git_url": "https://github.com/karpathy/nanoGPT",
    "ref": "its default branch",
    "entry": "train.py",
    "module": "or package.train",
    "name": "default: script name",
    "gpus_per_node": "all free",
    "max_steps": "from epochs",
    "seed": "set by the script",
    "args": "--width 64 --data '/data/my images'",
    "env": "NCCL_DEBUG=INFO",
    "workdir": "a fresh directory",
    "resume": "RUN or RUN:CHECKPOINT",
    "on_nodes": "gpu-1, gpu-2",
    "links": "data=/mnt/imagenet",
    "stage": "data=https://host/imagenet.tar",
    "labels": "rack=b2",
    "python": "the project's, else the node's",
    "environment": "auto, lock, none or a path",
    "min_nodes": "same as Nodes",
    "printed_pattern": "it {step} | loss {loss}",
    "hang_after_s": "60 s or ten steps, whichever is longer",
    "account": "yours",
    "time_limit": "the partition's",
    "sbatch_options": "--constraint=a100 --mem=64G",
}
TARGET_FIELDS = {RECIPE: "recipe", SCRIPT: "script", GIT: "git_url", UPLOAD: "upload"}
MISSING = {
    RECIPE: "choose a recipe.",
    SCRIPT: "name a script or a folder.",
    GIT: "name a repository, such as https://github.com/karpathy/nanoGPT.",
    UPLOAD: "choose a script or an archive.",
}
EMPTY_CODE: dict[str, Any] = {
    "source": RECIPE,
    "recipe": None,
    "code_as": AS_IT_WAS,
    **dict.fromkeys("script git_url ref upload entry module snapshot snapshot_of".split(), ""),
}
"""`snapshot_of` names the snapshot's source; the snapshot is ignored once another target is named."""


def spec_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec's fields of the chosen code; without `target` where none is named."""
    source = values.get("source") or RECIPE
    target = stripped(values, TARGET_FIELDS[source])
    fields = {"target": target}
    if source != RECIPE:
        fields |= {"entry": stripped(values, "entry"), "module": stripped(values, "module")}
    if source == GIT:
        fields["ref"] = stripped(values, "ref")
    if has_snapshot(values) and (source == UPLOAD or values.get("code_as") != AS_IT_IS):
        fields["snapshot"] = stripped(values, "snapshot")
        if source == SCRIPT and not (fields["entry"] or fields["module"]):
            fields["entry"] = PurePosixPath(target).name
    return {name: text for name, text in fields.items() if text}


def has_snapshot(values: Mapping[str, Any]) -> bool:
    """Whether there is a snapshot of the named code and the run would use it."""
    source = values.get("snapshot_of")
    return bool(values.get("snapshot")) and source == named(values) and not stripped(values, "workdir")


def named(values: Mapping[str, Any]) -> str:
    """Return the source, target and ref as one text."""
    source = values.get("source") or RECIPE
    ref = stripped(values, "ref") if source == GIT else ""
    return " ".join((source, stripped(values, TARGET_FIELDS[source]), ref)).strip()


def code_values(spec: RunSpec, recipes: Container[str]) -> dict[str, Any]:
    """Return the form's values for a spec's code."""
    source = SCRIPT
    if spec.target in recipes:
        source = RECIPE
    elif is_git_address(spec.target):
        source = GIT
    elif spec.snapshot and not spec.target.startswith("/"):
        source = UPLOAD
    entry = "" if spec.entry == PurePosixPath(spec.target).name and source == SCRIPT else spec.entry
    values = EMPTY_CODE | {
        "source": source,
        TARGET_FIELDS[source]: spec.target,
        "ref": spec.ref or "",
        "entry": entry or "",
        "module": spec.module or "",
        "snapshot": spec.snapshot or "",
    }
    return values | {"snapshot_of": named(values)}


def stripped(values: Mapping[str, Any], name: str) -> str:
    """The text of a field, without blanks at its ends; empty where it has none."""
    return str(values.get(name) or "").strip()
