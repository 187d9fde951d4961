"""The sending program against receivers that are down, slow, lying, or on the server's own network."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from dashboard.alerts.message_sender import LIMIT_S, PRIVATE
from dashboard.alerts.outbox import Sender
from tests.dashboard.alerts.receivers import Http, Mail, Receiver, serving

BUSY_LIMIT_S = 4 * LIMIT_S
"""For machines on which even the start of a program takes long."""
SENDER = Sender(allow_private=True, limit_s=BUSY_LIMIT_S)
STRICT = Sender(allow_private=False, limit_s=BUSY_LIMIT_S)


def webhook(port: int, path: str = "") -> dict[str, Any]:
    return {
        "action": "send",
        "target": f"http://127.0.0.1:{port}/{path}",
        "body": "{}",
        "headers": {"a": "b"},
    }


def outcome(result: dict[str, str] | None) -> str | None:
    return result["outcome"] if result else None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", "accepted"),
        (b"HTTP/1.1 503 Away\r\nContent-Length: 0\r\n\r\n", "unavailable"),
        (b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", "refused"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "refused"),
        (b"this is not HTTP\r\n\r\n", "unclear"),
        (b"", "unclear"),
    ],
)
def test_the_status_of_a_webhook_decides(answer: bytes, expected: str) -> None:
    with serving(Http, Receiver(answer=answer)) as receiver:
        assert outcome(SENDER.run(webhook(receiver.port))) == expected
        assert [received.body for received in receiver.received] == [b"{}"]


def test_an_answer_without_end_is_not_read() -> None:
    with serving(Http, Receiver(answer=b"HTTP/1.1 200 OK\r\n\r\n", is_endless=True)) as receiver:
        assert outcome(SENDER.run(webhook(receiver.port))) == "accepted"


def test_a_receiver_that_is_down_may_come_back() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        assert outcome(SENDER.run(webhook(taken.getsockname()[1]))) == "unavailable"


def test_a_receiver_that_never_answers_costs_its_time_only() -> None:
    silence = threading.Event()
    with serving(Http, Receiver(silence=silence)) as receiver:
        results: list[Any] = []
        sender = Sender(allow_private=True, limit_s=BUSY_LIMIT_S)
        waiting = threading.Thread(target=lambda: results.append(sender.run(webhook(receiver.port))))
        waiting.start()
        while not receiver.received and waiting.is_alive():
            waiting.join(0.05)
        sender.close()  # as the limit does
        waiting.join()
        assert results == [None]


def test_a_mail_arrives_through_apprise_and_a_service_that_refuses_is_told_from_one_that_is_away() -> None:
    with serving(Mail, Receiver()) as receiver:
        target = f"mailto://127.0.0.1:{receiver.port}?from=rankzero@example.com&to=me@example.com&mode=insecure"
        request = {
            "action": "send",
            "target": target,
            "title": "Rankzero: failed",
            "body": "digits failed.\nlink",
        }
        assert SENDER.run(request) == {"outcome": "accepted"}
        (mail,) = receiver.received
        assert mail.header("subject") == "Rankzero: failed"
    assert outcome(SENDER.run(request)) == "unavailable"
    with serving(Http, Receiver(answer=b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")) as receiver:
        request = request | {"target": f"json://127.0.0.1:{receiver.port}/secret"}
        assert SENDER.run(request) == {"outcome": "refused", "problem": "The receiver answered 403."}


def test_the_program_that_sends_has_none_of_our_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKZERO_TOKEN", "ours")
    environment = SENDER._environment()
    assert "PATH" in environment and not any(name.startswith("RANKZERO_") for name in environment)


@pytest.mark.parametrize("target", ["http://localhost:{}/", "http://127.1:{}/", "json://127.0.0.1:{}/"])
def test_the_servers_own_network_is_closed_when_a_message_is_sent(target: str) -> None:
    with serving(Http, Receiver()) as receiver:
        request = {"action": "send", "target": target.format(receiver.port), "title": "t", "body": "{}"}
        headers = {} if target.startswith("json") else {"headers": {}}
        assert STRICT.run(request | headers) == {"outcome": "refused", "problem": PRIVATE}
        assert receiver.received == []


@pytest.mark.parametrize(
    ("target", "result"),
    [
        ("https://10.0.0.1/hook", {"problem": PRIVATE}),
        ("mailto://u:p@localhost?to=a@example.com", {"problem": PRIVATE}),
        ("ntfy://[::1]/topic", {"problem": PRIVATE}),
        ("https://8.8.8.8/hook", {"kind": "webhook"}),
        ("ntfy://topic", {"kind": "apprise"}),
        (
            "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
            {"kind": "apprise"},
        ),
    ],
)
def test_a_target_is_checked_before_it_is_stored(target: str, result: dict[str, str]) -> None:
    assert STRICT.run({"action": "check", "target": target}) == result


def test_unknown_address_is_refused() -> None:
    result = SENDER.run({"action": "check", "target": "nonsense://x"})
    assert result is not None and "problem" in result
