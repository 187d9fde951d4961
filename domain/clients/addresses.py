"""Where the dashboard is: named by the environment, by `rankzero login`, or by a data directory on this machine."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from domain.clients.logins import Login, UnreadableLogins, latest_login, login_at, path_of_logins, read_logins
from domain.network.certificate_file import NAME as CERTIFICATE

LOGIN = "`rankzero login`"
GIVEN = "the argument `token`"


class NoDashboard(Exception):
    """No dashboard is named, or in a way that cannot be used; the message is one sentence."""

    def __init__(self, message: str, *, is_misuse: bool = False) -> None:
        super().__init__(message)
        self.is_misuse = is_misuse
        """Whether what names it has to change."""


@dataclass(frozen=True)
class Address:
    """A dashboard's URL and login token."""

    url: str
    token: str = field(repr=False)
    ca_file: Path | None = None
    """The certificates to trust alone; None for those of RANKZERO_CA_FILE, or the system's."""
    source: str = "RANKZERO_TOKEN"
    """Where the token is from: RANKZERO_TOKEN, `rankzero login`, a file, or an argument."""

    @property
    def is_local(self) -> bool:
        """Whether the dashboard runs on this machine and sees the same files."""
        return urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")


def find_address(data: Path | None = None, token: str | None = None) -> Address:
    """Return the dashboard of a data directory, else of RANKZERO_URL and RANKZERO_TOKEN, else of RANKZERO_DATA, else
    of the latest `rankzero login`, else of this machine's data directory; `token` goes before any of these.

    Raises NoDashboard."""
    address = _find(data, token)
    return address if token is None else replace(address, token=token, source=GIVEN)


def _find(data: Path | None, token: str | None) -> Address:
    if data is None and (url := os.environ.get("RANKZERO_URL")):
        return address_at(url, token)
    if data is None and not os.environ.get("RANKZERO_DATA") and (login := latest_login(_logins())) is not None:
        return address_of(login)
    return _address_from_files(data_directory(data))


def address_at(url: str, token: str | None = None, named_by: str = "RANKZERO_URL") -> Address:
    """Return the dashboard at a URL, with this token, else that of the environment or of the login there.

    Raises NoDashboard."""
    url = url.rstrip("/")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise NoDashboard(f"{named_by} must begin with http:// or https://, got {url!r}.", is_misuse=True)
    if token is not None:
        return Address(url, _checked(token.strip(), "`token`"), source=GIVEN)
    if stored := _token_of_environment().strip():
        return Address(url, _checked(stored, "RANKZERO_TOKEN"))
    if (login := login_at(_logins(), url)) is not None:
        return address_of(login)
    raise NoDashboard(
        f"{named_by} needs `rankzero login {url}`, or RANKZERO_TOKEN: an access token, or what `rankzero token` "
        "prints on the server.",
        is_misuse=True,
    )


def _checked(token: str, source: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise NoDashboard(
            f"{source} is not a valid token: it contains characters that tokens never have.", is_misuse=True
        )
    return token


def address_of(login: Login) -> Address:
    """Return the dashboard of a login."""
    return Address(login.url, login.token, Path(login.ca_file) if login.ca_file else None, LOGIN)


def data_directory(data: Path | None) -> Path:
    """Return the absolute path of the directory named, else of RANKZERO_DATA, else the platform's for user data."""
    from platformdirs import user_data_path

    directory = data or os.environ.get("RANKZERO_DATA") or user_data_path("rankzero", appauthor=False)
    return Path(directory).expanduser().absolute()


def _token_of_environment() -> str:
    """The token in RANKZERO_TOKEN, or in the file that RANKZERO_TOKEN_FILE names. Raises NoDashboard."""
    if (token := os.environ.get("RANKZERO_TOKEN", "")).strip():
        return token
    path = os.environ.get("RANKZERO_TOKEN_FILE")
    try:
        return Path(path).expanduser().read_text() if path else ""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise NoDashboard(f"RANKZERO_TOKEN_FILE: {path} cannot be read: {reason}.", is_misuse=True) from None


def _logins() -> dict[str, object]:
    try:
        return read_logins(path_of_logins())
    except UnreadableLogins as error:
        raise NoDashboard(str(error)) from None


def _address_from_files(folder: Path) -> Address:
    try:
        about = json.loads((folder / "server.json").read_text())
        url, token = str(about["url"]).rstrip("/"), (folder / "token").read_text().strip()
        ca_file = folder / CERTIFICATE if url.startswith("https:") else None
        return Address(url, token, ca_file, str(folder / "token"))
    except PermissionError as error:
        raise NoDashboard(f"{error.filename} may only be read by its owner; run this as that user.") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise NoDashboard(
            f"No dashboard runs on {folder}. Start one with `rankzero up`, use one elsewhere with "
            "`rankzero login URL`, or name one with RANKZERO_URL and RANKZERO_TOKEN."
        ) from None
