"""Two `rankzero dashboard` on one PostgreSQL and one folder of files: a worker at one, people at the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from psycopg import sql
from websockets.sync.client import connect

from tests.end_to_end.product import WAIT_S, WITHOUT_TLS, contents_below, free_port, wait_for

pytestmark = pytest.mark.real

TOKEN = "hf_AbCdEfGhIjKlMn"
SCRIPT = """
import os, time
print("logged in with", os.environ["HF_TOKEN"], flush=True)
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("events", flush_secs=1)
for step in range(1, 61):
    writer.add_scalar("loss", 1 / step, step)
    writer.flush()
    time.sleep(0.05)
writer.close()
"""


class Site:
    """One dashboard process and how people talk to it."""

    def __init__(self, data: Path, env: dict[str, str], closing: ExitStack) -> None:
        self.data, self.port = data, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data.parent / f"{data.name}.log"
        start(["dashboard", "--port", str(self.port), "--data", str(data)], env, self.log, closing)
        wait_for(lambda: (data / "server.json").exists(), "a dashboard", explain=lambda: self.log.read_text())
        self.bearer = {"Authorization": f"Bearer {(data / 'token').read_text().strip()}"}

    def get(self, path: str) -> Any:
        answer = httpx2.get(self.url + path, headers=self.bearer, timeout=60, **WITHOUT_TLS)
        assert answer.status_code == 200, (answer.status_code, answer.text, self.log.read_text())
        return answer.json()

    def launch(self, target: Path) -> str:
        spec = {"target": str(target), "gpus_per_node": 1, "secrets": ["HF_TOKEN"]}
        secret = {"json": {"value": TOKEN}, "headers": self.bearer, "timeout": 60, **WITHOUT_TLS}
        httpx2.put(f"{self.url}/api/secrets/HF_TOKEN", **secret).raise_for_status()
        answer = httpx2.post(f"{self.url}/api/runs", json=spec, headers=self.bearer, timeout=60, **WITHOUT_TLS)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])


def start(arguments: list[str], env: dict[str, str], log: Path, closing: ExitStack) -> None:
    """A `rankzero` command that is ended with the test."""
    with log.open("ab") as output:
        argv = [sys.executable, "-P", "-m", "cli.main", *arguments]
        process = subprocess.Popen(argv, env=env, stdout=output, stderr=output)
    closing.callback(lambda: (process.terminate(), process.wait(WAIT_S)))


@pytest.fixture
def sites(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
    env |= {"RANKZERO_DATABASE_URL": postgres_url, "RANKZERO_FILES": str(tmp_path / "files")}
    env |= {"RANKZERO_SECRET_KEY_FILE": str(tmp_path / "secret-key")}
    with ExitStack() as closing:
        here, there = Site(tmp_path / "a", env, closing), Site(tmp_path / "b", env, closing)
        token = here.data / "join-token"
        worker = ["worker", "--server", here.url, "--data", str(tmp_path / "w"), "--slots", "1"]
        options = ["--stop-runs", "--token-file", str(token)]
        start([*worker, *options], env, tmp_path / "worker.log", closing)
        wait_for(lambda: there.get("/api/nodes"), "the worker, seen at the other dashboard")
        yield here, there


@pytest.mark.long
def test_a_run_at_one_dashboard_is_watched_live_at_the_other(
    sites: tuple[Site, Site], tmp_path: Path, postgres_url: str
) -> None:
    """It prints a secret that was set at one, and given to the worker by the other, with the key that they share."""
    here, there = sites
    (tmp_path / "train.py").write_text(SCRIPT)
    run_id = there.launch(tmp_path / "train.py")
    shown: list[list[float]] = []
    states: list[str] = []
    lags: list[float] = []
    url = there.url.replace("http", "ws") + f"/api/live?run={run_id}"
    with connect(url, additional_headers=there.bearer, proxy=None, open_timeout=60) as page:
        page.send(json.dumps({"type": "subscribe", "since": None, "logs": None}))
        deadline = time.monotonic() + WAIT_S
        while (not states or states[-1] != "succeeded" or len(shown) < 60) and time.monotonic() < deadline:
            message = json.loads(page.recv(timeout=WAIT_S))
            if message["type"] == "run" and message["run"]["state"] not in states[-1:]:
                states.append(message["run"]["state"])
            if message["type"] == "series" and "loss" in message["series"]:
                points = message["series"]["loss"]["points"]
                shown += points
                lags += [time.time() - point[2] for point in points[-1:]]
    assert states[-1] == "succeeded", (states, here.log.read_text(), there.log.read_text())
    assert [point[0] for point in shown] == list(range(1, 61))
    assert "running" in states
    assert sorted(lags)[len(lags) // 2] < 2.0, lags
    for site in sites:
        stored = site.get(f"/api/runs/{run_id}/metrics?name=loss")["loss"]
        assert [point[0] for point in stored] == list(range(1, 61))
        log = httpx2.get(f"{site.url}/api/runs/{run_id}/logs", headers=site.bearer, timeout=60, **WITHOUT_TLS)
        assert log.status_code == 200 and log.text == f"logged in with {'*' * len(TOKEN)}\n"
    history = [line["text"] for line in here.get(f"/api/runs/{run_id}/history")]
    assert len([line for line in history if line.startswith("placed on")]) == 1, history
    assert history == [line["text"] for line in there.get(f"/api/runs/{run_id}/history")]
    assert [path for path, content in contents_below(tmp_path) if TOKEN.encode() in content] == []
    assert tables_with(TOKEN, postgres_url) == []


def tables_with(text: str, url: str) -> list[str]:
    """The tables of a database with a row that has this in it."""
    with psycopg.connect(url.replace("+psycopg", "")) as database:
        names = [name for (name,) in database.execute("select tablename from pg_tables where schemaname = 'public'")]
        query = sql.SQL("select count(*) from {} as one where one::text like {}")
        counts = {name: database.execute(query.format(sql.Identifier(name), f"%{text}%")).fetchone() for name in names}
    return [name for name, count in counts.items() if count != (0,)]
