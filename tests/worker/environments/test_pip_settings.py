"""Variables of uv from pip's variables and configuration files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker.environments import pip_settings
from worker.environments.pip_settings import index_options, uv_variables


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The variables of a person whose machine has no configuration of pip."""
    return {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "xdg")}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The machine's configuration file, one of the test's own."""
    path = tmp_path / "machine.conf"
    monkeypatch.setattr(pip_settings, "MACHINE_FILE", path)
    return path


def test_variables_have_their_names_in_uv(env: dict[str, str]):
    env |= {
        "PIP_INDEX_URL": "https://a/simple",
        "PIP_EXTRA_INDEX_URL": "https://b/simple https://c/simple",
        "PIP_FIND_LINKS": "/w1 /w2",
        "PIP_CERT": "/ca.pem",
        "PIP_TRUSTED_HOST": "a",
    }
    assert uv_variables(env) == {
        "UV_DEFAULT_INDEX": "https://a/simple",
        "UV_INDEX": "https://b/simple https://c/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_FIND_LINKS": "/w1,/w2",
        "SSL_CERT_FILE": "/ca.pem",
        "UV_INSECURE_HOST": "a",
    }


def test_what_uv_was_told_itself_stays(env: dict[str, str]):
    env |= {"PIP_INDEX_URL": "https://pip/simple", "UV_DEFAULT_INDEX": "https://uv/simple"}
    env |= {"PIP_EXTRA_INDEX_URL": "https://b/simple", "UV_INDEX": "https://c/simple"}
    assert uv_variables(env) == {}


def test_later_files_win_over_earlier_ones_and_variables_over_files(env: dict[str, str], tmp_path: Path, machine: Path):
    machine.write_text(
        "[global]\nindex-url = https://machine/simple\ncert = /machine.pem\nfind-links =\n  /w1\n  /w2\n"
    )
    (tmp_path / ".config" / "pip").mkdir(parents=True)
    (tmp_path / ".config" / "pip" / "pip.conf").write_text("[install]\nindex_url = https://person/%(simple)s\n")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "pip.conf").write_text("[global]\ncert = /venv.pem\n")
    assert uv_variables(env | {"PIP_TRUSTED_HOST": "h"}, tmp_path / "venv") == {
        "UV_DEFAULT_INDEX": "https://person/%(simple)s",
        "SSL_CERT_FILE": "/venv.pem",
        "UV_FIND_LINKS": "/w1,/w2",
        "UV_INSECURE_HOST": "h",
    }


def test_no_file_is_read_where_pip_reads_none(env: dict[str, str], machine: Path):
    machine.write_text("[global]\nindex-url = https://machine/simple\n")
    assert uv_variables(env | {"PIP_CONFIG_FILE": os.devnull}) == {}


@pytest.mark.parametrize("content", ["index-url = x\n", "[global]\nindex-url\n", "[global]\nindex-url = \xff\n"])
def test_a_file_that_cannot_be_read_counts_as_empty(env: dict[str, str], machine: Path, content: str):
    machine.write_bytes(content.encode("latin-1"))
    assert uv_variables(env) == {}


@pytest.mark.parametrize(
    ("value", "options"), [("1", ["--no-index"]), ("true", ["--no-index"]), ("0", []), ("", []), ("off", [])]
)
def test_without_an_index_uv_asks_none(env: dict[str, str], value: str, options: list[str]):
    assert index_options(env | {"PIP_NO_INDEX": value}) == options


def test_a_command_runs_with_them(env: dict[str, str]):
    script = "import os, sys; print(os.environ['UV_DEFAULT_INDEX'], sys.argv[1:])"
    command = [sys.executable, "-I", pip_settings.__file__, sys.executable, "-c", script, "install"]
    env |= {"PIP_INDEX_URL": "https://a/simple", "PIP_NO_INDEX": "1", "PATH": os.environ["PATH"]}
    output = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert output == "https://a/simple ['install', '--no-index']\n"
