"""TLS by certificate files: who connects how, what is said of wrong files, and certificates that are renewed."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dashboard.security.keys.certificates import CertificateUnusable, ServerCertificate, end_warning
from domain.messages import NodeFacts
from domain.network.trust import CannotTrust, tls_context
from tests.dashboard.certificates import Pair, encrypted, self_signed, signed
from tests.dashboard.program import LIMIT_S, Program, dashboard
from tests.dashboard.running import patient, running
from tests.end_to_end.product import wait_for
from worker.session.client import Client
from worker.session.failures import ServerAway

pytestmark = pytest.mark.real

FACTS = NodeFacts(name="n0", instance_id="i", hostname="h", address="10.0.0.1", devices=[])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def pair(folder: Path) -> Pair:
    return self_signed(folder)


@pytest.fixture(scope="module")
def secured(folder: Path, pair: Pair) -> Iterator[Program]:
    """A dashboard with a self-signed certificate."""
    with dashboard(folder / "data", *pair.options) as program:
        yield program


def rankzero(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command of the user, whose environment names no other dashboard."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
    argv = [sys.executable, "-P", "-m", "cli.main", *words]
    return subprocess.run(argv, capture_output=True, text=True, env=own | env, timeout=LIMIT_S)


def test_commands_on_this_machine_need_nothing_more(secured: Program) -> None:
    assert secured.about["url"].startswith("https://127.0.0.1:")
    listed = rankzero("nodes", "--data", str(secured.data), "--json")
    assert listed.returncode == 0 and isinstance(json.loads(listed.stdout), list), listed.stderr


def test_elsewhere_a_certificate_must_be_trusted_and_a_sentence_says_how(secured: Program, pair: Pair) -> None:
    here = {"RANKZERO_URL": secured.about["url"], "RANKZERO_TOKEN": secured.token}
    refused = rankzero("nodes", **here)
    assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1
    assert "its certificate is not trusted here (self" in refused.stderr and "RANKZERO_CA_FILE" in refused.stderr
    for name in ("RANKZERO_CA_FILE", "SSL_CERT_FILE"):
        assert rankzero("nodes", **here, **{name: str(pair.certificate)}).returncode == 0, name
    published = secured.data / "certificate.pem"
    assert rankzero("nodes", **here, RANKZERO_CA_FILE=str(published)).returncode == 0
    missing = rankzero("nodes", **here, RANKZERO_CA_FILE="/nowhere/ca.pem")
    assert missing.stderr == "RANKZERO_CA_FILE: /nowhere/ca.pem cannot be read: No such file or directory.\n"


def test_a_worker_says_why_it_does_not_trust_and_joins_with_the_file(
    secured: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = (secured.data / "join-token").read_text().strip()
    with (
        closing(patient(Client(secured.about["url"]))) as client,
        pytest.raises(ServerAway, match=r"not trusted here.*CA_FILE"),
    ):
        client.register(FACTS, None, join)
    monkeypatch.setenv("RANKZERO_CA_FILE", str(secured.data / "certificate.pem"))
    with closing(patient(Client(secured.about["url"]))) as client:
        assert client.register(FACTS, None, join).node_id
        assert client.own_address == "127.0.0.1"


def test_plain_http_and_tls_are_told_apart(secured: Program, tmp_path: Path) -> None:
    plain = rankzero("nodes", RANKZERO_URL=secured.about["url"].replace("https", "http"), RANKZERO_TOKEN=secured.token)
    assert plain.returncode == 1 and "Traceback" not in plain.stderr
    with dashboard(tmp_path / "data") as program:
        tls = rankzero("nodes", RANKZERO_URL=program.about["url"].replace("http", "https"), RANKZERO_TOKEN="x" * 40)
    assert "it does not speak TLS: use http://" in tls.stderr


def trusting(path: Path) -> ssl.SSLContext:
    context = tls_context("https://x", httpx2.create_ssl_context, path)
    assert isinstance(context, ssl.SSLContext)
    return context


def test_cookies_checkpoints_and_sockets_pass_through_tls(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKZERO_CA_FILE", str(pair.certificate))
    with running(tmp_path / "data", on_port=True, tls_cert=pair.certificate, tls_key=pair.key) as site:
        cookie = site.anonymous().get("/", params={"token": site.token}).headers["set-cookie"]
        assert cookie.startswith("__Host-") and "Secure" in cookie
        node, run_id = site.node(), site.launch()
        task = node.task()
        node.report(task, "running")
        content = os.urandom(9_000_000)  # in requests whose body goes past the parser
        checkpoint = node.store_checkpoint(task, content)
        part = {"Range": "bytes=8999990-"}
        answer = site.http.get(f"/api/checkpoints/{checkpoint}/file", headers=part)
        assert answer.status_code == 206 and answer.content == content[-10:]
        assert site.http.get(f"/api/checkpoints/{checkpoint}/file").content == content
        session = {"Cookie": cookie.partition(";")[0], "Origin": site.url}
        with site.watching(run_id, trusting(pair.certificate), **session) as page:
            page.subscribe()
            node.log_points(task, 0, loss=[(1, 0.5, 1.0)])
            page.next_of("series")
        assert site.http.post("/api/join-tokens", json={}).json()["url"].startswith("https://")


def refusal(data: Path, *options: str) -> tuple[int, str]:
    """How `rankzero dashboard` ends with these options."""
    ended = rankzero("dashboard", "--data", str(data), "--port", "0", *options)
    return ended.returncode, ended.stderr.strip()


def empty(pair: Pair, folder: Path) -> Pair:
    (folder / "empty.pem").write_text("nothing\n")
    return Pair(folder / "empty.pem", pair.key)


WRONG: dict[str, tuple[Callable[[Pair, Path], Pair], str]] = {
    "missing": (lambda pair, folder: Pair(folder / "gone.pem", pair.key), r"/gone.pem cannot be read: No such file"),
    "missing key": (lambda pair, folder: Pair(pair.certificate, folder / "gone"), r"/gone cannot be read: No such"),
    "folder": (lambda pair, folder: Pair(folder, pair.key), r" cannot be read: Is a directory"),
    "empty": (empty, r"/empty.pem contains no certificate: it must be a PEM file"),
    "swapped": (lambda pair, folder: Pair(pair.key, pair.certificate), r"server.key contains no certificate"),
    "of another": (
        lambda pair, folder: Pair(pair.certificate, self_signed(folder, "other").key),
        r"other.key is not the key of the certificate in .*server.pem",
    ),
    "encrypted": (lambda pair, folder: encrypted(pair), r"server.encrypted must not be encrypted.*openssl pkey -in"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_files_are_one_sentence(pair: Pair, tmp_path: Path, wrong: str) -> None:
    make, expected = WRONG[wrong]
    wrong_pair = make(pair, tmp_path)
    with pytest.raises(CertificateUnusable, match=expected) as refused:
        ServerCertificate(wrong_pair.certificate, wrong_pair.key)
    assert len(str(refused.value).splitlines()) == 1


def test_a_dashboard_does_not_start_with_a_wrong_file(pair: Pair, tmp_path: Path) -> None:
    make, expected = WRONG["of another"]
    code, said = refusal(tmp_path / "data", *make(pair, tmp_path).options)
    assert code == 1 and len(said.splitlines()) == 1 and re.search(expected, said), said


def test_a_key_without_a_certificate_is_wrong_usage(pair: Pair, tmp_path: Path) -> None:
    code, said = refusal(tmp_path / "data", "--tls-key", str(pair.key))
    assert code == 2 and "RANKZERO_TLS_CERT" in said
    up = rankzero("up", "--data", str(tmp_path / "data"), "--tls-key", str(pair.key))
    assert up.returncode == 2 and "--tls-cert" in up.stderr
    up = rankzero("up", "--data", str(tmp_path / "data"), "--tls-cert", str(pair.key), "--port", "0")
    assert up.returncode == 1 and "contains no certificate" in up.stderr and len(up.stderr.splitlines()) == 1


def test_a_renewed_certificate_is_used_and_half_of_one_is_not(tmp_path: Path) -> None:
    old, new = self_signed(tmp_path, "old"), self_signed(tmp_path, "new")
    pair = Pair(Path(shutil.copy(old.certificate, tmp_path / "c.pem")), Path(shutil.copy(old.key, tmp_path / "k.pem")))
    with dashboard(tmp_path / "data", *pair.options) as program:
        published = program.data / "certificate.pem"
        context = trusting(published)
        assert shown(program) == old.certificate.read_text()
        renew(new.certificate, pair.certificate)
        wait_for(lambda: "not the key of the certificate" in program.log.read_text(), "the half to be seen")
        assert shown(program) == old.certificate.read_text()
        renew(new.key, pair.key)
        wait_for(lambda: shown(program) == new.certificate.read_text(), "the new certificate")
        wait_for(lambda: new.certificate.read_text() in published.read_text(), "its copy")
        with httpx2.Client(verify=context, trust_env=False, timeout=60) as http:  # which began with the old one
            assert http.get(program.about["url"] + "/api/health").status_code == 200
        assert program.log.read_text().count("renewed certificate is not used yet") == 1


def renew(source: Path, target: Path) -> None:
    """Put a copy in the place of a file, in one step: half of a file would be told, too."""
    copy = Path(shutil.copy(source, target.with_name("new")))
    copy.replace(target)


def test_a_certificate_that_ends_is_said_and_used(tmp_path: Path) -> None:
    ended, soon = signed(tmp_path, None, "ended", days=-1), signed(tmp_path, None, "soon", days=5)
    with dashboard(tmp_path / "data", *ended.options) as program:
        wait_for(lambda: "ended.pem has ended, on " in program.log.read_text(), "the warning")
        assert rankzero("nodes", "--data", str(program.data)).returncode == 0  # it is known here, whatever its dates
        checks = json.loads(rankzero("doctor", "--data", str(program.data), "--json").stdout)
        (check,) = (check for check in checks if check["check"] == "dashboard")
        assert not check["ok"] and "certificate.pem has ended" in check["message"]
        url = {"RANKZERO_URL": program.about["url"], "RANKZERO_TOKEN": program.token}
        refused = rankzero("nodes", **url, RANKZERO_CA_FILE=str(ended.certificate))
        assert (
            refused.returncode == 1 and "its certificate is not valid today (certificate has expired)" in refused.stderr
        )
    assert "ends in 4 days" in str(end_warning(soon.certificate))
    assert end_warning(self_signed(tmp_path, "lasting").certificate) is None


def shown(program: Program) -> str:
    """The certificate that the dashboard shows now."""
    return ssl.get_server_certificate(("127.0.0.1", program.about["port"]))


def answers(pair: Pair, ca_file: Path, host: str) -> str:
    """What a client that trusts a file says of a server with that certificate at that host: nothing if all is well."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate, pair.key)
    near, far = socket.socketpair()
    with near, far:
        server_end = server.wrap_bio(*(pipes := [ssl.MemoryBIO(), ssl.MemoryBIO()]), server_side=True)
        client_end = trusting(ca_file).wrap_bio(pipes[1], pipes[0], server_hostname=host)
        for end in (client_end, server_end, client_end, server_end):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return ""


def test_authorities_are_trusted_for_names_and_dates_and_our_own_file_for_itself(tmp_path: Path) -> None:
    authority = self_signed(tmp_path, "authority", "DNS:authority.test")
    by_authority, ended = signed(tmp_path, authority), signed(tmp_path, None, "ended", days=-1)
    trusted = authority.certificate
    assert answers(by_authority, trusted, "rankzero.test") == answers(by_authority, trusted, "127.0.0.1") == ""
    assert "mismatch" in answers(by_authority, trusted, "other.test")
    assert answers(by_authority, by_authority.certificate, "localhost") == ""  # by itself, without its authority
    assert "expired" in answers(ended, ended.certificate, "localhost")
    ours: dict[str, Any] = {}
    for pair in (by_authority, ended):
        ours[pair.certificate.stem] = path = tmp_path / f"{pair.certificate.stem}-ours.pem"
        path.write_text("# The certificate of one Rankzero dashboard\n" + pair.certificate.read_text())
        assert answers(pair, path, "any.name") == ""
    assert answers(self_signed(tmp_path, "forged"), ours["signed"], "localhost") != ""
    assert answers(signed(tmp_path, authority, "sibling"), ours["signed"], "localhost") != ""


def test_files_without_certificates_are_refused(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("nothing\n")
    with pytest.raises(CannotTrust, match="contains no certificate; it must be a PEM file"):
        trusting(tmp_path / "none.pem")
    assert tls_context("http://x", httpx2.create_ssl_context, tmp_path / "none.pem") is False
