"""Alerts on a machine that may stand still while the program that sends them starts."""

from __future__ import annotations

from functools import partial

import pytest

from dashboard.alerts import request, watch
from dashboard.alerts.outbox import Sender


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No message is sent again for having taken long."""
    for module in (request, watch):
        monkeypatch.setattr(module, "Sender", partial(Sender, limit_s=120.0))
