"""Choose W&B's offline mode where it would ask for a key or wait for a network that is not there."""

from __future__ import annotations

import netrc
import os
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CONNECT_S = 3.0
KEYS = ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE")
PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")

reason = ""
"""Why offline mode was chosen; empty while it was not."""


def choose(*args: Any, key: str | None = None, mode: str | None = None, force: bool = False, **_: Any) -> None:
    """Set the mode of W&B's session, before `wandb.init` or `wandb.login`, unless the script chose one."""
    global reason
    settings = _session_settings()
    if key or mode or force or os.environ.get("WANDB_MODE") or settings.mode != "online":
        return
    if not (settings.api_key or has_key()):
        reason = "no API key"
    elif not is_reachable(settings.base_url):
        reason = f"{urlsplit(settings.base_url).hostname} could not be reached"
    if reason:
        settings.mode = "offline"


def has_key() -> bool:
    """Whether W&B finds credentials in the environment or in a netrc file, where it writes the login "user"."""
    if any(os.environ.get(name) for name in KEYS):
        return True
    chosen = os.environ.get("NETRC")
    files = [Path(chosen)] if chosen else [Path.home() / name for name in (".netrc", "_netrc")]
    return any(login == "user" for file in files if file.is_file() for login, _, _ in _entries(file))


def is_reachable(url: str) -> bool:
    """Whether the server accepts a connection; a proxy is not asked and counts as one that does."""
    if any(os.environ.get(name) for name in PROXIES):
        return True
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 443), CONNECT_S):
            return True
    except OSError:
        return False


def _entries(file: Path) -> list[tuple[str, str | None, str | None]]:
    try:
        return list(netrc.netrc(str(file)).hosts.values())
    except (OSError, netrc.NetrcParseError):
        return []


def _session_settings() -> Any:
    """Return the settings that all runs of this process start with."""
    setup: Any = sys.modules["wandb.sdk.wandb_setup"]
    return getattr(setup, "singleton", setup.setup)().settings
