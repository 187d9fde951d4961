"""IP addresses and networks, as settings and headers write them."""

from __future__ import annotations

import ipaddress

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_network(text: str) -> IpNetwork:
    """The network, or the one address, that a setting names. Raises ValueError."""
    network = ipaddress.ip_network(text, strict=False)
    if network.prefixlen == 0:
        raise ValueError(f"{text} is every address")
    return network


def parse_address(text: str) -> IpAddress | None:
    """The address without the name of a network card, IPv4 in its own form; None if it is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
