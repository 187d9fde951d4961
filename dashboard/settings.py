"""The dashboard's settings: environment variables with the prefix RANKZERO_, or options of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dashboard.ip_addresses import parse_network
from dashboard.object_name import ObjectName
from domain.text.formats import MIB

DAY_S = 24 * 3600.0


def _default_data() -> Path:
    return user_data_path("rankzero", appauthor=False)


class Settings(BaseSettings):
    """Settings of one dashboard; each is an environment variable, e.g. RANKZERO_PORT."""

    model_config = SettingsConfigDict(env_prefix="RANKZERO_", extra="ignore", frozen=True)

    host: str = "127.0.0.1"
    """Address to listen on. 127.0.0.1 is this machine only."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8765
    """Port to listen on; 0 takes any free one."""
    data: Annotated[Path, Field(default_factory=_default_data)]
    """Directory of the store, the token and all files; by default the platform's folder for user data."""
    allowed_hosts: Annotated[list[str], NoDecode] = []
    """Host names, separated by commas, under which browsers and workers may reach the dashboard, beside
    localhost and plain IP addresses."""
    tls_cert: Path | None = None
    """File of the certificate (PEM) with which the dashboard speaks TLS, followed by those of its authorities; by
    default it speaks plain HTTP."""
    tls_key: Path | None = None
    """File of the certificate's key, not encrypted; by default the certificate's file has it, too."""
    trusted_proxies: Annotated[list[str], NoDecode] = []
    """Addresses and networks, separated by commas, of proxies whose X-Forwarded-* headers are believed, such as
    127.0.0.1; from everybody else these headers are ignored."""
    proxy_secret_file: Path | None = None
    """File of a secret that trusted proxies must send as X-Forwarded-Secret; it is created if missing. By default the
    address is enough, also for other programs on the proxy's machine."""
    session_days: Annotated[float, Field(gt=0, le=400)] = 30.0
    """Days after which a browser that has signed in has to do so again."""
    email_domains: Annotated[list[str], NoDecode] = []
    """Domains, separated by commas: only people with such an address may sign in at the provider or through a
    proxy."""
    new_user_role: Literal["viewer", "member", "admin", "none"] = "viewer"
    """Role of uninvited people who sign in through the provider or a proxy."""
    oidc_issuer: str | None = None
    """Address of an OpenID Connect provider, as in its discovery document, or https://github.com."""
    oidc_client_id: str | None = None
    """Name under which the dashboard is registered at the provider."""
    oidc_client_secret: SecretStr | None = None
    """Secret that the provider gave for it."""
    oidc_client_secret_file: Path | None = None
    """File with that secret."""
    oidc_name: str | None = None
    """Name of the provider on its button; by default its host."""
    oidc_groups: Annotated[list[str], NoDecode] = []
    """Groups, separated by commas (of GitHub: organisations): only people in one of them may sign in there."""
    oidc_groups_claim: str = "groups"
    """Claim of the provider that lists a person's groups."""
    oidc_github: bool = False
    """The provider is a GitHub Enterprise server."""
    proxy_user_header: str | None = None
    """Header in which the `trusted_proxies` send the signed-in person's e-mail address."""
    database_url: str | None = None
    """URL of the store, postgresql+psycopg://USER@HOST/DATABASE; by default the SQLite file in `data`."""
    files: Path | None = None
    """Directory of logs, checkpoints and code; by default `files` in `data`. Dashboards on one PostgreSQL store
    must share it."""
    public_url: str | None = None
    """Address under which people open the dashboard, for links in alerts and to send, and whose pages are its own; by
    default the one it listens on."""
    alert_private_targets: bool = False
    """Send alerts also to targets on the server's own network: loopback, private and link-local addresses."""
    join_token_file: Path | None = None
    """File of the token that workers join with; by default `join-token` in `data`. It is created if missing."""
    secret_key_file: Path | None = None
    """File of the key that secrets are encrypted with; by default `secret-key` in `data`. Dashboards on one PostgreSQL
    store must share it. It is created with the first secret."""
    checkpoints_url: str | None = None
    """Bucket for new checkpoints, s3://BUCKET/PREFIX, with credentials from the usual AWS_* variables; by
    default checkpoints are stored in `files`."""
    checkpoints_redirect: bool = False
    """Redirect browsers and `rankzero download` to the bucket for checkpoints. By default the dashboard forwards
    them, because clients may not be able to reach the bucket."""
    lost_after_s: Annotated[float, Field(gt=0)] = 30.0
    """Seconds of silence after which a node counts as lost."""
    grow_after_s: Annotated[float, Field(ge=0)] = 60.0
    """Minimum seconds that an attempt of an elastic run trains, and at least ten times its start-up, before it
    restarts from a checkpoint with more nodes; 0 allows any checkpoint."""
    heartbeat_s: Annotated[float, Field(gt=0, le=60)] = 3.0
    """Seconds between two samples of a node's load."""
    poll_wait_s: Annotated[float, Field(gt=0, le=60)] = 20.0
    """Longest wait of a worker's poll for work, in seconds."""
    preflight_bandwidth: bool = True
    """Measure the bandwidth between the nodes of a run before it starts, if their versions or addresses have
    changed since they last passed."""
    reserve_bytes: Annotated[int, Field(ge=0)] = 256 * MIB
    """Bytes to keep free on the disk of `data` when checkpoints arrive."""
    keep_deleted_days: Annotated[float, Field(ge=0, le=3650)] = 7.0
    """Days for which deleted runs and checkpoints keep their files and can be restored; 0 deletes at once."""
    max_checkpoint_bytes: Annotated[int, Field(gt=0)] = 1024 * 1024 * MIB
    """The largest checkpoint that is accepted, in bytes."""
    snapshot_limit_mb: Annotated[float, Field(gt=0)] = 100.0
    """The largest snapshot of a run's code, in MiB."""

    @field_validator("allowed_hosts", "trusted_proxies", "email_domains", "oidc_groups", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: list[str]) -> list[str]:
        try:
            for text in value:
                parse_network(text)
        except ValueError as error:
            raise ValueError(f"must be addresses or networks such as 127.0.0.1, 10.0.0.0/8: {error}") from None
        return value

    @field_validator("database_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None and "://" not in value:
            raise ValueError("must be a URL: postgresql+psycopg://USER@HOST/DATABASE")
        return value

    @field_validator("checkpoints_url")
    @classmethod
    def _is_bucket(cls, value: str | None) -> str | None:
        if value is None:
            return None
        ObjectName.parse(value)
        return value.rstrip("/")

    @field_validator("public_url")
    @classmethod
    def _is_web_address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("must be an address such as https://rankzero.example.com")
        return value.rstrip("/") if value else value

    @field_validator("tls_key")
    @classmethod
    def _has_certificate(cls, value: Path | None, fields: ValidationInfo) -> Path | None:
        if value is not None and fields.data.get("tls_cert") is None:
            raise ValueError("needs RANKZERO_TLS_CERT, the file of its certificate")
        return value

    @field_validator(
        "data",
        "files",
        "join_token_file",
        "secret_key_file",
        "proxy_secret_file",
        "tls_cert",
        "tls_key",
        "oidc_client_secret_file",
    )
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value is not None else None

    @property
    def scheme(self) -> str:
        """The scheme of the address that the dashboard itself listens on."""
        return "http" if self.tls_cert is None else "https"

    @field_validator("oidc_issuer")
    @classmethod
    def _is_issuer(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        is_near = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1")
        if not parts.hostname or not (parts.scheme == "https" or is_near):
            raise ValueError("must be an https address")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _can_sign_in(self) -> Self:
        if self.oidc_issuer and not self.oidc_client_id:
            raise ValueError("RANKZERO_OIDC_ISSUER needs RANKZERO_OIDC_CLIENT_ID")
        if self.proxy_user_header and not self.trusted_proxies:
            raise ValueError(
                "RANKZERO_PROXY_USER_HEADER needs RANKZERO_TRUSTED_PROXIES: it is believed from them alone"
            )
        return self

    @property
    def files_directory(self) -> Path:
        """The directory of the server's files."""
        return self.files or self.data / "files"
