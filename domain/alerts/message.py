"""The message about one or several events, as text and as the JSON of a webhook. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from domain.masking import masked_text
from domain.text.formats import plural

MOST_LISTED = 20
LONGEST_SENTENCE = 600
SECRET_PREFIX = "whsec_"


@dataclass(frozen=True)
class MessageItem:
    """One event as a message shows it."""

    run_id: str | None
    """None in a test message."""
    at: float
    sentence: str


@dataclass(frozen=True)
class Message:
    """What one target receives."""

    id: str
    """The same in each attempt to send it."""
    title: str
    body: str
    content: dict[str, Any]
    """The JSON of a webhook."""
    picture: str | None
    """The curve of the first run as a PNG, in base64."""


def message(
    message_id: str, rule: str, items: Sequence[MessageItem], url: str, picture: bytes | None = None
) -> Message:
    """Compose one message about events of one rule; `url` is the address of the dashboard, `picture` a PNG."""
    encoded = base64.b64encode(picture).decode() if picture else None
    listed = [
        {"run": item.run_id, "at": item.at, "sentence": plain(item.sentence), "url": _link(url, item.run_id)}
        for item in items[:MOST_LISTED]
    ]
    further = len(items) - len(listed)
    lines = [f"{event['sentence']}\n{event['url']}" for event in listed]
    if further:
        lines.append(f"… and {plural(further, 'further event')}.")
    title = f"Rankzero: {rule}" if len(items) == 1 else f"Rankzero: {rule} ({plural(len(items), 'event')})"
    content = {"rule": rule, "events": listed, "further": further, "picture": encoded}
    return Message(message_id, title, "\n\n".join(lines), content, encoded)


def new_secret() -> str:
    """A new secret of a webhook, in the form of Standard Webhooks."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def signed(content: Message, secret: str, now: float) -> tuple[bytes, dict[str, str]]:
    """The body and headers of a webhook, signed as https://www.standardwebhooks.com describes."""
    body = json.dumps(content.content, ensure_ascii=False).encode()
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    timestamp = str(int(now))
    text = f"{content.id}.{timestamp}.".encode() + body
    signature = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    return body, {
        "Content-Type": "application/json",
        "webhook-id": content.id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{signature}",
    }


def plain(sentence: str) -> str:
    """One line without secrets and control characters, in which no service sees a mention of everybody."""
    line = " ".join(masked_text(sentence).split())
    line = "".join(c if c.isprintable() else "?" for c in line)[:LONGEST_SENTENCE]
    return line.replace("@", "@\u200b").replace("<!", "<\u200b!")


def _link(url: str, run_id: str | None) -> str:
    return f"{url}/run?id={run_id}" if run_id else url
