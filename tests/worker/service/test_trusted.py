"""A node trusts the certificates that `rankzero nodes add` brings, also after it has been started again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cli.commands.installation.node_installation import certificates_of_this_command
from cli.terminal import CommandFailed
from domain.network.trust import CA_FILE
from tests.dashboard.certificates import self_signed
from tests.dashboard.running import running
from worker.service.home import Home
from worker.service.program import Refused, reachable


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An installation on a machine that trusts no certificate of ours."""
    monkeypatch.setenv(CA_FILE, "")  # so that what the node sets is gone afterwards
    monkeypatch.delenv(CA_FILE)
    (tmp_path / "home").mkdir()
    return Home(tmp_path / "home")


def test_certificates_that_are_brought_are_kept_and_trusted(home: Home, tmp_path: Path) -> None:
    pair = self_signed(tmp_path)
    with running(tmp_path / "data", on_port=True, tls_cert=pair.certificate, tls_key=pair.key) as site:
        home.trust()
        with pytest.raises(Refused, match=r"its certificate is not trusted here \(self.signed.*RANKZERO_CA_FILE"):
            reachable([site.url])
        home.trust(pair.certificate.read_text())
        assert reachable([site.url]) == site.url
        assert stat.S_IMODE(home.certificates.stat().st_mode) == 0o600
        del os.environ[CA_FILE]
        home.trust("")  # a later start, which brings none
        assert reachable([site.url]) == site.url


def test_the_command_brings_what_it_trusts_itself(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert certificates_of_this_command() == ""
    pair = self_signed(tmp_path)
    monkeypatch.setenv(CA_FILE, str(pair.certificate))
    assert certificates_of_this_command() == pair.certificate.read_text()
    monkeypatch.setenv(CA_FILE, str(tmp_path / "gone"))
    with pytest.raises(CommandFailed, match="gone cannot be read: No such file"):
        certificates_of_this_command()
