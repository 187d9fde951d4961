"""The command line's HTTP client: finds the dashboard, and turns its errors into one sentence."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cli.server.logins import Login, Logins
from cli.terminal import CommandFailed
from domain.network.certificate_file import NAME as CERTIFICATE
from domain.people.tokens import PREFIX

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0


NO_TOKEN = "A valid token is needed: sign in, or send it as Authorization: Bearer."
LOGIN = "`rankzero login`"


class ServerUnreachable(CommandFailed):
    """The dashboard does not answer now; retrying may help."""


class Document(dict[str, Any]):
    """A JSON object of the server, whose fields are attributes too, as those of the view it was made of.

    A field that it lacks is None: an older server has fewer."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)


@dataclass(frozen=True)
class Address:
    """A dashboard's URL and login token."""

    url: str
    token: str = field(repr=False)
    ca_file: Path | None = None
    """The certificates to trust alone; None for those of RANKZERO_CA_FILE, or the system's."""
    source: str = "RANKZERO_TOKEN"
    """Where the token is from: RANKZERO_TOKEN, `rankzero login`, or a file."""

    @property
    def is_local(self) -> bool:
        """Whether the dashboard runs on this machine and sees the same files."""
        return urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")


def find_server(data: Path | None) -> Address:
    """Return the dashboard of a data directory, else of RANKZERO_URL and RANKZERO_TOKEN, else of RANKZERO_DATA, else
    of the latest `rankzero login`, else of this machine's data directory. Raises CommandFailed."""
    if data is None and (url := os.environ.get("RANKZERO_URL")):
        return _address_from_environment(url.rstrip("/"))
    if data is None and not os.environ.get("RANKZERO_DATA") and (login := Logins().current()) is not None:
        return address_of(login)
    return _address_from_files(data_directory(data))


def address_of(login: Login) -> Address:
    """Return the dashboard of a login."""
    return Address(login.url, login.token, Path(login.ca_file) if login.ca_file else None, LOGIN)


def _address_from_files(folder: Path) -> Address:
    try:
        about = json.loads((folder / "server.json").read_text())
        url, token = str(about["url"]).rstrip("/"), (folder / "token").read_text().strip()
        ca_file = folder / CERTIFICATE if url.startswith("https:") else None
        return Address(url, token, ca_file, str(folder / "token"))
    except PermissionError as error:
        raise CommandFailed(f"{error.filename} may only be read by its owner; run this as that user.") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise CommandFailed(
            f"No dashboard runs on {folder}. Start one with `rankzero up`, use one elsewhere with "
            "`rankzero login URL`, or name one with RANKZERO_URL and RANKZERO_TOKEN."
        ) from None


def data_directory(data: Path | None) -> Path:
    """Return the absolute path of the directory named, else of RANKZERO_DATA, else the platform's for user data."""
    from platformdirs import user_data_path

    directory = data or os.environ.get("RANKZERO_DATA") or user_data_path("rankzero", appauthor=False)
    return Path(directory).expanduser().absolute()


def _address_from_environment(url: str) -> Address:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise CommandFailed(f"RANKZERO_URL must begin with http:// or https://, got {url!r}.", 2)
    token = os.environ.get("RANKZERO_TOKEN", "").strip()
    if not token and (login := Logins().at(url)) is not None:
        return address_of(login)
    if not token:
        raise CommandFailed(
            f"RANKZERO_URL needs `rankzero login {url}`, or RANKZERO_TOKEN: an access token, or what `rankzero token` "
            "prints on the server.",
            2,
        )
    if not (token.isascii() and token.isprintable()):
        raise CommandFailed("RANKZERO_TOKEN is not a valid token: it contains characters that tokens never have.", 2)
    return Address(url, token)


class ServerClient:
    """A connection to one dashboard; every method raises CommandFailed with a sentence for the user."""

    def __init__(self, address: Address) -> None:
        import httpx2

        from worker.session.trust import CannotTrust, tls_context

        try:
            context = tls_context(address.url, address.ca_file)
        except CannotTrust as error:
            raise CommandFailed(str(error)) from None
        self.address = address
        self._has_warned = False
        self._http = httpx2.Client(
            base_url=address.url,
            headers={"Authorization": f"Bearer {address.token}"} if address.token else {},
            timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx2.Limits(max_keepalive_connections=0),  # a command asks once or twice, then ends
            trust_env=not address.is_local,  # a proxy cannot reach this machine's loopback
            verify=context,
        )

    def get(self, path: str, **params: Any) -> Any:
        """GET a JSON document; parameters that are None are omitted. Raises CommandFailed."""
        return self._ask("GET", path, params={k: v for k, v in params.items() if v is not None})

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """POST a JSON document and return the response's. Raises CommandFailed."""
        return self._ask("POST", path, json=body or {})

    def delete(self, path: str) -> Any:
        """DELETE a resource and return the response's document. Raises CommandFailed."""
        return self._ask("DELETE", path)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """PATCH a resource and return the response's document. Raises CommandFailed."""
        return self._ask("PATCH", path, json=body)

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """PUT a JSON document and return the response's. Raises CommandFailed."""
        return self._ask("PUT", path, json=body)

    def put_file(self, path: str, file: Path) -> Any:
        """PUT a file's bytes, streamed from disk. Raises CommandFailed."""
        with file.open("rb") as content:
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(file.stat().st_size)}
            return self._ask("PUT", path, content=content, headers=headers)

    def post_file(self, path: str, file: Path, answer_timeout_s: float, **params: Any) -> Any:
        """POST a file's bytes, streamed from disk, and return the response's document. Raises CommandFailed."""
        import httpx2

        with file.open("rb") as content:
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(file.stat().st_size)}
            timeout = httpx2.Timeout(answer_timeout_s, connect=CONNECT_TIMEOUT_S)
            return self._ask("POST", path, content=content, headers=headers, params=params, timeout=timeout)

    def has(self, path: str) -> bool:
        """Whether what one may put at this path is there already. Raises CommandFailed."""
        with self._plain_errors():
            response = self._http.head(path)
            if response.status_code in (401, 403):  # why not: answers to HEAD have no body, so try to put nothing there
                response = self._http.put(path, content=b"")
        if response.status_code not in (200, 404):
            raise self._error_of(response)
        return response.status_code == 200

    @contextmanager
    def stream(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float | None = ANSWER_TIMEOUT_S,
        **params: Any,
    ) -> Iterator[httpx2.Response]:
        """Open a GET response for streaming. Raises CommandFailed; status 416 is returned."""
        import httpx2

        query = {k: v for k, v in params.items() if v is not None}
        timeout = httpx2.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S)
        with (
            self._plain_errors(),
            self._http.stream("GET", path, params=query, headers=headers, timeout=timeout) as response,
        ):
            if response.is_error and response.status_code != 416:
                response.read()
                raise self._error_of(response)
            yield response

    @contextmanager
    def stream_from_bucket(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx2.Response]:
        """Open a GET response of a bucket, without the dashboard's token. Raises ServerUnreachable."""
        import httpx2

        timeout = httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        try:
            with httpx2.stream("GET", url, headers=dict(headers), timeout=timeout) as response:
                if response.status_code not in (200, 206, 416):
                    raise ServerUnreachable(f"The bucket answered {response.status_code}.")
                yield response
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ServerUnreachable(f"The bucket cannot be reached from here ({type(error).__name__}).") from None

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        with self._plain_errors():
            response = self._http.request(method, path, **options)
        if response.is_error:
            raise self._error_of(response)
        self._pass_on_warning(response)
        try:
            return response.json(object_hook=Document)
        except ValueError:
            raise self._foreign_error(response) from None

    def _pass_on_warning(self, response: httpx2.Response) -> None:
        """Print the server's warning that it cannot store anything, once per client."""
        warning = response.headers.get("X-Rankzero-Warning")
        if warning and not self._has_warned:
            self._has_warned = True
            print(f"rankzero: {warning}", file=sys.stderr)

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        import httpx2

        from worker.session.trust import why_no_tls

        url = self.address.url
        try:
            yield
        except httpx2.ConnectError as error:
            if reason := why_no_tls(error, url):
                raise ServerUnreachable(f"{url} cannot be used: {reason}.") from None
            raise ServerUnreachable(f"No dashboard answers at {url}. {self._what_else()}") from None
        except httpx2.TimeoutException:
            raise ServerUnreachable(f"The dashboard at {url} did not answer in time; try again.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ServerUnreachable(f"The connection to {url} broke ({type(error).__name__}); try again.") from None

    def _error_of(self, response: httpx2.Response) -> CommandFailed:
        status = response.status_code
        try:
            message = str(response.json()["detail"]["message"])
        except (ValueError, KeyError, TypeError):
            return self._foreign_error(response)
        if status == 401:
            return CommandFailed(self._not_accepted(message))
        if status in (502, 503, 504):
            return ServerUnreachable(message)
        return CommandFailed(message, 2 if status == 422 else 1)

    def _what_else(self) -> str:
        """Advice where no dashboard answers."""
        if self.address.source == LOGIN:
            return f"It is that of your last `rankzero login`; `rankzero logout {self.address.url}` forgets it."
        return "Start it with `rankzero up`, or name another with RANKZERO_URL and RANKZERO_TOKEN."

    def _not_accepted(self, message: str) -> str:
        """The sentence for a token that opens nothing: why, where it is from, and how to get another."""
        url, source = self.address.url, self.address.source
        why = f" {message}" if self.address.token.startswith(PREFIX) and message != NO_TOKEN else ""
        advice = f"Log in again with `rankzero login {url}`."
        if source == "RANKZERO_TOKEN":
            advice = (
                "Set RANKZERO_TOKEN to an access token of yours or to what `rankzero token` prints on the server; "
                f"or unset it, and `rankzero login {url}`."
            )
        return f"The dashboard at {url} does not accept this token, which is from {source}.{why} {advice}"

    def _foreign_error(self, response: httpx2.Response) -> CommandFailed:
        if response.status_code == 413:
            size_bytes = int(response.request.headers.get("Content-Length", 0))
            return CommandFailed(
                f"A proxy in front of the dashboard at {self.address.url} refuses {size_bytes:,} bytes at once "
                "(HTTP 413). Raise its limit (nginx: client_max_body_size; code may have RANKZERO_SNAPSHOT_LIMIT_MB), "
                "or name the dashboard's own address in RANKZERO_URL."
            )
        kind = ServerUnreachable if response.status_code in (502, 503, 504) else CommandFailed
        return kind(f"The server at {self.address.url} is not a Rankzero dashboard (HTTP {response.status_code}).")
