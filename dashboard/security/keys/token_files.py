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

    def cookie_name_for(self, is_https: bool) -> str:
        """The name of the session cookie; over TLS with the prefix that only this host may set, over TLS."""
        return f"__Host-{self.cookie_name}" if is_https else self.cookie_name

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

    def attempt_token(self, fence: int, node_id: str) -> str:
        """The token with which a node's task of one attempt speaks, and which is worth nothing for another."""
        message = f"rankzero attempt {fence} {node_id}".encode()
        return f"attempt-{fence}-{node_id}-{hmac.new(self.user.encode(), message, hashlib.sha256).hexdigest()}"

    def attempt_of(self, token: bytes) -> tuple[int, str] | None:
        """The fencing token and node that this token of an attempt was made for."""
        match = re.match(rb"attempt-(\d{1,18})-([0-9a-z]{1,40})-", token)
        if match is None:
            return None
        fence, node_id = int(match[1]), match[2].decode()
        is_ours = hmac.compare_digest(token, self.attempt_token(fence, node_id).encode())
        return (fence, node_id) if is_ours else None

    def session_key(self, secret: str) -> str:
        """The stored digest of a session's secret: no use as a cookie, nor once the login token has changed."""
        message = b"rankzero session " + secret.encode(errors="replace")
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
