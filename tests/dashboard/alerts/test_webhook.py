"""The signature of a webhook, computed again here and verified by the standard's own library."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from dashboard.alerts.outbox import new_secret, signed
from domain.alerts.message import MessageItem, message


def test_webhook_has_the_signature_of_the_standard() -> None:
    secret, composed = new_secret(), message("msg_1", "failed", [MessageItem(None, 1.0, "ä")], "u")
    body, headers = signed(composed, secret, 1_760_000_000.9)
    text = b"msg_1.1760000000." + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert json.loads(body)["events"][0]["sentence"] == "ä"


def test_library_accepts_a_webhook_and_refuses_a_changed_one() -> None:
    secret, composed = new_secret(), message("msg_1", "failed", [MessageItem(None, 1.0, "ä")], "u")
    body, headers = signed(composed, secret, time.time())
    assert Webhook(secret).verify(body, headers)["events"][0]["sentence"] == "ä"
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body + b" ", headers)
