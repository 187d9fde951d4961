"""Passes that the requests of TensorBoard's and Perfetto's pages carry in their path, because these have no session.

The pages are sandboxed, so that nothing in an event file or trace can act for the person who looks at it, and browsers
then send no cookie with their requests. The page itself needs the login; it gets a pass that opens one run's
TensorBoard, or Perfetto's own files, for a day, and nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

from dashboard.security.token_files import Credentials

PREFIX = "/tensorboard/"
METHODS = ("GET", "HEAD", "POST", "OPTIONS")
SAME_FOR_S = 3600
"""Passes issued within one hour are equal, so that browsers can cache TensorBoard's own files."""
LIFETIME_S = 24 * 3600
PREFIXES = (PREFIX, "/perfetto/")
_PATH = re.compile(
    r"/(?P<program>tensorboard|perfetto)/(?P<run>[^/]+)/(?P<issued>[0-9]{1,12})\.(?P<signature>[0-9a-f]{64})/.*"
)


@dataclass(frozen=True)
class Passes:
    """Issues and checks passes; they are signed with the login token, so a new token ends them all."""

    credentials: Credentials
    program: str = "tensorboard"
    """The program that `issue` opens."""

    def issue(self, run_id: str, now: float) -> str:
        """A pass for one run."""
        issued = str(int(now // SAME_FOR_S) * SAME_FOR_S)
        return f"{issued}.{self._signature(self.program, run_id, issued)}"

    def admits(self, path: str, now: float) -> bool:
        """Whether the path of a request carries a valid pass for the run it names."""
        match = _PATH.fullmatch(path)
        if match is None:
            return False
        expected = self._signature(match["program"], match["run"], match["issued"])
        age_s = now - int(match["issued"])
        return hmac.compare_digest(match["signature"], expected) and -60 <= age_s <= LIFETIME_S

    def _signature(self, program: str, run_id: str, issued: str) -> str:
        message = f"rankzero {program} {run_id} {issued}".encode(errors="replace")
        return hmac.new(self.credentials.user.encode(), message, hashlib.sha256).hexdigest()
