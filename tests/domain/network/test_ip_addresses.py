"""Which addresses are of the internet, and which may be another machine's."""

from __future__ import annotations

from domain.network.ip_addresses import is_of_another_machine, is_public


def test_the_servers_own_networks_are_not_public() -> None:
    own = """127.0.0.1 127.1.2.3 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1
        255.255.255.255 ::1 :: fe80::1 fe80::1%eth0 fd00::1 ff02::1 ::ffff:127.0.0.1 64:ff9b::a00:1 2002:a00:1::
        not-an-address"""
    assert [address for address in own.split() if is_public(address)] == []
    assert all(is_public(address) for address in ("8.8.8.8", "2001:4860:4860::8888", "64:ff9b::808:808"))


def test_a_machines_own_addresses_and_metadata_services_are_of_no_other() -> None:
    own = """127.0.0.1 127.1.2.3 0.0.0.0 0.0.0.1 ::1 :: ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::
        64:ff9b:1::7f00:1 64:ff9b:1:2::a9fe:a9fe ::ffff:0:127.0.0.1
        169.254.169.254 ::ffff:169.254.169.254 fe80::1 fe80::1%eth0 fd00:ec2::254 100.100.100.200 224.0.0.1 ff02::1
        not-an-address 127.1 0x7f000001 2130706433"""
    assert [address for address in own.split() if is_of_another_machine(address)] == []
    others = "8.8.8.8 10.0.0.1 172.16.0.1 192.168.1.1 100.64.0.1 fd00::1 ::ffff:10.0.0.1 2001:4860:4860::8888"
    assert all(map(is_of_another_machine, others.split()))
