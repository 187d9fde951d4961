"""What `rankzero launch` sends, refuses and waits for."""

from __future__ import annotations

import json
import sys

import pytest

from cli.commands.runs.launch import resolve_target
from cli.terminal import CommandFailed
from tests.cli.documents import document


def test_launch_sends_exactly_what_was_chosen(rankzero, fake, tmp_path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "photos").mkdir()
    command = (
        "launch train.py --name n --nodes 2 --gpus-per-node 4 --batch-size 8 --lr 1e-4 --lr-scaling linear "
        "--env A=b=c --link data=photos --workdir . --python python3 --seed 0 "
        "--priority 5 --label rack=b2 --label gpu=h200 --on gpu-1 --on gpu-2 --json -- --width 3 -x -- y"
    )
    code, out, err = rankzero(*command.split())
    assert (code, set(json.loads(out))) == (0, {"id", "name", "state", "url"})
    assert err == f"Note: The run works in place in {tmp_path}: its code is not stored.\n"
    assert [path for _, path in fake.asked][-2:] == ["/api/preview?code_is_sent=true", "/api/runs"]
    assert fake.bodies[0] == fake.bodies[1]
    assert fake.bodies[1:] == [
        {
            "target": str(tmp_path / "train.py"), "name": "n", "nodes": 2, "gpus_per_node": 4, "batch_size": 8,
            "lr": 1e-4, "lr_scaling": "linear", "env": {"A": "b=c"}, "links": {"data": str(tmp_path / "photos")},
            "workdir": str(tmp_path), "python": "python3", "seed": 0, "args": ["--width", "3", "-x", "--", "y"],
            "priority": 5, "labels": {"rack": "b2", "gpu": "h200"}, "on_nodes": ["gpu-1", "gpu-2"],
        }
    ]  # fmt: skip


def test_a_value_that_does_not_arrive_is_said_before_the_launch(rankzero, fake, tmp_path) -> None:
    (tmp_path / "train.py").touch()
    fake.not_passed = ["No known option of train.py sets the learning rate."]
    _, out, err = rankzero("launch", "train.py", "--workdir", ".", "--lr", "0.1", "--json")
    assert err.splitlines()[-1] == f"Note: {fake.not_passed[0]}" and json.loads(out)["state"] == "queued"
    _, _, err = rankzero("launch", "train.py", "--workdir", ".", "--json")
    assert fake.not_passed[0] not in err


def test_a_range_of_nodes_and_what_becomes_of_lost_ones_is_sent(rankzero, fake) -> None:
    command = (
        "launch language_model --nodes 2:4 --max-restarts 3 --on-lost-node end --lr-on-resize scale "
        "--torchrun-restarts 1 --json"
    )
    document(rankzero(*command.split()))
    document(rankzero(*"launch language_model --nodes 4 --min-nodes 2 --json".split()))
    assert fake.bodies == [
        {
            "target": "language_model", "nodes": "2:4", "max_restarts": 3, "on_lost_node": "end",
            "lr_on_resize": "scale", "torchrun_restarts": 1,
        },
        {"target": "language_model", "nodes": 4, "min_nodes": 2},
    ]  # fmt: skip


def test_naming_something_of_slurms_means_slurm(rankzero, fake) -> None:
    options = "--partition gpu --account lab --time-limit 2-12 --sbatch-option=--mem=64G --sbatch-option=--exclusive"
    document(rankzero(*f"launch language_model {options} --json".split()))
    document(rankzero(*"launch language_model --pool slurm --json".split()))
    slurm = {
        "partition": "gpu",
        "account": "lab",
        "time_limit": "2-12",
        "options": ["--mem=64G", "--exclusive"],
    }
    assert fake.bodies == [
        {"target": "language_model", "pool": "slurm", "slurm": slurm},
        {"target": "language_model", "pool": "slurm"},
    ]


def test_a_recipe_is_launched_by_its_name_even_beside_a_file_of_that_name(rankzero, fake, tmp_path) -> None:
    (tmp_path / "language_model").touch()
    document(rankzero("launch", "language_model", "--json"))
    assert fake.bodies == [{"target": "language_model"}]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["missing.py"], "target: "),
        (["no_such_recipe"], "target: "),
        (["."], "entry: "),
        (["git@example.org:x/y", "--entry", "a.py", "--workdir", "."], "workdir: "),
        (["language_model", "--env", "A"], "env: "),
        (["language_model", "--environment", "lock", "--dry-run"], "environment: "),
        (["language_model", "--link", "=x"], "links: "),
        (["a\0b"], "target: "),
        (["x" * 5000], "target: "),
    ],
)
def test_wrong_launch_is_refused_before_it_is_sent(rankzero, fake, arguments, field) -> None:
    code, out, err = rankzero("launch", *arguments)
    assert (code, out) == (2, "") and err.startswith(field) and err.count("\n") == 1
    assert fake.bodies == []


def test_a_learning_rate_that_is_no_number_reaches_the_one_who_refuses_it(rankzero, fake) -> None:
    rankzero("launch", "language_model", "--lr", "nan")
    assert fake.bodies == [{"target": "language_model", "lr": "nan"}]


def test_on_other_machines_only_they_know_what_exists() -> None:
    assert resolve_target("/shared/train.py", False, is_local=False) == "/shared/train.py"
    with pytest.raises(CommandFailed):
        resolve_target("/shared/train.py", False, is_local=True)


def test_a_lock_that_the_code_lacks_is_refused_before_anything_is_sent(rankzero, fake, tmp_path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "requirements.txt").write_text("torch")
    for further in ([], ["--dry-run"]):
        code, _, err = rankzero("launch", str(tmp_path / "train.py"), "--environment", "lock", *further)
        assert (code, err.splitlines()[-1].partition(":")[0]) == (2, "environment")
        assert "requirements.txt is no lock: torch has no version." in err
    assert fake.bodies == []


def test_data_named_by_a_path_here_is_looked_for_on_each_node(rankzero, fake, tmp_path) -> None:
    (tmp_path / "set").mkdir()
    _, _, err = rankzero("launch", "language_model", "--stage", "./set=data", "--stage", "gate:/x=far")
    assert fake.bodies[0]["stage"] == {"data": str(tmp_path / "set"), "far": "gate:/x"}
    assert err.count("Note: ") == 1 and f"{tmp_path / 'set'} is here, but each node looks for it locally" in err


def test_a_virtual_environments_python_stays_the_link_it_is(rankzero, fake, tmp_path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    rankzero("launch", "language_model", "--python", "./python")
    assert fake.bodies[0]["python"] == str(tmp_path / "python")


def test_a_dry_run_shows_commands_and_starts_nothing(rankzero, fake) -> None:
    preview = document(rankzero("launch", "language_model", "--dry-run", "--json"))
    assert preview["world_size"] == 8
    code, out, err = rankzero("launch", "language_model", "--dry-run")
    assert code == 0 and "OMP_NUM_THREADS=1" in out and "torchrun 'a b.py'" in out and "0.0008" in out
    assert "needs 4 nodes" in err
    assert [path for _, path in fake.asked] == ["/api/preview"] * 2


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 1), ("stopped", 1)])
def test_launch_and_wait_succeeds_only_when_the_run_does(rankzero, fake, state, code) -> None:
    fake.runs[0] |= {"state": state, "message": "Rank 1 ended with exit code 3." if code else None}
    result = rankzero("launch", "language_model", "--wait", "--json")
    assert result[0] == code
    assert json.loads(result[1])["state"] == state
    assert ("Rank 1 ended with exit code 3." in result[2]) == bool(code)


def test_a_failure_is_told_with_its_next_step_and_the_form_that_mends_it(rankzero, fake) -> None:
    form = "http://127.0.0.1:1/launch?from=abcdefghij&fix=1"
    why, step = "rank 1 on n0: CUDA out of memory, train.py line 41", "Halve the batch per GPU: 32 → 16."
    fake.runs[0] |= {"state": "failed", "message": why, "next_step": step}
    fake.runs[0] |= {"fix": {"label": "Launch with batch 16 × accumulate 2", "url": form}}
    _, _, err = rankzero("launch", "language_model", "--wait")
    assert err.strip().endswith(f"failed: {why}. {step}")
    shown = dict(line.split("  ", 1) for line in rankzero("show", "abcdefghij")[1].splitlines() if "  " in line)
    assert (shown["message"].strip(), shown["next step"].strip(), shown["ready to launch"].strip()) == (
        why,
        step,
        form,
    )


def test_several_seeds_are_launched_together(rankzero, fake) -> None:
    assert rankzero(*"launch language_model --seeds 1,2 --dry-run".split())[0] == 0
    assert fake.bodies == [{"target": "language_model", "seed": 1}]
    code, _, err = rankzero(*"launch language_model --seeds 1,2 --seed 3".split())
    assert (code, err) == (2, "seeds: give --seed or --seeds, not both.\n")
    code, _, err = rankzero(*"launch language_model --seeds 1,1".split())
    assert (code, err) == (2, "seeds: names a seed twice.\n")
    assert rankzero(*"launch language_model --seeds few".split())[0] == 2
