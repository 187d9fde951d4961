"""What pages of other programs need in a sandbox: passes in their path, and storage."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass

from dashboard.security.identity.sessions import CURRENT
from dashboard.security.keys.token_files import Credentials
from db import acting


@dataclass(frozen=True)
class Passes:
    """Issues and checks passes; they are signed with the login token, so a new token ends them all."""

    credentials: Credentials
    program: str = "tensorboard"
    """The program that `issue` opens."""

    def issue(self, run_id: str, by: str, now: float) -> str:
        """A pass for one run, for its holder."""
        issued, holder = str(int(now // SAME_FOR_S) * SAME_FOR_S), by.encode().hex()
        return f"{issued}.{holder}.{self._signature(self.program, run_id, issued, holder)}"

    def holder(self, path: str, now: float) -> str | None:
        """The holder of the valid pass, for the run it names, with which the path of a request begins, or None."""
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        expected = self._signature(match["program"], match["run"], match["issued"], match["holder"])
        age_s = now - int(match["issued"])
        is_valid = hmac.compare_digest(match["signature"], expected) and -60 <= age_s <= LIFETIME_S
        return bytes.fromhex(match["holder"]).decode() if is_valid else None

    def _signature(self, program: str, run_id: str, issued: str, holder: str) -> str:
        message = f"rankzero {program} {run_id} {issued} {holder}".encode(errors="replace")
        return hmac.new(self.credentials.user.encode(), message, hashlib.sha256).hexdigest()


def reader(access_token: str | None) -> str:
    """The holder of a pass for the actor: a person's name, and after a blank the session that it ends with, or after
    two the access token."""
    name, session = acting.name(), CURRENT.get()
    if access_token is not None:
        return f"{name}  {access_token}"
    return name if session is None else f"{name} {session.secret_hash}"


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


# Passes in the paths of TensorBoard's and Perfetto's pages, which have no session.
#
# The pages are sandboxed, so that nothing in an event file or trace can act for the person who looks at it, and
# browsers then send no cookie with their requests. The page itself needs the login; it gets a pass that opens one
# run's TensorBoard, or Perfetto's own files, for a day, and nothing else, and only while its person may see the run
# and is signed in.

PREFIX = "/tensorboard/"
METHODS = ("GET", "HEAD", "POST", "OPTIONS")
SAME_FOR_S = 3600
"""Passes issued within one hour are equal, so that browsers can cache TensorBoard's own files."""
LIFETIME_S = 24 * 3600
PREFIXES = (PREFIX, "/perfetto/")
_PATH = re.compile(
    r"/(?P<program>tensorboard|perfetto)/(?P<run>[^/]+)/"
    r"(?P<issued>[0-9]{1,12})\.(?P<holder>(?:[0-9a-f]{2}){1,200})\.(?P<signature>[0-9a-f]{64})/.*"
)
