"""Token files: made once, readable by their owner only."""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TOKEN_BYTES = 32
SHORTEST_TOKEN = 20
SPARE_BYTES = 4096
COOKIE_LIFETIME_S = 30 * 24 * 3600


class TokenUnusable(Exception):
    """A token file exists but cannot be used; the sentence says why and what to do."""


@dataclass(frozen=True, repr=False)
class Credentials:
    """The two secrets of one dashboard and what is derived from them."""

    user: str
    """Opens everything people may do."""
    join: str
    """Lets a worker register, nothing else."""

    @classmethod
    def load_or_create(cls, data: Path, join_token_file: Path | None = None) -> Credentials:
        """Read DATA/token and the join token, made at the first start."""
        make_private_directory(data)
        return cls(read_or_create(data / "token"), read_or_create(join_token_file or data / "join-token"))

    @property
    def cookie_name(self) -> str:
        """Cookies are per host, not per port: each instance needs a name of its own."""
        return "rankzero-" + hashlib.sha256(b"cookie name of " + self.user.encode()).hexdigest()[:10]

    def is_user(self, token: bytes) -> bool:
        """Does this token open everything people may do?"""
        return hmac.compare_digest(token, self.user.encode())

    def is_join(self, token: bytes) -> bool:
        """May this token register a worker?"""
        return hmac.compare_digest(token, self.join.encode())

    def job_secret(self, fence: int) -> str:
        """With this the workers of one attempt's Slurm job may register, for that attempt alone."""
        message = f"rankzero job {fence}".encode()
        return f"job-{fence}-{hmac.new(self.join.encode(), message, hashlib.sha256).hexdigest()}"

    def job_of(self, token: bytes) -> int | None:
        """The attempt whose job carries this secret."""
        found = re.match(rb"job-(\d{1,18})-", token)
        if found is None:
            return None
        fence = int(found[1])
        return fence if hmac.compare_digest(token, self.job_secret(fence).encode()) else None

    def cookie(self, now: float) -> str:
        """The value of a new session's cookie, issued now: signed with the token, never the token."""
        issued = f"{int(now)}-{secrets.token_hex(8)}"
        return f"{issued}.{self._signature(issued)}"

    def is_cookie(self, value: str, now: float) -> bool:
        """Was this cookie issued by us and is it still young enough?"""
        issued, _, signature = value.partition(".")
        if not hmac.compare_digest(signature.encode(errors="replace"), self._signature(issued).encode()):
            return False
        return -60 <= now - int(issued.partition("-")[0]) <= COOKIE_LIFETIME_S

    def _signature(self, issued: str) -> str:
        message = b"rankzero session " + issued.encode(errors="replace")
        return hmac.new(self.user.encode(), message, hashlib.sha256).hexdigest()


def join_token_path(data: Path) -> Path:
    """Where the token of workers is, for who has not read the dashboard's settings."""
    return Path(os.environ.get("RANKZERO_JOIN_TOKEN_FILE") or data / "join-token")


def read_or_create(path: Path) -> str:
    """The token in a file; a new one of 256 bits when there is none yet."""
    if not path.exists():
        _create(path)
    token = path.read_text(errors="replace").strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii():
        raise TokenUnusable(
            f"{path} holds no usable token ({SHORTEST_TOKEN} ASCII characters or more). "
            "Delete the file, and the next start writes a new one."
        )
    return token


def write_private(path: Path, content: str, spare: Path | None = None) -> None:
    """Replace a file as a whole; nobody but its owner can read it at any moment.

    On a full disk the block of the `spare` file is used up for it."""
    try:
        draft = _draft(path, content)
    except OSError as error:
        if spare is None or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        draft = _overwritten(spare, content)
    draft.replace(path)


def spare_of(data: Path) -> Path:
    """A file whose block is ours already: a dashboard can say where it is also on a full disk."""
    return data / ".spare"


def keep_spare(data: Path) -> None:
    """Make the spare file unless it is there; where that fails, it is tried again at the next call."""
    if not spare_of(data).exists():
        with suppress(OSError):
            _draft(spare_of(data), "\0" * SPARE_BYTES).replace(spare_of(data))


def _overwritten(spare: Path, content: str) -> Path:
    """The spare file with the content in the block that it has."""
    with spare.open("r+b") as file:
        file.write(content.encode())
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    return spare


def make_private_directory(path: Path) -> None:
    """Make a directory that only its owner may enter, whatever the umask says."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _create(path: Path) -> None:
    draft = _draft(path, secrets.token_urlsafe(TOKEN_BYTES) + "\n")
    try:
        os.link(draft, path)  # fails when another process was faster, so both read the same token
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _draft(path: Path, content: str) -> Path:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return draft
