"""The form reads as a specification, and says beside each field what is wrong with it."""

from __future__ import annotations

import pytest

from dashboard.views.launch.form import EMPTY, RECIPE, SCRIPT, read, values_of
from domain.spec import RunSpec, SlurmOptions

FILLED = {**EMPTY, "source": RECIPE, "recipe": "language_model"}


def test_the_defaults_are_a_run_of_the_recipe_as_it_is():
    assert read(FILLED).spec == RunSpec(target="language_model")


def test_every_field_is_read():
    spec = read(
        {
            **EMPTY,
            "source": SCRIPT,
            "script": " /src/train.py ",
            "nodes": "4",
            "gpus_per_node": "2",
            "lr": "1e-4",
            "lr_scaling": "linear",
            "args": "--data '/my data' -v",
            "env": "A=1\n\nB=x=y",
            "links": "data=/mnt/data",
            "launcher": "python",
            "wait_for_nodes": True,
            "priority": "-3",
            "labels": "rack=b2\ngpu=h200",
            "on_nodes": " gpu-1, gpu-2,gpu-3,gpu-4, ",
        }
    ).spec
    assert spec is not None
    assert (spec.target, spec.world_size, spec.scaled_lr) == ("/src/train.py", 8, pytest.approx(0.0008))
    assert spec.args == ["--data", "/my data", "-v"]
    assert spec.env == {"A": "1", "B": "x=y"} and spec.links == {"data": "/mnt/data"}
    assert spec.launcher == "python" and spec.wait_for_nodes
    assert (spec.priority, spec.labels) == (-3, {"rack": "b2", "gpu": "h200"})
    assert spec.on_nodes == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("nodes", "0", "Nodes must be at least 1, got '0'."),
        (
            "nodes",
            "4:2",
            "Nodes must be a number, or MIN:MAX for a run that grows and shrinks, got '4:2'.",
        ),
        ("max_restarts", "-1", "Automatic restarts must be at least 0, got '-1'."),
        ("min_nodes", "2", "Minimum nodes must be at most nodes: 2 is more than 1."),
        ("gpus_per_node", "-2", "GPUs per node must be at least 1, got '-2'."),
        ("batch_size", "many", "Batch per GPU must be a whole number, got 'many'."),
        ("lr", "nan", "Learning rate must be a finite number, got 'nan'."),
        ("lr", "0", "Learning rate must be greater than 0, got '0'."),
        ("epochs", "1.5", "Epochs must be a whole number, got '1.5'."),
        ("args", "--x 'open", "Extra arguments: no closing quotation."),
        ("env", "PATH=/bin", "PATH is set by Rankzero and the node, not by a run."),
        ("env", "just words", "Environment: each line must be NAME=VALUE, but one is 'just words'."),
        ("priority", "101", "Priority must be at most 100, got '101'."),
        ("labels", "rack", "Node labels: each line must be NAME=VALUE, but one is 'rack'."),
        ("recipe", None, "Code: choose a recipe."),
    ],
)
def test_a_bad_value_is_refused_beside_its_field(field, value, sentence):
    reading = read({**FILLED, field: value})
    assert reading.spec is None
    assert reading.refusals == {"target" if field == "recipe" else field: sentence}


def test_the_rest_of_the_plan_is_still_understood_while_one_field_is_wrong():
    draft = read({**FILLED, "nodes": "4", "gpus_per_node": "2", "lr": "fast", "batch_size": "8"}).draft
    assert draft is not None and (draft.global_batch_size, draft.lr) == (64, None)


def test_a_rule_between_fields_is_told_at_one_of_them():
    reading = read({**FILLED, "nodes": "2", "strategy": "single"})
    assert "nodes must be 1" in reading.refusals["strategy"]
    assert reading.draft is not None


@pytest.mark.parametrize("text", ["\0", "a" * 300_000, "\ud800", "¼", "1" * 5000, "-0", "１２"])
@pytest.mark.parametrize("field", sorted(set(EMPTY) - {"source", "wait_for_nodes"}))
def test_whatever_is_typed_reading_never_raises(field, text):
    read({**FILLED, field: text})


def test_a_specification_written_into_the_fields_reads_back_as_itself():
    spec = RunSpec(
        target="/src/train.py",
        name="a run",
        nodes=2,
        gpus_per_node=3,
        lr=3e-05,
        lr_scaling="sqrt",
        seed=7,
        args=["--a b", "c"],
        env={"A": "1"},
        stop_grace_s=12.5,
        resume="abcdefghij:last.pt",
        priority=5,
        labels={"rack": "b2"},
        on_nodes=["gpu-1", "gpu-2"],
    )
    assert read(values_of(spec, {"language_model"})).spec == spec


def test_form_keeps_the_elastic_choice():
    choices = {"max_restarts": "3", "on_lost_node": "end", "lr_on_resize": "scale", "torchrun_restarts": "1"}
    elastic = read({**FILLED, **choices, "nodes": "2:4"}).spec
    assert elastic is not None
    assert (elastic.elastic, elastic.min_nodes, elastic.nodes) == (True, 2, 4)
    assert (elastic.max_restarts, elastic.on_lost_node, elastic.lr_on_resize) == (3, "end", "scale")
    assert values_of(elastic, {"language_model"})["nodes"] == "2:4"
    steady = read({**FILLED, "nodes": "4", "min_nodes": "2"}).spec
    for spec in (elastic, steady):
        assert spec is not None and read(values_of(spec, {"language_model"})).spec == spec


SLURM = {
    **FILLED, "pool": "slurm", "nodes": "2", "partition": " gpu ", "time_limit": "2-12",
    "sbatch_options": "--constraint='a100|h100' --mem=64G",
}  # fmt: skip


def test_slurm_fields_count_while_slurm_is_chosen():
    spec = read(SLURM).spec
    assert spec is not None and spec.pool == "slurm"
    assert spec.slurm == SlurmOptions(
        partition="gpu", time_limit="2-12", options=["--constraint=a100|h100", "--mem=64G"]
    )
    assert read(SLURM | {"pool": "nodes", "time_limit": "soon"}).spec == RunSpec(target="language_model", nodes=2)
    assert read({**EMPTY, **values_of(spec, ["language_model"])}).spec == spec


@pytest.mark.parametrize(
    ("field", "text", "sentence"),
    [
        (
            "time_limit",
            "soon",
            "Time limit must be in sbatch's format: 90 (minutes), 12:00:00 or 2-12",
        ),
        ("sbatch_options", "--nodes=4", "--nodes is set by Rankzero for each job, not by a run"),
        ("sbatch_options", "run.sh", "'run.sh' must be a long option of sbatch as one word"),
        ("sbatch_options", "'--x", "Further options of sbatch: no closing quotation"),
        ("nodes", "2:4", "a job has the nodes it was submitted with"),
        ("on_nodes", "a, b", "for Slurm use the option --nodelist"),
    ],
)
def test_fault_of_a_job_stands_beside_its_field(field: str, text: str, sentence: str):
    reading = read(SLURM | {field: text})
    assert reading.spec is None and sentence in reading.refusals[field]
    assert reading.draft is not None, "the figures follow all the same"
