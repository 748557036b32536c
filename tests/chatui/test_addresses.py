from ipaddress import ip_address

import pytest

from chatui.addresses import literal, special_kind


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "223.255.255.255",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ],
)
def test_public_addresses_are_not_special(address: str) -> None:
    assert special_kind(ip_address(address)) == ""


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("10.0.0.1", "private"),
        ("100.64.0.1", "shared"),
        ("100.100.100.200", "shared"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("168.63.129.16", "metadata"),
        ("169.254.169.254", "link-local"),
        ("172.31.255.255", "private"),
        ("192.0.0.192", "reserved"),
        ("192.88.99.1", "reserved"),
        ("192.168.1.1", "private"),
        ("198.18.0.1", "benchmark"),
        ("203.0.113.5", "documentation"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "private"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fec0::1", "private"),
        ("ff02::1", "multicast"),
        ("100::1", "reserved"),
        ("5f00::1", "reserved"),
        ("2001::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("3fff::1", "documentation"),
        ("64:ff9b:1::a00:1", "reserved"),
    ],
)
def test_special_addresses_say_what_they_are(address: str, kind: str) -> None:
    assert special_kind(ip_address(address)) == kind


@pytest.mark.parametrize(
    "address",
    [
        "::ffff:127.0.0.1",  # mapped
        "::127.0.0.1",  # compatible
        "64:ff9b::7f00:1",  # NAT64
        "2002:7f00:1::",  # 6to4
        "2606:4700::5efe:7f00:1",  # ISATAP
        "2606:4700::200:5efe:7f00:1",
    ],
)
def test_an_ipv4_address_inside_an_ipv6_address_is_looked_at(address: str) -> None:
    assert special_kind(ip_address(address)) == "loopback"


def test_a_literal_may_have_brackets_and_a_name_is_none() -> None:
    assert literal("[::1]") == ip_address("::1")
    assert literal("127.0.0.1") == ip_address("127.0.0.1")
    assert literal("127.1") is None
    assert literal("example.org") is None
