"""The dashboard as the command line sees it: found, asked, and its refusals turned into one sentence."""

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

from cli.terminal.errors import CommandFailed

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0


class ServerUnreachable(CommandFailed):
    """Nobody answers now; perhaps somebody does a little later."""


class NotYet(ServerUnreachable):
    """The answer is being prepared: ask again in a few seconds."""


@dataclass(frozen=True)
class Address:
    """Where a dashboard is, and what it lets people in with."""

    url: str
    token: str = field(repr=False)

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine, so that both see the same files."""
        return urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")


def find_server(data: Path | None) -> Address:
    """By RANKZERO_URL and RANKZERO_TOKEN, unless a data directory is named; else the one on this machine."""
    url = os.environ.get("RANKZERO_URL")
    if url and data is None:
        return _address_from_environment(url.rstrip("/"))
    folder = data or default_data()
    try:
        about = json.loads((folder / "server.json").read_text())
        return Address(str(about["url"]).rstrip("/"), (folder / "token").read_text().strip())
    except PermissionError as error:
        raise CommandFailed(
            f"{error.filename} may only be read by its owner; run this as that user."
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise CommandFailed(
            f"No dashboard runs on {folder}. Start one with `rankzero up`, "
            "or name one with RANKZERO_URL and RANKZERO_TOKEN."
        ) from None


def default_data() -> Path:
    """RANKZERO_DATA, or the platform's place for a user's data."""
    from platformdirs import user_data_path

    named = os.environ.get("RANKZERO_DATA")
    return Path(named).expanduser().absolute() if named else user_data_path("rankzero", appauthor=False)


def _address_from_environment(url: str) -> Address:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise CommandFailed(f"RANKZERO_URL must begin with http:// or https://, got {url!r}.", 2)
    token = os.environ.get("RANKZERO_TOKEN", "").strip()
    if not token:
        raise CommandFailed(
            "RANKZERO_URL needs RANKZERO_TOKEN: what `rankzero token` prints on the server.", 2
        )
    if not (token.isascii() and token.isprintable()):
        raise CommandFailed("RANKZERO_TOKEN is no token: it holds characters that no token has.", 2)
    return Address(url, token)


class ServerClient:
    """One dashboard; every method raises CommandFailed with what to tell the person."""

    def __init__(self, address: Address) -> None:
        import httpx

        self.address = address
        self._has_warned = False
        self._http = httpx.Client(
            base_url=address.url,
            headers={"Authorization": f"Bearer {address.token}"} if address.token else {},
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(max_keepalive_connections=0),  # a command asks once or twice, then ends
            trust_env=not address.is_local,  # a proxy cannot reach this machine's loopback
        )

    def get(self, path: str, **params: Any) -> Any:
        """What the address holds, as JSON; parameters that are None are left out."""
        return self._ask("GET", path, params={k: v for k, v in params.items() if v is not None})

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer to a wish."""
        return self._ask("POST", path, json=body or {})

    def delete(self, path: str) -> Any:
        """The answer to a deletion."""
        return self._ask("DELETE", path)

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer to a fact told."""
        return self._ask("PUT", path, json=body)

    def put_file(self, path: str, file: Path) -> Any:
        """Send a file's bytes, read as they go out."""
        with file.open("rb") as content:
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(file.stat().st_size)}
            return self._ask("PUT", path, content=content, headers=headers)

    def has(self, path: str) -> bool:
        """Is there anything at that address?"""
        with self._told_plainly():
            response = self._http.head(path)
        if response.status_code not in (200, 404):
            raise self._refusal(response)
        return response.status_code == 200

    @contextmanager
    def stream(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float | None = ANSWER_TIMEOUT_S,
        **params: Any,
    ) -> Iterator[httpx.Response]:
        """An answer that is read as it comes."""
        import httpx

        known = {k: v for k, v in params.items() if v is not None}
        timeout = httpx.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S)
        with (
            self._told_plainly(),
            self._http.stream("GET", path, params=known, headers=headers, timeout=timeout) as response,
        ):
            if response.is_error and response.status_code != 416:
                response.read()
                raise self._refusal(response)
            yield response

    @contextmanager
    def stream_elsewhere(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """An answer from where the dashboard sent us, without its token. Raises ServerUnreachable."""
        import httpx

        timeout = httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        try:
            with httpx.stream("GET", url, headers=dict(headers), timeout=timeout) as response:
                if response.status_code not in (200, 206, 416):
                    raise ServerUnreachable(f"The bucket answered {response.status_code}.")
                yield response
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServerUnreachable(
                f"The bucket cannot be reached from here ({type(error).__name__})."
            ) from None

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        with self._told_plainly():
            response = self._http.request(method, path, **options)
        if response.is_error:
            raise self._refusal(response)
        self._pass_on_warning(response)
        try:
            return response.json()
        except ValueError:
            raise self._stranger(response) from None

    def _pass_on_warning(self, response: httpx.Response) -> None:
        """What keeps the server from storing anything, once, beside what was asked for."""
        warning = response.headers.get("X-Rankzero-Warning")
        if warning and not self._has_warned:
            self._has_warned = True
            print(f"rankzero: {warning}", file=sys.stderr)

    @contextmanager
    def _told_plainly(self) -> Iterator[None]:
        import httpx

        url = self.address.url
        try:
            yield
        except httpx.ConnectError:
            raise ServerUnreachable(
                f"No dashboard answers at {url}. Start it with `rankzero up`, "
                "or name another with RANKZERO_URL and RANKZERO_TOKEN."
            ) from None
        except httpx.TimeoutException:
            raise ServerUnreachable(f"The dashboard at {url} did not answer in time; try again.") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServerUnreachable(
                f"The connection to {url} broke ({type(error).__name__}); try again."
            ) from None

    def _refusal(self, response: httpx.Response) -> CommandFailed:
        status = response.status_code
        if status == 401:
            return CommandFailed(
                f"The dashboard at {self.address.url} does not take this token. "
                "Set RANKZERO_TOKEN to what `rankzero token` prints on the server."
            )
        try:
            message = str(response.json()["detail"]["message"])
        except (ValueError, KeyError, TypeError):
            return self._stranger(response)
        if status in (502, 503, 504):
            return NotYet(message) if "Retry-After" in response.headers else ServerUnreachable(message)
        return CommandFailed(message, 2 if status == 422 else 1)

    def _stranger(self, response: httpx.Response) -> CommandFailed:
        if response.status_code == 413:
            size_bytes = int(response.request.headers.get("Content-Length", 0))
            return CommandFailed(
                f"A proxy before the dashboard at {self.address.url} refuses {size_bytes:,} bytes at once (HTTP 413). "
                "Raise its limit (nginx: client_max_body_size; code may have RANKZERO_SNAPSHOT_LIMIT_MB), or name "
                "the dashboard's own address in RANKZERO_URL."
            )
        kind = ServerUnreachable if response.status_code in (502, 503, 504) else CommandFailed
        return kind(
            f"What answers at {self.address.url} is no Rankzero dashboard (HTTP {response.status_code})."
        )
