"""What goes wrong between a script and a dashboard, as exceptions with the sentence that people read."""

from __future__ import annotations

from domain.clients.answers import Failure


class RankzeroError(Exception):
    """A request that failed; the message is one sentence: what happened, the rule, and what to do."""

    def __init__(self, message: str, status: int = 0, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status; 0: the dashboard did not answer, or was not asked."""
        self.field = field
        """The field of the request that is wrong."""


class Refused(RankzeroError):
    """The dashboard refuses the request: a field breaks its rule, or the token allows less."""


class NotFound(RankzeroError):
    """There is no such run, checkpoint or sweep, or it is hidden from this token."""


class Away(RankzeroError):
    """The dashboard does not answer now; another try may help."""


class TimedOut(RankzeroError, TimeoutError):
    """What was waited for has not come in time."""


class NeverReached(RankzeroError):
    """The run has ended, and the condition was never true."""


def error_of(failure: Failure) -> RankzeroError:
    """Return the exception for a failed request."""
    kind = Away if failure.is_away else NotFound if failure.status == 404 else Refused
    return kind(failure.message, failure.status, failure.field)
