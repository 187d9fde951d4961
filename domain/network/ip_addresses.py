"""Tell IP addresses of the internet from those of private networks and of the machine itself. Pure."""

from __future__ import annotations

import ipaddress

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
METADATA = frozenset({"fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"})
"""Metadata services outside of the link-local networks: AWS, Google, Alibaba, Oracle, Azure."""
_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
"""Addresses that lead to the machine itself, on some systems."""
_TRANSLATED = [ipaddress.ip_network(network) for network in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96")]
"""Networks whose addresses end with an IPv4 one: NAT64 of everybody and of a site, and stateless translation."""


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet: not loopback, private, link-local, shared or reserved."""
    parts = _parts(address)
    return bool(parts) and not parts[0].is_multicast and all(part.is_global for part in parts)


def serves_credentials(address: str) -> bool:
    """Whether an IP address is link-local, or one at which clouds hand out a machine's credentials."""
    return any(part.is_link_local or str(part) in METADATA for part in _parts(address))


def is_of_another_machine(address: str) -> bool:
    """Whether an IP address may be another machine's: not loopback, link-local, of everybody, or a metadata service.

    Those of private networks are: a lab's own servers have them."""
    parts = _parts(address)
    is_own = any(
        part.is_loopback or part.is_unspecified or part.is_multicast or part in _THIS_NETWORK for part in parts
    )
    return bool(parts) and not is_own and not serves_credentials(address)


def _parts(address: str) -> list[IpAddress]:
    """The address and the IPv4 one inside it, if there is one; empty where the text is no IP address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return []
    embedded = _embedded(parsed)
    return [parsed] if embedded is None else [parsed, embedded]


def _embedded(address: IpAddress) -> ipaddress.IPv4Address | None:
    """The IPv4 address inside an IPv6 one: mapped, translated, compatible, 6to4, or behind NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if any(address in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    compatible = ipaddress.IPv4Address(int(address)) if 1 < int(address) < 2**32 else None
    return address.ipv4_mapped or address.sixtofour or compatible
