"""The provider that vouches for people: OpenID Connect by its discovery address, or GitHub's OAuth 2."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import requests
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from dashboard.security.signing_in.provider_settings import GITHUB, ProviderSettings
from db.people.admission import Vouched
from domain.clock import Clock
from domain.people.accounts import EMAIL, normalised_email


@dataclass(frozen=True)
class Pending:
    """A sign-in that has gone to the provider: what its return must match."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def new(cls) -> Pending:
        """One that cannot be guessed."""
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))


class ProviderTrouble(Exception):
    """The provider cannot be reached, or answers nonsense; the message says which, the log has the details."""


class NotVouched(Exception):
    """The provider does not vouch for this person here; the message says why."""


class Provider:
    """A provider; its methods wait for the network, so call them in threads."""

    def __init__(self, settings: ProviderSettings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self._known: tuple[float, dict[str, Any]] = float("-inf"), {}

    def address(self, redirect_uri: str, pending: Pending) -> str:
        """The address to which the browser is sent. Raises ProviderTrouble."""
        with self._session(redirect_uri) as session:
            url, _ = session.create_authorization_url(
                self._endpoint("authorization_endpoint"),
                state=pending.state,
                code_verifier=pending.verifier,
                **({} if self.settings.is_github else {"nonce": pending.nonce}),
            )
        return str(url)

    def person(self, redirect_uri: str, pending: Pending, code: str) -> Vouched:
        """The person with whom the browser has returned. Raises ProviderTrouble, NotVouched."""
        try:
            with self._session(redirect_uri) as session:
                token = session.fetch_token(
                    self._endpoint("token_endpoint"), code=code, code_verifier=pending.verifier, timeout=TIMEOUT_S
                )
                read = self._of_github if self.settings.is_github else self._of_openid
                claims = read(session, token, pending)
        except OAuthError as error:
            log.warning("the sign-in provider refused a code: %s", error.error)
            if error.error in ("invalid_client", "unauthorized_client"):
                refused = f"{self.settings.name} does not accept this dashboard: its client id or secret is wrong."
                raise ProviderTrouble(refused) from None
            raise NotVouched(f"{self.settings.name} did not accept this sign-in: begin again.") from None
        except (requests.RequestException, JoseError, ValueError, KeyError, TypeError) as error:
            raise self._trouble(error) from None
        return self._vouched(claims)

    def _session(self, redirect_uri: str) -> Any:
        scope = "read:user user:email read:org" if self.settings.is_github else "openid email profile"
        return OAuth2Session(
            self.settings.client_id,
            self.settings.client_secret,
            scope=scope,
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            token_endpoint_auth_method=self._auth_method(),
            default_timeout=TIMEOUT_S,
        )

    def _auth_method(self) -> str:
        if self.settings.client_secret is None:
            return "none"
        offered = None if self.settings.is_github else self._metadata().get("token_endpoint_auth_methods_supported")
        return "client_secret_post" if offered and "client_secret_basic" not in offered else "client_secret_basic"

    def _endpoint(self, name: str) -> str:
        return str(_github(self.settings.issuer)[name] if self.settings.is_github else self._metadata()[name])

    def _metadata(self) -> dict[str, Any]:
        """The provider's discovery document, at most an hour old. Raises ProviderTrouble."""
        read_at, metadata = self._known
        if self._clock.now() - read_at < DISCOVERY_LASTS_S:
            return metadata
        try:
            metadata = _get(f"{self.settings.issuer}/.well-known/openid-configuration")
            if str(metadata["issuer"]).rstrip("/") != self.settings.issuer:
                raise ValueError(f"its issuer is {metadata['issuer']!r}, not {self.settings.issuer!r}")
            if not {"authorization_endpoint", "token_endpoint", "jwks_uri"} <= metadata.keys():
                raise ValueError("its discovery document lacks an address")
        except (requests.RequestException, ValueError, KeyError, TypeError) as error:
            raise self._trouble(error) from None
        self._known = self._clock.now(), metadata
        return metadata

    def _of_openid(self, session: Any, token: dict[str, Any], pending: Pending) -> dict[str, Any]:
        metadata = self._metadata()
        decoded = jwt.decode(
            token["id_token"],
            KeySet.import_key_set(_get(metadata["jwks_uri"])),  # type: ignore[arg-type]
            registry=JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False),
        )
        options = {"iss": {"values": [metadata["issuer"]]}, "aud": {"values": [self.settings.client_id]}}
        bound = {"nonce": pending.nonce, "client_id": self.settings.client_id, "access_token": token["access_token"]}
        claims = CodeIDToken(decoded.claims, decoded.header, options, bound)
        claims.validate(leeway=LEEWAY_S)
        lacking = {"email", "email_verified", *([self.settings.groups_claim] if self.settings.groups else [])}
        if lacking - claims.keys() and "userinfo_endpoint" in metadata:
            more = _json(session.get(metadata["userinfo_endpoint"], allow_redirects=False))
            if more.get("sub") == claims["sub"]:  # another person's answer counts nothing
                return {**more, **claims}
        return dict(claims)

    def _of_github(self, session: Any, _token: dict[str, Any], _pending: Pending) -> dict[str, Any]:
        api = _github(self.settings.issuer)["api"]

        def read(path: str) -> Any:
            return _json(session.get(f"{api}/user{path}", headers=GITHUB_HEADERS, allow_redirects=False))

        primary: dict[str, Any] = next((email for email in read("/emails") if email.get("primary")), {})
        organisations = [organisation["login"] for organisation in read("/orgs")] if self.settings.groups else []
        return {
            "sub": str(read("")["id"]),
            "email": primary.get("email"),
            "email_verified": primary.get("verified"),
            self.settings.groups_claim: organisations,
        }

    def _vouched(self, claims: dict[str, Any]) -> Vouched:
        email = normalised_email(str(claims.get("email") or ""))
        if not EMAIL.fullmatch(email):
            raise NotVouched(f"{self.settings.name} sent no e-mail address for you.")
        if claims.get("email_verified") is not True:
            raise NotVouched(f"{self.settings.name} has not verified your address {email}: verify it there first.")
        if self.settings.groups and not set(self.settings.groups) & set(_texts(claims.get(self.settings.groups_claim))):
            raise NotVouched("You are in none of the groups that may sign in here.")
        return Vouched(email, f"{self.settings.issuer} {claims['sub']}")

    def _trouble(self, error: Exception) -> ProviderTrouble:
        log.warning("the sign-in provider %s failed: %s", self.settings.issuer, error)
        return ProviderTrouble(f"{self.settings.name} cannot be reached, or does not answer correctly.")


log = logging.getLogger("rankzero")
TIMEOUT_S = 10.0
LEEWAY_S = 120
DISCOVERY_LASTS_S = 3600.0
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
"""Signatures with a key that the provider alone has."""
GITHUB_HEADERS = {"Accept": "application/vnd.github+json"}


def _github(issuer: str) -> dict[str, str]:
    return {
        "authorization_endpoint": f"{issuer}/login/oauth/authorize",
        "token_endpoint": f"{issuer}/login/oauth/access_token",
        "api": "https://api.github.com" if issuer == GITHUB else f"{issuer}/api/v3",
    }


def _get(url: str) -> dict[str, Any]:
    document = _json(requests.get(url, timeout=TIMEOUT_S))
    if not isinstance(document, dict):
        raise ValueError(f"{url} is no JSON object")
    return document


def _json(response: requests.Response) -> Any:
    response.raise_for_status()
    return response.json()


def _texts(value: object) -> Iterable[str]:
    return [str(one) for one in value] if isinstance(value, list) else [value] if isinstance(value, str) else []
