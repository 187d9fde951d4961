"""Token files: created once, readable by their owner only."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from dashboard.private_files import draft, make_private_directory

TOKEN_BYTES = 32
SHORTEST_TOKEN = 20
COOKIE_LIFETIME_S = 30 * 24 * 3600


class TokenUnusable(Exception):
    """A token file exists but cannot be used; the message says why and what to do."""


@dataclass(frozen=True, repr=False)
class Credentials:
    """The three secrets of one dashboard and the values derived from them."""

    user: str
    """Grants everything people may do."""
    join: str
    """Lets workers register, and nothing else."""
    metrics: str
    """Reads `/metrics`, and nothing else."""

    @classmethod
    def load_or_create(cls, data: Path, join_token_file: Path | None = None) -> Credentials:
        """Read DATA/token, the join token and DATA/metrics-token, or create them. Raises TokenUnusable."""
        make_private_directory(data)
        paths = (data / "token", join_token_file or data / "join-token", metrics_token_path(data))
        return cls(*(read_or_create(path) for path in paths))

    @property
    def cookie_name(self) -> str:
        """The name of the session cookie; cookies are per host, not per port, so each instance has its own."""
        return "rankzero-" + hashlib.sha256(b"cookie name of " + self.user.encode()).hexdigest()[:10]

    def is_user(self, token: bytes) -> bool:
        """Whether this is the login token."""
        return hmac.compare_digest(token, self.user.encode())

    def is_join(self, token: bytes) -> bool:
        """Whether this is the join token."""
        return hmac.compare_digest(token, self.join.encode())

    def is_metrics(self, token: bytes) -> bool:
        """Whether this is the token for `/metrics`."""
        return hmac.compare_digest(token, self.metrics.encode())

    def job_secret(self, fence: int) -> str:
        """The secret with which workers of the attempt's Slurm job may register, for that attempt only."""
        message = f"rankzero job {fence}".encode()
        return f"job-{fence}-{hmac.new(self.join.encode(), message, hashlib.sha256).hexdigest()}"

    def job_of(self, token: bytes) -> int | None:
        """The fencing token of the attempt whose job has this secret."""
        match = re.match(rb"job-(\d{1,18})-", token)
        if match is None:
            return None
        fence = int(match[1])
        return fence if hmac.compare_digest(token, self.job_secret(fence).encode()) else None

    def cookie(self, now: float) -> str:
        """The value of a new session's cookie, issued now: signed with the token, which it does not contain."""
        issued = f"{int(now)}-{secrets.token_hex(8)}"
        return f"{issued}.{self._signature(issued)}"

    def is_cookie(self, value: str, now: float) -> bool:
        """Whether this cookie was issued by us and has not expired."""
        issued, _, signature = value.partition(".")
        if not hmac.compare_digest(signature.encode(errors="replace"), self._signature(issued).encode()):
            return False
        return -60 <= now - int(issued.partition("-")[0]) <= COOKIE_LIFETIME_S

    def _signature(self, issued: str) -> str:
        message = b"rankzero session " + issued.encode(errors="replace")
        return hmac.new(self.user.encode(), message, hashlib.sha256).hexdigest()


def join_token_path(data: Path) -> Path:
    """The path of the join token, for programs that do not read the dashboard's settings."""
    return Path(os.environ.get("RANKZERO_JOIN_TOKEN_FILE") or data / "join-token")


def metrics_token_path(data: Path) -> Path:
    """The path of the token that reads `/metrics`."""
    return data / "metrics-token"


def read_or_create(path: Path) -> str:
    """The token in a file; creates one of 256 bits when there is none. Raises TokenUnusable."""
    if not path.exists():
        _create(path)
    token = path.read_text(errors="replace").strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii():
        raise TokenUnusable(
            f"{path} contains no usable token ({SHORTEST_TOKEN} ASCII characters or more). "
            "Delete the file, and the next start writes a new one."
        )
    return token


def _create(path: Path) -> None:
    fresh = draft(path, secrets.token_urlsafe(TOKEN_BYTES) + "\n")
    try:
        os.link(fresh, path)  # fails when another process was faster, so both read the same token
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
