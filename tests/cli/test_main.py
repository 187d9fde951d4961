"""The command line: what it asks, what it prints, and the exit codes that scripts rely on."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import pytest

from cli import main
from cli.server.client import find_server
from cli.terminal import CommandFailed, printable
from tests.cli.documents import document
from tests.dashboard.fake_dashboard import RUN, TOKEN


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
    [
        ("ftp://x", TOKEN, "http"),
        ("http://x", "", "RANKZERO_TOKEN"),
        ("http://x", "tök\n", "tokens never have"),
    ],
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
    [["launch"], ["bogus"], ["show"], ["launch", "x.py", "--nodes", "two"], ["logs", "abcdefghij", "--rank", "-1"],
     ["launch", "language_model", "--precision", "fp64"], ["runs", "--nonsense"], ["up", "--demo", "--no-worker"],
     ["users", "role", "ana"], ["users", "role", "ana", "boss"]],
)  # fmt: skip
def test_wrong_usage_is_one_sentence_and_exit_code_2(rankzero, fake, arguments) -> None:
    code, out, err = rankzero(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and err.strip()
    assert "\\n" not in err and "Value error" not in err


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


def test_a_message_that_states_the_finding_is_shown_alone(rankzero, fake) -> None:
    fake.runs[0] |= {"finding": "collectives differ: Rank 1 left early.", "message": "Killed."}
    assert "Rank 1 left early" in rankzero("show", "abcdefghij")[1]
    fake.runs[0]["message"] = "Rank 1 left early. rank 0 on a: RuntimeError: closed"
    assert rankzero("show", "abcdefghij")[1].count("left early") == 1


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
    window = ("--since", "1", "--until", "2", "--source", "all")
    out = rankzero("metrics", "abcdefghij", "--name", "train/loss", *window)[1]
    assert out.splitlines()[1:] == ["1\t2.5\t1.0", "2\tNaN\t2.0"]
    assert fake.asked[-1][1].endswith("?name=train%2Floss&since=1&until=2&source=all")


def test_logs_are_printed_byte_for_byte(fake, capfdbinary) -> None:
    assert main.run(["logs", "abcdefghij", "--rank", "1", "--stream", "err"]) == 0
    assert capfdbinary.readouterr().out == fake.log
    assert "rank=1" in fake.asked[-1][1] and "stream=err" in fake.asked[-1][1]


def test_a_followed_log_goes_on_after_a_broken_connection(fake, capfdbinary) -> None:
    fake.cut_after = 5
    assert main.run(["logs", "abcdefghij", "-f"]) == 0
    assert capfdbinary.readouterr().out == fake.log
    assert "offset=5" in fake.asked[-1][1]


@pytest.mark.parametrize("action", ["stop", "resume", "delete"])
def test_actions_answer_with_the_run(rankzero, fake, action) -> None:
    arguments = (action, "abcdefghij", *(["--yes"] if action == "delete" else []))
    more = {"freed_bytes": 4096, "kept_until": 1_800_000_000.0} if action == "delete" else {}
    assert document(rankzero(*arguments, "--json")) == RUN | more
    assert rankzero(*arguments)[0] == 0


# -- the rest ----------------------------------------------------------------------------------
def test_tokens_are_read_on_the_servers_machine(rankzero, tmp_path) -> None:
    (tmp_path / "token").write_text("login\n")
    (tmp_path / "join-token").write_text("join\n")
    assert rankzero("token", "--data", str(tmp_path)) == (0, "login\n", "")
    assert document(rankzero("token", "--join", "--json", "--data", str(tmp_path))) == {"token": "join"}
    (tmp_path / "metrics-token").write_text("scrape\n")
    assert rankzero("token", "--metrics", "--data", str(tmp_path)) == (0, "scrape\n", "")
    assert document(rankzero("token", "--metrics", "--json", "--data", str(tmp_path))) == {"token": "scrape"}
    code, out, err = rankzero("token", "--metrics", "--join", "--data", str(tmp_path))
    assert (code, out) == (2, "") and "exclude each other" in err
    for which in ([], ["--metrics"]):
        code, out, err = rankzero("token", *which, "--data", str(tmp_path / "none"))
        assert (code, out) == (1, "") and "been started" in err


def test_a_backup_is_written_by_the_server_and_moved_by_its_user(rankzero, fake, tmp_path) -> None:
    fake.backup = tmp_path / "data.db"
    written = document(rankzero("backup", "copy.db", "--json"))
    assert written == {"path": str(tmp_path / "copy.db"), "size_bytes": 4096}
    assert (tmp_path / "copy.db").stat().st_size == 4096 and not fake.backup.exists()
    asked = len(fake.asked)
    code, _, err = rankzero("backup", "copy.db")
    assert code == 1 and "must be a new file" in err and len(fake.asked) == asked
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    code, _, err = rankzero("backup", "link.db")
    assert code == 1 and "must be a new file" in err and not (tmp_path / "elsewhere.db").exists()


def test_a_backup_is_moved_to_another_file_system_for_its_user_alone(rankzero, fake, tmp_path) -> None:
    fake.backup = tmp_path / "data.db"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        target = Path(elsewhere, "copy.db")
        assert document(rankzero("backup", str(target), "--json"))["path"] == str(target)
        assert target.stat().st_size == 4096 and target.stat().st_mode & 0o777 == 0o600
    assert not fake.backup.exists()


def test_doctor_finds_what_others_could_read(rankzero, tmp_path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    checks = {check["check"]: check for check in json.loads(rankzero("doctor", "--json", "--data", str(data))[1])}
    assert set(checks["torch"]) == {"check", "ok", "message"}
    assert checks["torch"]["ok"] and checks["dashboard"]["ok"] and checks["tokens"]["ok"]
    (data / "token").write_text("x")
    (data / "token").chmod(0o644)
    code, out, _ = rankzero("doctor", "--data", str(data))
    assert code == 1 and "chmod 600" in out


HEAVY = ("torch", "streamlit", "pandas", "sqlalchemy", "numpy", "fastapi", "httpx2")


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
