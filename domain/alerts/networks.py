"""Tell addresses of the internet from those of the server's own network. Pure."""

from __future__ import annotations

import ipaddress

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
