"""Addresses and refs of git repositories that are accepted, and the error for code that is not; commands import it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from domain.requests.errors import InvalidRequest


def check_address(url: str) -> str:
    """Return a valid address. Raises CodeRefused, whose message never repeats a possible secret."""
    if len(url) > LONGEST or any(c.isspace() or not c.isprintable() for c in url):
        raise CodeRefused("target", "a git address must be one short line without blanks or control characters.")
    if _SCP_LIKE.fullmatch(url):
        return url
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise CodeRefused("target", f"this is not a git address: {RULE}.") from None
    if parts.scheme not in ("https", "ssh") or not url.startswith(f"{parts.scheme}://"):
        shown = f" {parts.scheme}:" if parts.scheme else ""
        raise CodeRefused("target", f"a git address with{shown or ' no scheme'} is not accepted: {RULE}.")
    _check_parts(parts.scheme, parts.username, parts.password, parts.hostname, port)
    if parts.query or parts.fragment or not _PATH.fullmatch(parts.path):
        raise CodeRefused("target", "a git address ends with the repository's path, without ?, # or a leading dash.")
    return url


# The error for code that cannot be packed: the wrong field, and a sentence with the rule.


class CodeRefused(InvalidRequest):
    """Code that cannot be packed, on the client's machine or the server's."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, f"{field}: {message}")
        self.field: str = field


LONGEST = 2000
_LIKE_AN_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//|:)|[^/\s:]+@[^/\s:]+:|-.*:|(?![/~.]).*\.git/?$")
_SCP_LIKE = re.compile(r"[A-Za-z0-9_][\w.+-]*@[A-Za-z0-9][A-Za-z0-9.-]*:(?!-)[\w./~+-]+")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9a-fA-F:.]+")
_USER = re.compile(r"[A-Za-z0-9_][\w.+-]*")
_PATH = re.compile(r"/(?!-)[\w./~+%@,()=-]+")
_REF = re.compile(r"[A-Za-z0-9_][\w./+#@=,-]*")
RULE = "it must begin with https:// or ssh://, or be like git@host:path"


def is_git_address(target: str) -> bool:
    """Whether the target looks like a git address rather than a path or a recipe's name."""
    return _LIKE_AN_ADDRESS.match(target) is not None


def check_ref(ref: str | None) -> str | None:
    """Return a valid branch, tag or commit; None for an empty one. Raises CodeRefused."""
    if ref is None or ref == "":
        return None
    if not _REF.fullmatch(ref) or ".." in ref or "@{" in ref or ref.endswith((".lock", "/", ".")):
        raise CodeRefused("ref", f"{ref[:60]!r} cannot be the name of a branch, tag or commit.")
    return ref


def repository_name(url: str) -> str:
    """Return the repository's name: the last part of its address."""
    return re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git") or "code"


def _check_parts(scheme: str, user: str | None, password: str | None, host: str | None, _port: int | None) -> None:
    if password is not None or (scheme == "https" and user is not None):
        raise CodeRefused(
            "target",
            "a git address must not hold a user's name or password, because it is shown and stored; "
            "use ssh, or git's own credential helper on the machine that clones.",
        )
    if not host or not _HOST.fullmatch(host) or (user is not None and not _USER.fullmatch(user)):
        raise CodeRefused("target", f"this is not a git address: {RULE}.")
