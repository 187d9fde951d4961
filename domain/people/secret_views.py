"""Secrets of people and projects, as far as they are ever shown."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SecretView(BaseModel):
    """One secret without its value, which nothing shows again."""

    model_config = ConfigDict(frozen=True)

    name: str
    user: str | None
    """Its person; None: its project's."""
    project: str | None
    by: str | None
    """Who set it last."""
    set_at: float


class SetSecretView(SecretView):
    """One secret that was just set."""

    doubt: str | None
    """What masking its value will not do as one expects."""
