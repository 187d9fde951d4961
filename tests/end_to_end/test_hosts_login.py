"""`rankzero login` on a machine that has nothing of the dashboard's but its address."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.end_to_end.hosts import Host, Hosts, why_not
from tests.end_to_end.product import WAIT_S, WITHOUT_TLS, wait_for

pytestmark = pytest.mark.real

EMAIL, PASSWORD = "ana@lab.example", "a horse, a battery, a staple"
LAUNCH = ("launch", "image_classifier", "--gpus-per-node", "1", "--max-steps", "2", "--json")


class Laptop:
    """A host as a person uses it: with a home of its own, and a browser that only notes what it is to open."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.home = host.home / "person"
        self.home.mkdir()
        self.opened = self.home / "opened"
        browser = self.home / "browser"
        browser.write_text(f'#!/bin/sh\necho "$1" > {self.opened}.new && mv {self.opened}.new {self.opened}\n')
        browser.chmod(0o755)
        own = {name: value for name, value in os.environ.items() if not name.startswith(("RANKZERO_", "XDG_"))}
        self.env = own | {"HOME": str(self.home), "BROWSER": str(browser)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command."""
        enter = ["nsenter", "--target", str(self.host.pid), "--net", "--uts", "--mount", "--pid", "--"]
        argv = [*enter, sys.executable, "-P", "-m", "cli.main", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=self.env)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command to its end."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=WAIT_S)
        return process.returncode, out, err

    def log_in(self, cluster: Hosts, *options: str) -> dict[str, Any]:
        """Run `rankzero login`, and let it in where its browser leads to."""
        self.opened.unlink(missing_ok=True)
        login = self.start("login", cluster.url, *options, "--json")
        try:
            wait_for(self.opened.exists, "the browser to open")
            self.host.inside(allow, cluster, self.opened.read_text().strip())
            out, err = login.communicate(timeout=WAIT_S)
        finally:
            login.kill()
            login.wait(WAIT_S)
        assert login.returncode == 0, err
        return dict(json.loads(out))


def allow(cluster: Hosts, address: str) -> None:
    """Sign in as ana, as a browser does that comes from `rankzero login`, and let it in."""
    with httpx2.Client(headers={"Origin": cluster.url, "Accept": "text/html"}, timeout=60, **WITHOUT_TLS) as browser:
        assert browser.get(address).status_code == 401
        code = httpx2.URL(address).params["code"]
        form = {"person": EMAIL, "password": PASSWORD, "next": f"/device?code={code}"}
        signed_in = browser.post(f"{cluster.url}/login", data=form)
        assert (signed_in.status_code, signed_in.headers["location"]) == (303, form["next"])
        assert code in browser.get(address).text
        decided = browser.post(f"{cluster.url}/device", data={"code": code, "answer": "allow"})
        assert decided.status_code == 200, decided.text


def accept(cluster: Hosts, link: str) -> None:
    """Make ana's account by the link that she was sent."""
    with httpx2.Client(headers={"Origin": cluster.url, "Accept": "text/html"}, timeout=60, **WITHOUT_TLS) as browser:
        assert browser.get(link).status_code == 200
        answer = browser.post(link, data={"name": "ana", "password": PASSWORD, "email": EMAIL})
        assert answer.status_code == 303, answer.text


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    cluster = Hosts(2, tmp_path_factory.mktemp("hosts"))
    try:
        cluster.boot()
        cluster.start_dashboard()
        cluster.start_worker(cluster[0])
        invitation = {"email": EMAIL, "role": "member"}
        link = cluster.request("POST", "/api/invitations", json=invitation).json()["link"]
        cluster[1].inside(accept, cluster, link)
        yield cluster
    finally:
        cluster.clean_up()


@pytest.fixture(scope="module")
def laptop(cluster: Hosts) -> Laptop:
    return Laptop(cluster[1])


def test_read_scope_is_refused_a_launch_and_launch_scope_gets_it_in_its_project(cluster: Hosts, laptop: Laptop) -> None:
    assert "No dashboard runs on" in laptop.run("runs")[2]
    assert laptop.log_in(cluster, "--scope", "read") == {"name": "ana", "role": "member", "projects": {}}
    assert laptop.run("runs", "--json") == (0, "[]\n", "")
    code, out, err = laptop.run(*LAUNCH, "--project", "vision")
    assert (code, out) == (1, "")
    assert err == (
        "The scope of token host1 is read: it may not launch. "
        "Make one with `rankzero token create NAME --scope launch`.\n"
    )
    laptop.log_in(cluster, "--scope", "launch", "--project", "vision")
    code, out, err = laptop.run(*LAUNCH, "--project", "other")
    assert (code, out, err) == (1, "", "This token is for project vision alone: name that one, or use another token.\n")
    wait_for(lambda: cluster.get("/api/nodes"), "a node to join", explain=cluster.tail)
    code, out, err = laptop.run(*LAUNCH, "--project", "vision")
    assert code == 0, err
    run = cluster.run(json.loads(out)["id"])
    assert (run["project"], run["by"]) == ("vision", "ana")
    code, out, err = laptop.run("stop", run["id"])
    assert code == 1 and "The scope of token host1-2 is launch: it may not stop this." in err
    cluster.request("POST", f"/api/runs/{run['id']}/stop")
    cluster.wait_state(run["id"])


def test_logging_out_ends_the_token_at_the_server(cluster: Hosts, laptop: Laptop) -> None:
    laptop.log_in(cluster, "--scope", "act")
    (stored,) = Path(laptop.home).rglob("logins.json")
    token = json.loads(stored.read_text())["logins"][cluster.url]["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    assert cluster.request("GET", "/api/runs", headers=bearer).status_code == 200
    assert laptop.run("logout")[0] == 0
    assert cluster.request("GET", "/api/runs", headers=bearer).status_code == 401
    assert token not in stored.read_text() and "No dashboard runs on" in laptop.run("runs")[2]
