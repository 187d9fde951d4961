"""The command line's HTTP client: finds the dashboard, and turns its errors into one sentence."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.terminal import CommandFailed
from domain.clients import addresses
from domain.clients.addresses import Address, NoDashboard
from domain.clients.answers import (
    Document,
    Failure,
    broken_connection,
    failure_of,
    foreign_failure,
    no_answer,
    no_bucket,
    no_connection,
)

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0


class ServerUnreachable(CommandFailed):
    """The dashboard does not answer now; retrying may help."""


def find_server(data: Path | None) -> Address:
    """Return the dashboard that commands ask (`find_address`). Raises CommandFailed."""
    try:
        return addresses.find_address(data)
    except NoDashboard as error:
        raise CommandFailed(str(error), 2 if error.is_misuse else 1) from None


class ServerClient:
    """A connection to one dashboard; every method raises CommandFailed with a sentence for the user."""

    def __init__(self, address: Address) -> None:
        import httpx2

        from domain.network.trust import CannotTrust, tls_context

        try:
            context = tls_context(address.url, httpx2.create_ssl_context, address.ca_file)
        except CannotTrust as error:
            raise CommandFailed(str(error)) from None
        self.address = address
        self._tls_context = context
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

    @asynccontextmanager
    async def exchange(
        self, path: str, message: Mapping[str, Any], headers: Mapping[str, str], silent_s: float
    ) -> AsyncIterator[httpx2.Response]:
        """POST a JSON-RPC message, beside others in an event loop, and open the response for streaming.

        Raises CommandFailed, also for an error that is no JSON-RPC message."""
        import httpx2

        async with httpx2.AsyncClient(
            base_url=self.address.url,
            headers={"Authorization": f"Bearer {self.address.token}"},
            timeout=httpx2.Timeout(silent_s, connect=CONNECT_TIMEOUT_S),
            trust_env=not self.address.is_local,
            verify=self._tls_context,
        ) as http:
            with self._plain_errors():
                async with http.stream("POST", path, json=message, headers=headers) as response:
                    if response.is_error and b'"jsonrpc"' not in await response.aread():
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
            raise _raised(no_bucket(error)) from None

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        with self._plain_errors():
            response = self._http.request(method, path, **options)
        if response.is_error:
            raise self._error_of(response)
        self._pass_on_warning(response)
        try:
            return response.json(object_hook=Document)
        except ValueError:
            raise _raised(foreign_failure(self.address, response.status_code)) from None

    def _pass_on_warning(self, response: httpx2.Response) -> None:
        """Print the server's warning that it cannot store anything, once per client."""
        warning = response.headers.get("X-Rankzero-Warning")
        if warning and not self._has_warned:
            self._has_warned = True
            print(f"rankzero: {warning}", file=sys.stderr)

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        import httpx2

        try:
            yield
        except httpx2.ConnectError as error:
            raise _raised(no_connection(self.address, error)) from None
        except httpx2.TimeoutException:
            raise _raised(no_answer(self.address)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _raised(broken_connection(self.address, error)) from None

    def _error_of(self, response: httpx2.Response) -> CommandFailed:
        sent_bytes = int(response.request.headers.get("Content-Length", 0))
        try:
            document = response.json()
        except ValueError:
            document = None
        return _raised(failure_of(self.address, response.status_code, document, sent_bytes))


def _raised(failure: Failure) -> CommandFailed:
    """Return the error that a command raises for a failed request."""
    if failure.is_away:
        return ServerUnreachable(failure.message)
    return CommandFailed(failure.message, 2 if failure.status == 422 else 1)
