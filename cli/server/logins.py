"""The logins of `rankzero login`, one for each dashboard, in a file that only this user can read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cli.terminal import CommandFailed
from dashboard.private_files import make_private_directory, write_private
from domain.clients.logins import Login, UnreadableLogins, latest_login, login_at, path_of_logins, read_logins


class Logins:
    """All logins of this user on this machine."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or path_of_logins()

    def current(self) -> Login | None:
        """The latest login, which commands use that no other dashboard is named for. Raises CommandFailed."""
        return latest_login(self._read())

    def at(self, url: str) -> Login | None:
        """The login at a dashboard. Raises CommandFailed."""
        return login_at(self._read(), url)

    def keep(self, login: Login) -> None:
        """Store a login and use it from now on. Raises CommandFailed."""
        stored = self._read()
        stored["logins"] = dict(stored.get("logins") or {}) | {login.url: asdict(login)}
        self._write(stored | {"current": login.url})

    def forget(self, url: str) -> None:
        """Remove a login. Raises CommandFailed."""
        stored = self._read()
        stored["logins"] = {other: login for other, login in (stored.get("logins") or {}).items() if other != url}
        self._write(stored | {"current": None if stored.get("current") == url else stored.get("current")})

    def _read(self) -> dict[str, Any]:
        try:
            return read_logins(self.path)
        except UnreadableLogins as error:
            raise CommandFailed(str(error)) from None

    def _write(self, stored: dict[str, Any]) -> None:
        try:
            make_private_directory(self.path.parent)
            write_private(self.path, json.dumps(stored, indent=1) + "\n")
        except OSError as error:
            raise CommandFailed(f"{self.path} cannot be written: {error.strerror}.") from None


def plain_url(text: str) -> str:
    """The address of a dashboard, of what a person pasted: without page, query and slash. Raises CommandFailed."""
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandFailed(f"The address of a dashboard begins with http:// or https://, got {text!r}.", 2)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
