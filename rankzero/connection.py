"""Requests to one dashboard, whose failures are exceptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from domain.clients.addresses import Address
from domain.clients.answers import (
    Document,
    broken_connection,
    failure_of,
    foreign_failure,
    no_answer,
    no_bucket,
    no_connection,
)
from domain.network.trust import CannotTrust, tls_context
from rankzero.errors import RankzeroError, Refused, error_of

if TYPE_CHECKING:
    import httpx2

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0


class Connection:
    """A connection to one dashboard, for any thread. Raises Refused where its certificate file cannot be read."""

    def __init__(self, address: Address) -> None:
        import httpx2

        self.address = address
        try:
            context = tls_context(address.url, httpx2.create_ssl_context, address.ca_file)
        except CannotTrust as error:
            raise Refused(str(error)) from None
        self._http = httpx2.Client(
            base_url=address.url,
            headers={"Authorization": f"Bearer {address.token}"},
            timeout=httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            trust_env=not address.is_local,  # a proxy cannot reach this machine's loopback
            verify=context,
        )

    def close(self) -> None:
        """Close what is open."""
        self._http.close()

    def get(self, path: str, **params: Any) -> Any:
        """GET a JSON document; parameters that are None are omitted. Raises RankzeroError."""
        return self._ask("GET", path, params=_given(params))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """POST a JSON document and return the response's. Raises RankzeroError."""
        return self._ask("POST", path, json=body or {})

    def read(self, path: str, **params: Any) -> bytes:
        """GET bytes. Raises RankzeroError."""
        with self.stream(path, **params) as response:
            return response.read()

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str] | None = None, **params: Any) -> Iterator[httpx2.Response]:
        """Open a GET response for streaming; status 416 is returned. Raises RankzeroError."""
        with self._plain_errors(), self._http.stream("GET", path, params=_given(params), headers=headers) as response:
            if response.is_error and response.status_code != 416:
                response.read()
                raise self._error_of(response)
            yield response

    @contextmanager
    def stream_from_bucket(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx2.Response]:
        """Open a GET response of a bucket, without the dashboard's token. Raises Away."""
        import httpx2

        timeout = httpx2.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        try:
            with httpx2.stream("GET", url, headers=dict(headers), timeout=timeout) as response:
                if response.status_code not in (200, 206, 416):
                    response.raise_for_status()
                yield response
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise error_of(no_bucket(error)) from None

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        with self._plain_errors():
            response = self._http.request(method, path, **options)
        if response.is_error:
            raise self._error_of(response)
        try:
            return response.json(object_hook=Document)
        except ValueError:
            raise error_of(foreign_failure(self.address, response.status_code)) from None

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        import httpx2

        try:
            yield
        except httpx2.ConnectError as error:
            raise error_of(no_connection(self.address, error)) from None
        except httpx2.TimeoutException:
            raise error_of(no_answer(self.address)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise error_of(broken_connection(self.address, error)) from None

    def _error_of(self, response: httpx2.Response) -> RankzeroError:
        try:
            document = response.json()
        except ValueError:
            document = None
        return error_of(failure_of(self.address, response.status_code, document))


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}
