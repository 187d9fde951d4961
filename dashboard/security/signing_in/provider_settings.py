"""The provider that the settings name, and whom it lets in; nothing that only its routes need is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dashboard.security.header_values import NO_STORE
from dashboard.security.keys.token_files import TokenUnusable
from dashboard.security.plain_pages import sentence_page
from dashboard.settings import Settings
from db.people.admission import Admission
from domain.people.roles import Role

CALLBACK = "/login/callback"
GITHUB, GOOGLE = "https://github.com", "https://accounts.google.com"


@dataclass(frozen=True)
class ProviderSettings:
    """How the dashboard is known to the provider."""

    issuer: str
    client_id: str
    client_secret: str | None
    name: str
    groups: tuple[str, ...] = ()
    """Only people in one of these; of GitHub: organisations."""
    groups_claim: str = "groups"
    is_github: bool = False


def provider_settings(settings: Settings) -> ProviderSettings | None:
    """The provider that the settings name, if they name one. Raises TokenUnusable for a secret's file without one."""
    if settings.oidc_issuer is None or settings.oidc_client_id is None:
        return None
    secret = settings.oidc_client_secret.get_secret_value() if settings.oidc_client_secret else None
    if settings.oidc_client_secret_file is not None:
        secret = _secret_in(settings.oidc_client_secret_file)
    return ProviderSettings(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        client_secret=secret,
        name=settings.oidc_name or _name_of(settings.oidc_issuer),
        groups=tuple(settings.oidc_groups),
        groups_claim=settings.oidc_groups_claim,
        is_github=settings.oidc_github or settings.oidc_issuer == GITHUB,
    )


def admission_of(settings: Settings) -> Admission:
    """The rule for people who sign in through a provider or proxy: without a domain or group, only invited ones."""
    role = None if settings.new_user_role == "none" else Role(settings.new_user_role)
    domains = tuple(settings.email_domains)
    vouches = bool(settings.oidc_issuer or settings.proxy_user_header)
    return Admission(domains, role, makes_accounts=bool(domains or settings.oidc_groups), vouches=vouches)


def sign_in_page(status: int, sentence: str, advice: str) -> Response:
    """A page that says why signing in failed."""
    return HTMLResponse(sentence_page("Sign in", sentence, advice), status, headers=NO_STORE)


async def no_provider(_request: Request) -> Response:
    """The answer at the addresses of a provider where there is none."""
    return sign_in_page(404, "There is no provider to sign in with.", "Sign in another way.")


def _name_of(issuer: str) -> str:
    """The name of a provider on its button."""
    return {GITHUB: "GitHub", GOOGLE: "Google"}.get(issuer, urlsplit(issuer).hostname or issuer)


def _secret_in(path: Path) -> str:
    secret = path.read_text().strip() if path.is_file() else ""
    if not secret:
        raise TokenUnusable(f"{path} (RANKZERO_OIDC_CLIENT_SECRET_FILE) must hold the secret that the provider gave.")
    return secret
