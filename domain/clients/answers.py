"""What a dashboard's answers mean: documents, and the sentence for each way in which a request can fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from domain.clients.addresses import LOGIN, Address
from domain.people.tokens import PREFIX

NO_TOKEN = "A valid token is needed: sign in, or send it as Authorization: Bearer."
AWAY = (502, 503, 504)
"""Statuses that another try may not meet."""


class Document(dict[str, Any]):
    """A JSON object of the server, whose fields are attributes too, as those of the view it was made of.

    A field that it lacks is None: an older server has fewer."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)


@dataclass(frozen=True)
class Failure:
    """A request that failed."""

    message: str
    """One sentence for people."""
    status: int = 0
    """0: the server was not reached."""
    field: str | None = None
    """The field of the request that is wrong."""

    @property
    def is_away(self) -> bool:
        """Whether the dashboard does not answer now, and retrying may help."""
        return self.status in (0, *AWAY)


def failure_of(address: Address, status: int, document: Any, sent_bytes: int = 0) -> Failure:
    """Return what an error of the server means; `document` is its body, None where that is no JSON."""
    try:
        message, field = str(document["detail"]["message"]), document["detail"].get("field")
    except (KeyError, TypeError, AttributeError):
        return foreign_failure(address, status, sent_bytes)
    return Failure(_not_accepted(address, message) if status == 401 else message, status, field)


def foreign_failure(address: Address, status: int, sent_bytes: int = 0) -> Failure:
    """Return what an answer means that is no dashboard's."""
    if status == 413:
        return Failure(
            f"A proxy in front of the dashboard at {address.url} refuses {sent_bytes:,} bytes at once "
            "(HTTP 413). Raise its limit (nginx: client_max_body_size; code may have RANKZERO_SNAPSHOT_LIMIT_MB), "
            "or name the dashboard's own address in RANKZERO_URL.",
            status,
        )
    return Failure(f"The server at {address.url} is not a Rankzero dashboard (HTTP {status}).", status)


def no_connection(address: Address, error: Exception) -> Failure:
    """Return what it means that no connection was made."""
    from domain.network.trust import why_no_tls  # ssl takes long to import

    if reason := why_no_tls(error, address.url):
        return Failure(f"{address.url} cannot be used: {reason}.")
    return Failure(f"No dashboard answers at {address.url}. {_what_else(address)}")


def no_answer(address: Address) -> Failure:
    """Return what it means that no answer came in time."""
    return Failure(f"The dashboard at {address.url} did not answer in time; try again.")


def broken_connection(address: Address, error: Exception) -> Failure:
    """Return what it means that a connection broke."""
    return Failure(f"The connection to {address.url} broke ({type(error).__name__}); try again.")


def no_bucket(error: Exception) -> Failure:
    """Return what it means that the bucket with the dashboard's checkpoints is not reached."""
    return Failure(f"The bucket cannot be reached from here ({type(error).__name__}).")


def _what_else(address: Address) -> str:
    """Advice where no dashboard answers."""
    if address.source == LOGIN:
        return f"It is that of your last `rankzero login`; `rankzero logout {address.url}` forgets it."
    return "Start it with `rankzero up`, or name another with RANKZERO_URL and RANKZERO_TOKEN."


def _not_accepted(address: Address, message: str) -> str:
    """The sentence for a token that opens nothing: why, where it is from, and how to get another."""
    url, source = address.url, address.source
    why = f" {message}" if address.token.startswith(PREFIX) and message != NO_TOKEN else ""
    advice = f"Log in again with `rankzero login {url}`."
    if source == "RANKZERO_TOKEN":
        advice = (
            "Set RANKZERO_TOKEN to an access token of yours or to what `rankzero token` prints on the server; "
            f"or unset it, and `rankzero login {url}`."
        )
    return f"The dashboard at {url} does not accept this token, which is from {source}.{why} {advice}"
