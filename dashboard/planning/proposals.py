"""Links to the Launch form with a proposed run filled in: signed, so that only tools of ours make them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from dashboard.json_responses import json_text
from dashboard.security.keys.token_files import Credentials
from domain.masking.masking import is_secret_variable
from domain.people.rights import Rights

PARAMETER = "proposal"
LIFETIME_S = 7 * 24 * 3600.0
LONGEST = 20_000
"""Characters of a link's proposal."""


@dataclass(frozen=True)
class RunProposal:
    """A run that somebody's token proposed."""

    spec: Mapping[str, Any]
    """Its settings, or those that differ from the run `like`."""
    like: str
    """The id of the run whose code and settings are taken; empty for none."""
    by: str
    """Whose token proposed it, and its name."""


def path(credentials: Credentials, spec: Mapping[str, Any], like: str, rights: Rights, now: float) -> str:
    """Return the URL path of the Launch form with this proposal; secret values are left out of it."""
    by = f"{rights.via or 'a program'} of {rights.by}"
    content = json_text([int(now), by, like, _without_secrets(spec)]).encode()
    packed = base64.urlsafe_b64encode(zlib.compress(content, 9)).decode().rstrip("=")
    return f"/launch?{PARAMETER}={quote(f'{packed}.{_signature(credentials, packed)}')}"


def read(credentials: Credentials, text: str, now: float) -> RunProposal | None:
    """Return the proposal of a link; None where we did not make it, or long ago."""
    packed, _, signature = text.partition(".")
    if len(text) > LONGEST or not hmac.compare_digest(signature.encode(), _signature(credentials, packed).encode()):
        return None
    made_at, by, like, spec = json.loads(zlib.decompress(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))))
    return RunProposal(spec, like, by) if now - made_at <= LIFETIME_S else None


def _signature(credentials: Credentials, packed: str) -> str:
    message = b"rankzero proposal " + packed.encode(errors="replace")
    return hmac.new(credentials.user.encode(), message, hashlib.sha256).hexdigest()[:32]


def _without_secrets(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without variables named like secrets: links are kept by browsers and logs."""
    env = spec.get("env")
    if not isinstance(env, Mapping):
        return dict(spec)
    return {**spec, "env": {name: value for name, value in env.items() if not is_secret_variable(name, str(value))}}
