"""The command line: what it asks, what it prints, and the exit codes that scripts rely on."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from cli import main
from cli.commands.launch import resolve_target
from cli.server.client import find_server
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import printable
from tests.dashboard.fake_dashboard import CHECKPOINT, CONTENT, RUN, SHA256, TOKEN, FakeDashboard, serving


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeDashboard]:
    monkeypatch.chdir(tmp_path)
    with serving(FakeDashboard()) as fake:
        monkeypatch.setenv("RANKZERO_URL", fake.url)
        monkeypatch.setenv("RANKZERO_TOKEN", TOKEN)
        yield fake


@pytest.fixture
def rankzero(capfd: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main.run(list(arguments))
        return code, *capfd.readouterr()

    return run


def document(result: tuple[int, str, str]) -> Any:
    """Exit code 0, nothing on stderr, and one JSON document on stdout."""
    assert (result[0], result[2]) == (0, "")
    return json.loads(result[1])


# -- finding the dashboard ---------------------------------------------------------------------


def test_without_a_dashboard_one_sentence_says_what_to_do(rankzero, tmp_path) -> None:
    code, out, err = rankzero("runs", "--data", str(tmp_path / "none"))
    assert (code, out) == (1, "")
    assert err.count("\n") == 1 and "rankzero up" in err and str(tmp_path / "none") in err


def test_a_dashboard_that_is_gone_is_told_from_its_stale_file(rankzero, tmp_path) -> None:
    (tmp_path / "server.json").write_text('{"url": "http://127.0.0.1:9", "pid": 1}')
    (tmp_path / "token").write_text(TOKEN)
    code, out, err = rankzero("nodes", "--data", str(tmp_path))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "No dashboard answers at http://127.0.0.1:9" in err


def test_the_data_directory_says_where_the_dashboard_is(rankzero, fake, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("RANKZERO_URL")
    monkeypatch.delenv("RANKZERO_TOKEN")
    (tmp_path / "server.json").write_text(json.dumps({"url": fake.url, "pid": 1}))
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert document(rankzero("runs", "--json", "--data", str(tmp_path))) == fake.runs
    monkeypatch.setenv("RANKZERO_DATA", str(tmp_path))
    assert document(rankzero("runs", "--json")) == fake.runs


def test_a_token_is_never_shown(fake) -> None:
    assert TOKEN not in repr(find_server(None))


@pytest.mark.parametrize(
    ("url", "token", "word"),
    [("ftp://x", TOKEN, "http"), ("http://x", "", "RANKZERO_TOKEN"), ("http://x", "tök\n", "no token")],
)
def test_settings_that_cannot_work_are_named(monkeypatch, url, token, word) -> None:
    monkeypatch.setenv("RANKZERO_URL", url)
    monkeypatch.setenv("RANKZERO_TOKEN", token)
    with pytest.raises(CommandFailed, match=word) as failed:
        find_server(None)
    assert failed.value.exit_code == 2


def test_a_wrong_token_is_told_without_repeating_it(rankzero, fake, monkeypatch) -> None:
    monkeypatch.setenv("RANKZERO_TOKEN", "wrong-token-of-twenty-characters")
    code, out, err = rankzero("runs")
    assert (code, out) == (1, "") and "does not accept this token" in err and "wrong-token" not in err


def test_the_version_is_printed(rankzero) -> None:
    assert rankzero("--version") == (0, f"rankzero {metadata.version('rankzero')}\n", "")


# -- exit codes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["launch"], ["bogus"], ["show"], ["launch", "x.py", "--nodes", "two"], ["logs", "r", "--rank", "-1"],
     ["launch", "language_model", "--precision", "fp64"], ["runs", "--nonsense"], ["up", "--demo", "--no-worker"]],
)  # fmt: skip
def test_wrong_usage_is_one_sentence_and_exit_code_2(rankzero, fake, arguments) -> None:
    code, out, err = rankzero(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and err.strip()


def test_a_refused_spec_names_field_and_rule_with_exit_code_2(rankzero, fake) -> None:
    fake.refusal = (422, {"field": "nodes", "message": "nodes must be at least 1, got 0."})
    code, out, err = rankzero("launch", "language_model", "--nodes", "0", "--json")
    assert (code, out, err) == (2, "", "nodes must be at least 1, got 0.\n")


def test_other_refusals_have_exit_code_1(rankzero, fake) -> None:
    fake.refusal = (409, {"field": None, "message": "Run abcdefghij is running: stop it first."})
    assert rankzero("delete", "abcdefghij", "--yes") == (1, "", "Run abcdefghij is running: stop it first.\n")


def test_a_stranger_on_the_port_is_recognised(rankzero, fake, monkeypatch) -> None:
    monkeypatch.setenv("RANKZERO_URL", fake.url + "/elsewhere")
    code, _, err = rankzero("runs")
    assert code == 1 and "not a Rankzero dashboard (HTTP 404)" in err


def test_a_setting_that_cannot_be_is_named(rankzero, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("RANKZERO_LOST_AFTER_S", "soon")
    code, out, err = rankzero("dashboard", "--data", str(tmp_path))
    assert (code, out) == (2, "") and err.startswith("RANKZERO_LOST_AFTER_S: ") and err.count("\n") == 1
    monkeypatch.setenv("RANKZERO_PORT", "high")
    assert rankzero("up", "--data", str(tmp_path))[0] == 2


# -- launch ------------------------------------------------------------------------------------


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
    assert err == f"Note: The run works in place in {tmp_path}: its code is not kept.\n"
    assert fake.bodies == [
        {
            "target": str(tmp_path / "train.py"), "name": "n", "nodes": 2, "gpus_per_node": 4, "batch_size": 8,
            "lr": 1e-4, "lr_scaling": "linear", "env": {"A": "b=c"}, "links": {"data": str(tmp_path / "photos")},
            "workdir": str(tmp_path), "python": "python3", "seed": 0, "args": ["--width", "3", "-x", "--", "y"],
            "priority": 5, "labels": {"rack": "b2", "gpu": "h200"}, "on_nodes": ["gpu-1", "gpu-2"],
        }
    ]  # fmt: skip


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
        (["language_model", "--link", "=x"], "links: "),
        (["a\0b"], "target: "),
        (["x" * 5000], "target: "),
    ],
)
def test_what_cannot_be_launched_is_refused_before_it_is_sent(rankzero, fake, arguments, field) -> None:
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
    form = "http://127.0.0.1:1/launch?from=abcdefghij&remedy=1"
    why, step = "rank 1 on n0: CUDA out of memory, train.py line 41", "Halve the batch per GPU: 32 → 16."
    fake.runs[0] |= {"state": "failed", "message": why, "next_step": step}
    fake.runs[0] |= {"remedy": {"label": "Launch with batch 16 × accumulate 2", "url": form}}
    _, _, err = rankzero("launch", "language_model", "--wait")
    assert err.strip().endswith(f"failed: {why}. {step}")
    shown = dict(
        line.split("  ", 1) for line in rankzero("show", "abcdefghij")[1].splitlines() if "  " in line
    )
    assert (shown["message"].strip(), shown["next step"].strip(), shown["ready to launch"].strip()) == (
        why,
        step,
        form,
    )


# -- reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["runs", "nodes", "metrics abcdefghij", "checkpoints abcdefghij", "show abcdefghij"]
)
def test_each_command_prints_json_or_something_to_read(rankzero, fake, command) -> None:
    assert document(rankzero(*command.split(), "--json"))
    code, out, err = rankzero(*command.split())
    assert (code, err) == (0, "") and len(out.splitlines()) >= 2


def test_figures_are_humanised(rankzero, fake) -> None:
    out = rankzero("runs")[1]
    assert "12.4 k" in out and "NaN" in out and "first light" in out
    out = rankzero("show", "abcdefghij")[1]
    assert "step 120/1000" in out and "00:01:01 left" in out and "2 on 1 node" in out
    assert "/tensorboard/abcdefghij/" in out


def test_names_cannot_steer_the_terminal(rankzero, fake) -> None:
    fake.runs[0]["name"] = "a\x1b[2Jb\u202ec\nd[bold]"
    for command in (["runs"], ["show", "abcdefghij"]):
        out = rankzero(*command)[1]
        assert "\x1b" not in out and "\u202e" not in out and "[bold]" in out
    assert printable("a\x1b\x00\u202e\ud800é") == "a\\x1b\\x00\\u202e\\ud800é"


def test_an_odd_run_id_cannot_reach_another_address(rankzero, fake) -> None:
    for odd in ("../nodes", "a/b?c", "", "."):
        code, _, err = rankzero("show", odd)
        assert code == 1 and "There is no run" in err
    assert fake.asked == []


def test_points_of_one_series_are_printed_one_a_line(rankzero, fake) -> None:
    out = rankzero("metrics", "abcdefghij", "--name", "train/loss", "--since", "1", "--source", "all")[1]
    assert out.splitlines()[1:] == ["1\t2.5\t1.0", "2\tNaN\t2.0"]
    assert fake.asked[-1][1].endswith("?name=train%2Floss&since=1&source=all")


def test_logs_are_printed_byte_for_byte(fake, capfdbinary) -> None:
    assert main.run(["logs", "abcdefghij", "--rank", "1", "--stream", "err"]) == 0
    assert capfdbinary.readouterr().out == fake.log
    assert "rank=1" in fake.asked[-1][1] and "stream=err" in fake.asked[-1][1]


def test_a_followed_log_goes_on_after_a_broken_connection(fake, capfdbinary) -> None:
    fake.cut_after = 5
    assert main.run(["logs", "abcdefghij", "-f"]) == 0
    assert capfdbinary.readouterr().out == fake.log
    assert "offset=5" in fake.asked[-1][1]


@pytest.mark.parametrize("wish", ["stop", "resume", "delete"])
def test_wishes_answer_with_the_run(rankzero, fake, wish) -> None:
    assert document(rankzero(wish, "abcdefghij", "--json")) == RUN
    assert rankzero(wish, "abcdefghij")[0] == 0


# -- download ----------------------------------------------------------------------------------


def test_download_takes_the_latest_complete_checkpoint(rankzero, fake, tmp_path) -> None:
    newer = CHECKPOINT | {"id": 8, "complete": False, "latest": False, "created_at": 1_900_000_000.0}
    fake.checkpoints.insert(0, newer)
    assert document(rankzero("download", "abcdefghij", "--json")) == {
        "path": str(tmp_path / "step100.pt"),
        "sha256": SHA256,
    }
    assert (tmp_path / "step100.pt").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["step100.pt"]


def test_a_broken_download_goes_on_where_it_stopped(rankzero, fake, tmp_path) -> None:
    fake.cut_after = 1_000_000
    assert rankzero("download", "abcdefghij", "step100.pt", "-o", str(tmp_path / "my.pt"))[0] == 0
    assert (tmp_path / "my.pt").read_bytes() == CONTENT
    assert fake.ranges == [None, "bytes=1000000-"]


def test_a_download_begun_by_an_earlier_command_is_continued(rankzero, fake, tmp_path) -> None:
    (tmp_path / f".step100.pt.{SHA256[:12]}.part").write_bytes(CONTENT[:4096])
    assert rankzero("download", "abcdefghij")[0] == 0
    assert fake.ranges == ["bytes=4096-"]
    assert hashlib.sha256((tmp_path / "step100.pt").read_bytes()).hexdigest() == SHA256


def test_wrong_bytes_are_deleted_and_said(rankzero, fake, tmp_path) -> None:
    fake.content = CONTENT[:-1] + b"!"
    code, out, err = rankzero("download", "abcdefghij")
    assert (code, out) == (1, "") and "SHA-256" in err and "deleted" in err
    assert list(tmp_path.iterdir()) == []


def test_more_bytes_than_promised_are_not_taken(rankzero, fake, tmp_path) -> None:
    fake.content = CONTENT + b"!"
    code, _, err = rankzero("download", "abcdefghij")
    assert code == 1 and "more than" in err
    assert not (tmp_path / "step100.pt").exists()


def test_another_file_of_that_name_is_kept_unless_named(rankzero, fake, tmp_path) -> None:
    (tmp_path / "step100.pt").write_text("mine")
    code, _, err = rankzero("download", "abcdefghij")
    assert code == 1 and "-o PATH" in err and (tmp_path / "step100.pt").read_text() == "mine"
    assert rankzero("download", "abcdefghij", "-o", "step100.pt")[0] == 0
    assert rankzero("download", "abcdefghij")[1].count("was here already") == 1
    assert len(fake.ranges) == 1


@pytest.mark.parametrize(
    "name", ["../../evil.pt", "..", "/etc/passwd", "a\\..\\b", "\x1b]0;x\x07.pt", "." * 9, "x" * 999]
)
def test_a_checkpoints_name_cannot_lead_elsewhere(rankzero, fake, tmp_path, name) -> None:
    fake.checkpoints[0]["name"] = name
    assert rankzero("download", "abcdefghij")[0] == 0
    (written,) = list(tmp_path.iterdir())
    assert written.read_bytes() == CONTENT and written.name.isprintable()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"complete": False}, "not arrived completely"), ({"name": "other.pt"}, "no checkpoint 'step100.pt'")],
)
def test_what_cannot_be_downloaded_is_told(rankzero, fake, change, words) -> None:
    fake.checkpoints[0] |= change
    code, _, err = rankzero("download", "abcdefghij", "step100.pt")
    assert code == 1 and words in err


# -- the rest ----------------------------------------------------------------------------------


def test_tokens_are_read_on_the_servers_machine(rankzero, tmp_path) -> None:
    (tmp_path / "token").write_text("login\n")
    (tmp_path / "join-token").write_text("join\n")
    assert rankzero("token", "--data", str(tmp_path)) == (0, "login\n", "")
    assert document(rankzero("token", "--join", "--json", "--data", str(tmp_path))) == {"token": "join"}
    code, out, err = rankzero("token", "--data", str(tmp_path / "none"))
    assert (code, out) == (1, "") and "ever started" in err


def test_a_backup_is_asked_for_by_its_absolute_path(rankzero, fake, tmp_path) -> None:
    written = document(rankzero("backup", "copy.db", "--json"))
    assert written == {"path": str(tmp_path / "copy.db"), "size_bytes": 4096}


def test_doctor_finds_what_others_could_read(rankzero, tmp_path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    checks = {
        check["check"]: check for check in json.loads(rankzero("doctor", "--json", "--data", str(data))[1])
    }
    assert set(checks["torch"]) == {"check", "ok", "message"}
    assert checks["torch"]["ok"] and checks["dashboard"]["ok"] and checks["tokens"]["ok"]
    (data / "token").write_text("x")
    (data / "token").chmod(0o644)
    code, out, _ = rankzero("doctor", "--data", str(data))
    assert code == 1 and "chmod 600" in out


HEAVY = ("torch", "streamlit", "pandas", "sqlalchemy", "numpy", "fastapi", "httpx")


@pytest.mark.parametrize("arguments", [["--help"], ["launch", "--help"]])
def test_help_comes_at_once_because_nothing_heavy_is_imported(arguments: list[str]) -> None:
    program = (
        "import sys; from cli import main; code = main.run(sys.argv[1:]); "
        f"sys.exit(code or str([name for name in {HEAVY} if name in sys.modules]))"
    )
    argv = [sys.executable, "-P", "-c", program, *arguments]
    result = subprocess.run(argv, capture_output=True, text=True)
    assert "launch" in result.stdout and result.stderr.strip() == "[]"


def test_a_reader_that_has_enough_is_no_error(fake) -> None:
    fake.metrics = {f"series/{i}": [[1, 1.0, 1.0]] for i in range(20_000)}
    command = f"{sys.executable} -P -m cli.main metrics abcdefghij --json | head -c 10"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert result.stderr == ""
