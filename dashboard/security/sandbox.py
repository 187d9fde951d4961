"""What pages of other programs need in a sandbox: passes in their path, hashes of their scripts, storage."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from dataclasses import dataclass

from dashboard.security.token_files import Credentials


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


CORS = {
    "Access-Control-Allow-Origin": "null",
    "Access-Control-Allow-Credentials": "true",
    "Access-Control-Allow-Methods": "GET, HEAD, POST",
    "Access-Control-Max-Age": "600",
}
"""A sandboxed page has the origin `null`; TensorBoard requests with credentials, though it has none."""
STORAGE = """
  const storage = {
    getItem: (key) => kept.get(String(key)) ?? null,
    setItem: (key, value) => { kept.set(String(key), String(value)); },
    removeItem: (key) => { kept.delete(String(key)); },
    clear: () => kept.clear(),
    key: (number) => [...kept.keys()][number] ?? null,
    get length() { return kept.size; },
  };
  for (const name of ["localStorage", "sessionStorage"]) {
    Object.defineProperty(window, name, {configurable: true, value: storage});
  }
"""
"""JavaScript that substitutes both storages, which a sandboxed page lacks, by the Map `kept`."""


def source_hash(text: str) -> str:
    """The source expression with which a content security policy allows this inline script or style."""
    return "'sha256-" + b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


# Passes in the paths of TensorBoard's and Perfetto's pages, which have no session.
#
# The pages are sandboxed, so that nothing in an event file or trace can act for the person who looks at it, and
# browsers then send no cookie with their requests. The page itself needs the login; it gets a pass that opens one
# run's TensorBoard, or Perfetto's own files, for a day, and nothing else.

PREFIX = "/tensorboard/"
METHODS = ("GET", "HEAD", "POST", "OPTIONS")
SAME_FOR_S = 3600
"""Passes issued within one hour are equal, so that browsers can cache TensorBoard's own files."""
LIFETIME_S = 24 * 3600
PREFIXES = (PREFIX, "/perfetto/")
_PATH = re.compile(
    r"/(?P<program>tensorboard|perfetto)/(?P<run>[^/]+)/(?P<issued>[0-9]{1,12})\.(?P<signature>[0-9a-f]{64})/.*"
)
