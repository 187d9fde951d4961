"""`rankzero secret`: the value comes from standard input, and only names come back."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.running import Running, running

TOKEN = "hf_AbCdEfGhIjKlMn"


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rankzero: Any) -> Any:
    with running(tmp_path / "data") as dashboard:
        monkeypatch.setenv("RANKZERO_URL", dashboard.url)
        monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)

        def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            code, out, err = rankzero("secret", *arguments)
            assert TOKEN not in out + err
            return code, out, err

        run.dashboard = dashboard  # type: ignore[attr-defined]
        yield run


def test_set_list_and_remove(secret: Any) -> None:
    assert secret("list")[1].startswith("There is no secret")
    assert secret("set", "HF_TOKEN", stdin=f"{TOKEN}\n".encode())[0] == 0
    code, out, _ = secret("set", "HF_TOKEN", "--project", "vision", "--json", stdin=f"{TOKEN}\r\n".encode())
    assert (code, json.loads(out)) == (0, {"name": "HF_TOKEN", "project": "vision"})
    assert json.loads(secret("list", "--json")[1]) == ["HF_TOKEN"]
    assert "project vision" in secret("list")[1] and "owner" in secret("list")[1]
    assert secret("remove", "HF_TOKEN")[0] == 0
    code, _, err = secret("remove", "HF_TOKEN")
    assert code == 1 and "There is no secret HF_TOKEN of owner" in err


def test_the_value_is_stored_without_the_line_break_that_ends_it(secret: Any) -> None:
    secret("set", "HF_TOKEN", stdin=f"{TOKEN}\n".encode())
    dashboard: Running = secret.dashboard
    node = dashboard.node()
    dashboard.launch(secrets=["HF_TOKEN"])
    assert node.assignment().secrets == {"HF_TOKEN": TOKEN}


def test_doctor_tries_the_key(secret: Any, tmp_path: Path, rankzero: Any) -> None:
    data = tmp_path / "data"

    def check() -> tuple[bool, str]:
        (found,) = (
            one for one in json.loads(rankzero("doctor", "--data", str(data), "--json")[1]) if one["check"] == "secrets"
        )
        return found["ok"], found["message"]

    assert check() == (True, "none yet.")
    secret("set", "HF_TOKEN", stdin=TOKEN.encode())
    assert check() == (True, f"the key in {data}/secret-key opens all 1; keep a copy of it elsewhere.")
    (data / "secret-key").chmod(0o644)
    assert check() == (False, f"{data}/secret-key can be read by others (mode 644): chmod 600 {data}/secret-key")
    (data / "secret-key").chmod(0o600)
    (data / "secret-key").write_text("of another installation")
    assert "is not the one with which" in check()[1] and not check()[0]
    (data / "secret-key").unlink()
    assert "is lost: there is no file" in check()[1] and not check()[0]
    assert not (data / "secret-key").exists()


def test_what_masking_will_not_do_as_expected_is_said(secret: Any) -> None:
    assert secret("set", "HF_TOKEN", stdin=f"{TOKEN}\n".encode())[2] == ""
    code, _, err = secret("set", "MODE", "--json", stdin=b"training\n")
    assert code == 0 and err.startswith("warning: Its value reads like a word")


@pytest.mark.parametrize(
    ("arguments", "stdin", "rule"),
    [
        (("set", "HF_TOKEN"), b"short\n", "at least 8 characters"),
        (("set", "HF_TOKEN"), b"\xff\xfe1234567", "must be text"),
        (("set", "a b"), TOKEN.encode(), "not a variable name"),
    ],
)
def test_what_cannot_be_a_secret_is_refused(secret: Any, arguments: tuple[str, ...], stdin: bytes, rule: str) -> None:
    code, _, err = secret(*arguments, stdin=stdin)
    assert code == 2 and rule in err
