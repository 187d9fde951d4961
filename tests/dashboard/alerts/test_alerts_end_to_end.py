"""Alerts of a real dashboard: set by the command line, sent when a run fails, once, also after a restart."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from standardwebhooks import Webhook

from cli import main
from dashboard.errors import error_body
from tests.dashboard.alerts.receivers import Http, Mail, Receiver, serving
from tests.dashboard.running import Running, running, wait_for

LIMIT_S = 120.0


class Commands:
    """`rankzero alert` against a dashboard of this process."""

    def __init__(self, it: Running, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        patch.setenv("RANKZERO_URL", it.url)
        patch.setenv("RANKZERO_TOKEN", it.token)
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Any:
        self._capsys.readouterr()
        code = main.run(["alert", *arguments, "--json"])
        printed = self._capsys.readouterr()
        return json.loads(printed.out) if code == 0 else (code, printed.err)


def fail_a_run(it: Running, name: str, before_it_fails: Callable[[], Any]) -> str:
    """A run whose loss falls, jumps, and that fails once the jump was noticed."""
    node = it.node(name)
    run_id = it.launch(name=name)
    task = node.task()
    node.report(task, "running")
    values = [1.0 - step / 100 for step in range(70)] + [40.0] * 5
    node.log_points(task, 0, train__loss=[(step, value, time.time()) for step, value in enumerate(values)])
    before_it_fails()
    node.report(task, "failed", reason="script error", message="rank 0 on n0: ValueError: x")
    return run_id


@pytest.mark.real
def test_a_failed_run_is_told_once_to_a_webhook_and_by_mail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        serving(Http, Receiver()) as hook,
        serving(Mail, Receiver()) as post,
        serving(Http, Receiver()) as other,
    ):
        address = f"http://127.0.0.1:{hook.port}/very-secret-path"
        mail = f"mailto://127.0.0.1:{post.port}?from=a@example.com&to=b@example.com&mode=insecure"
        with running(tmp_path / "data", alert_private_targets=True) as it:
            rankzero = Commands(it, capsys, monkeypatch)
            added = rankzero("add", "failed", "--to", address)
            rankzero("add", "failed", "--to", mail)
            assert rankzero("test", added["id"])["last_sent_at"] is not None
            rankzero("add", "spike", "--to", f"json://127.0.0.1:{other.port}/")
            rankzero("add", "no-improvement=50", "--to", f"json://127.0.0.1:{other.port}/")
            run_id = fail_a_run(it, "digits", lambda: wait_for(lambda: other.received, "the spike", LIMIT_S))
            wait_for(lambda: len(hook.received) == 2 and post.received, "both messages", LIMIT_S)
            wait_for(lambda: not any(a["waiting"] for a in it.http.get("/api/alerts").json()), "answers", LIMIT_S)
            listed = rankzero("list")
            assert [alert["rule"] for alert in listed] == ["failed", "failed", "spike", "no-improvement=50"]
            assert "very-secret-path" not in json.dumps(listed) and "b@example.com" not in json.dumps(listed)
            assert added["secret"] not in json.dumps(listed)
        notified = hook.received[1]
        (event,) = json.loads(notified.body)["events"]
        assert (event["run"], event["sentence"]) == (run_id, "digits failed: rank 0 on n0: ValueError: x")
        assert event["url"] == f"{it.url}/run?id={run_id}"
        signature = {f"webhook-{name}": notified.header(f"webhook-{name}") for name in ("id", "timestamp", "signature")}
        assert Webhook(added["secret"]).verify(notified.body, signature)["rule"] == "failed"
        picture = base64.b64decode(json.loads(notified.body)["picture"])
        with Image.open(BytesIO(picture)) as image:
            assert (image.format, image.size) == ("PNG", (640, 280))
        assert b"curve.png" in post.received[0].body
        (jump,) = other.received
        assert "digits: train/loss jumped to 40 at step 70." in json.loads(jump.body)["message"]
        assert [a["filename"] for a in json.loads(jump.body)["attachments"]] == ["curve.png"]
        with running(tmp_path / "data", alert_private_targets=True) as it:  # restarted: nothing is told twice
            rankzero = Commands(it, capsys, monkeypatch)
            assert rankzero("test", added["id"])["waiting"] == 0
            assert rankzero("remove", added["id"])["id"] == added["id"]
            assert len(rankzero("list")) == 3
        assert [json.loads(r.body)["rule"] for r in hook.received] == ["test", "failed", "test"]
        assert len(post.received) == 1


def test_browser_alert_waits_for_the_browser(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "data") as it:
        rankzero = Commands(it, capsys, monkeypatch)
        added = rankzero("add", "failed", "--to", "browser")
        assert (added["target"], added["secret"]) == ("browser", None)
        run_id = fail_a_run(it, "digits", lambda: None)

        def notified() -> list[dict[str, Any]]:
            return list(it.http.get("/api/notifications").json()["notifications"])

        (notice,) = wait_for(notified, "a notification", LIMIT_S)
        assert (notice["alert"], notice["rule"], notice["run"]) == (added["id"], "failed", run_id)
        assert notice["sentence"] == "digits failed: rank 0 on n0: ValueError: x"
        assert rankzero("list")[0]["waiting"] == 1
        assert it.anonymous().get("/api/notifications").status_code == 401
        it.http.post("/api/notifications/shown", json={"ids": [notice["id"]]}).raise_for_status()
        (alert,) = rankzero("list")
        assert alert["waiting"] == 0 and alert["last_sent_at"] is not None and notified() == []


def test_a_wrong_request_is_refused_without_its_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "data") as it:
        rankzero = Commands(it, capsys, monkeypatch)
        for arguments, part in (
            (("add", "fails", "--to", "slack://secret"), "rule must be one of"),
            (("add", "failed", "--to", "http://127.0.0.1/secret"), "RANKZERO_ALERT_PRIVATE_TARGETS"),
            (("add", "failed", "--to", "nonsense://secret"), "target is not"),
            (("test", "abcdefghij"), "There is no alert"),
            (("remove", "../secret"), "There is no alert"),
        ):
            code, error = rankzero(*arguments)
            assert code in (1, 2) and part in error, arguments
            assert "secret" not in error.replace("../secret", "")
        body = {"rule": "failed", "target": 5}
        assert it.http.post("/api/alerts", json=body).json() == error_body("target", "target must be text.")
        assert rankzero("list") == []
