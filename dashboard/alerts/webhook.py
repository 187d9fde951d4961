"""Sign the messages to webhooks as https://www.standardwebhooks.com describes."""

from __future__ import annotations

import base64
import json
import secrets
from datetime import UTC, datetime

from standardwebhooks import Webhook

from domain.alerts.message import Message

SECRET_BYTES = 32


def new_secret() -> str:
    """A new secret of a webhook."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed(content: Message, secret: str, now: float) -> tuple[bytes, dict[str, str]]:
    """The body and headers of a webhook that is sent now."""
    body = json.dumps(content.content, ensure_ascii=False)
    return body.encode(), {
        "Content-Type": "application/json",
        "webhook-id": content.id,
        "webhook-timestamp": str(int(now)),
        "webhook-signature": Webhook(secret).sign(content.id, datetime.fromtimestamp(now, UTC), body),
    }
