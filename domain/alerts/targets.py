"""Addresses that messages are sent to: what of them may be shown, and which are of the internet. Pure."""

from __future__ import annotations

import ipaddress
from urllib.parse import parse_qs, urlsplit

from domain.errors import InvalidRequest
from domain.masking.masking import MASK

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


# Tell addresses of the internet from those of the server's own network. Pure.

METADATA = frozenset({"fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"})
"""Metadata services outside of the link-local networks: AWS, Google, Alibaba, Oracle, Azure."""


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet: not loopback, private, link-local, shared or reserved."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    embedded = _embedded(parsed)
    return parsed.is_global and not parsed.is_multicast and (embedded is None or embedded.is_global)


def serves_credentials(address: str) -> bool:
    """Whether an IP address is link-local, or one at which clouds hand out a machine's credentials."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return any(one.is_link_local or str(one) in METADATA for one in (parsed, _embedded(parsed)) if one)


def _embedded(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address inside an IPv6 one: mapped, compatible, 6to4, or behind NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in ipaddress.ip_network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    compatible = ipaddress.IPv4Address(int(address)) if 1 < int(address) < 2**32 else None
    return address.ipv4_mapped or address.sixtofour or compatible
