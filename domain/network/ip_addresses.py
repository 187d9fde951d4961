"""Which IP addresses are of the internet, of a private network, or of the machine itself. Pure."""

from __future__ import annotations

import ipaddress

METADATA = frozenset({"fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"})
"""Metadata services outside of the link-local networks: AWS, Google, Alibaba, Oracle, Azure."""


_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")
"""Addresses that lead to the machine itself, on some systems."""
_TRANSLATED = [ipaddress.ip_network(network) for network in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96")]
"""Networks whose addresses end with an IPv4 one: NAT64 of everybody and of a site, and stateless translation."""


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


def is_of_another_machine(address: str) -> bool:
    """Whether an IP address may be another machine's: not loopback, link-local, of everybody, or a metadata service.

    Those of private networks are: a lab's own servers have them."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    parts = [one for one in (parsed, _embedded(parsed)) if one]
    is_own = any(one.is_loopback or one.is_unspecified or one.is_multicast or one in _THIS_NETWORK for one in parts)
    return not is_own and not serves_credentials(address)


def _embedded(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address inside an IPv6 one: mapped, translated, compatible, 6to4, or behind NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if any(address in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    compatible = ipaddress.IPv4Address(int(address)) if 1 < int(address) < 2**32 else None
    return address.ipv4_mapped or address.sixtofour or compatible
