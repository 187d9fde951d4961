"""Tell addresses of the internet from those of the server's own network. Pure."""

from __future__ import annotations

import ipaddress


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet: not loopback, private, link-local, shared or reserved."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    embedded = _embedded(parsed)
    return parsed.is_global and not parsed.is_multicast and (embedded is None or embedded.is_global)


def _embedded(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address inside an IPv6 one: mapped, 6to4, or behind NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in ipaddress.ip_network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
