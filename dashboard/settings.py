"""The dashboard's settings: environment variables with the prefix RANKZERO_, or options of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from platformdirs import user_data_path
from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dashboard.object_name import ObjectName

MIB = 1024 * 1024


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
    database_url: str | None = None
    """URL of the store, postgresql+psycopg://USER@HOST/DATABASE; by default the SQLite file in `data`."""
    files: Path | None = None
    """Directory of logs, checkpoints and code; by default `files` in `data`. Dashboards on one PostgreSQL store
    must share it."""
    public_url: str | None = None
    """Address under which people open the dashboard, for the links in alerts; by default the one it listens on."""
    alert_private_targets: bool = False
    """Send alerts also to targets on the server's own network: loopback, private and link-local addresses."""
    join_token_file: Path | None = None
    """File of the token that workers join with; by default `join-token` in `data`. It is created if missing."""
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
    max_checkpoint_bytes: Annotated[int, Field(gt=0)] = 1024 * 1024 * MIB
    """The largest checkpoint that is accepted, in bytes."""
    snapshot_limit_mb: Annotated[float, Field(gt=0)] = 100.0
    """The largest snapshot of a run's code, in MiB."""

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_at_commas(cls, value: object) -> object:
        return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value

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

    @field_validator("data", "files", "join_token_file")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value is not None else None

    @property
    def files_directory(self) -> Path:
        """The directory of the server's files."""
        return self.files or self.data / "files"
