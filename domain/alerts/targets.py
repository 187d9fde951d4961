"""Addresses that messages are sent to, and what of them may be shown. Pure."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from domain.masking.masking import MASK
from domain.requests.errors import InvalidRequest

LONGEST = 2000
MAIL = ("mailto", "mailtos")
BROWSER = "browser"
"""The target that is no address: open tabs of the dashboard show its messages."""


def check_target(target: str) -> None:
    """Check that the text can be a target. Raises InvalidRequest, without repeating it: it may be a secret."""
    if not 0 < len(target) <= LONGEST or not target.isprintable() or " " in target:
        raise InvalidRequest("target", f"target must be an address without spaces of at most {LONGEST} characters.")
    if "://" not in target and target != BROWSER:
        raise InvalidRequest(
            "target", f"target must be an address such as https://…, slack://… or mailto://…, or {BROWSER}."
        )


def masked_target(target: str) -> str:
    """The address without anything secret: all but the scheme is hidden, and the host of a webhook or of mail.

    Of who gets mail, the first letters are shown: several mail addresses of one alert list are told apart by them."""
    if target == BROWSER:
        return target
    scheme = target.partition("://")[0].lower()
    host = _host(target) if scheme in ("http", "https", *MAIL) else None
    if host and scheme in MAIL:
        receivers = parse_qs(urlsplit(target).query).get("to", [])
        to = ", ".join(_short(receiver) for receiver in ",".join(receivers).split(",") if receiver)
        return f"{scheme}://{MASK}@{host}" + (f" to {to}" if to else "")
    return f"{scheme}://{host}/{MASK}" if host else f"{scheme}://{MASK}"


def _short(receiver: str) -> str:
    """an…@example.org"""
    name, at, domain = receiver.strip().partition("@")
    return f"{name[:2]}…{at}{domain}"


def _host(target: str) -> str | None:
    try:
        return urlsplit(target).hostname
    except ValueError:
        return None
