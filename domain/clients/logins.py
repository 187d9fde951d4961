"""The logins of `rankzero login`, one for each dashboard, in a file that only this user can read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class UnreadableLogins(Exception):
    """The file of logins cannot be read; the message is one sentence."""


@dataclass(frozen=True)
class Login:
    """A token that a dashboard gave to this machine."""

    url: str
    token: str = field(repr=False)
    name: str
    """The token's name, by which it is revoked."""
    user: str
    ca_file: str | None = None
    """The certificates to trust alone, where the login did so."""


def path_of_logins() -> Path:
    """The file of this user's logins."""
    from platformdirs import user_config_path

    return user_config_path("rankzero", appauthor=False) / "logins.json"


def read_logins(path: Path) -> dict[str, Any]:
    """Return what the file holds; empty where there is none. Raises UnreadableLogins."""
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UnreadableLogins(f"{path} cannot be read ({error}): delete it, then `rankzero login`.") from None
    return stored if isinstance(stored, dict) else {}


def login_at(stored: dict[str, Any], url: str | None) -> Login | None:
    """Return the login at a dashboard; None: there is none."""
    login = (stored.get("logins") or {}).get(url) if url else None
    try:
        return Login(**login) if login else None
    except TypeError:
        return None


def latest_login(stored: dict[str, Any]) -> Login | None:
    """Return the latest login, which programs use that no other dashboard is named for."""
    return login_at(stored, stored.get("current"))
