"""Which addresses are public, in any notation: IANA's special-purpose registries as a pure function."""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv6Address

Address = IPv4Address | IPv6Address

# IANA's special-purpose registries, written out: what `ipaddress.is_global` says differs between Python releases.
_SPECIAL_V4 = {
    "0.0.0.0/8": "unspecified",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "metadata",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "documentation",
    "192.88.99.0/24": "reserved",
    "192.168.0.0/16": "private",
    "198.18.0.0/15": "benchmark",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
}
_SPECIAL_V6 = {
    "::/128": "unspecified",
    "::1/128": "loopback",
    "2001::/23": "reserved",
    "2001:db8::/32": "documentation",
    "3fff::/20": "documentation",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "private",
    "ff00::/8": "multicast",
}
_NETWORKS = {
    4: [(ipaddress.ip_network(network), kind) for network, kind in _SPECIAL_V4.items()],
    6: [(ipaddress.ip_network(network), kind) for network, kind in _SPECIAL_V6.items()],
}
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that is reached through `address`: mapped, compatible, NAT64, 6to4 or ISATAP."""
    number = int(address)
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address in _NAT64 or (address in _COMPATIBLE and number > 1):
        return IPv4Address(number & 0xFFFFFFFF)
    if (number >> 32) & 0xFDFFFFFF == 0x5EFE:  # RFC 5214, 6.1: the u bit may be set or not
        return IPv4Address(number & 0xFFFFFFFF)
    return None


def special_kind(address: Address) -> str:
    """Why `address` is not a public one, in a word (`private`, `loopback`, `link-local` …); "" if it is public."""
    if isinstance(address, IPv6Address):
        inner = _embedded(address)
        if inner is not None:
            return special_kind(inner)
        address = IPv6Address(int(address))  # without a scope id, which no network contains
    for network, kind in _NETWORKS[address.version]:
        if address in network:
            return kind
    return "reserved" if isinstance(address, IPv6Address) and address not in _GLOBAL_V6 else ""


def literal(host: str) -> Address | None:
    """`host` as an address in canonical notation, brackets and scope allowed; None for names and odd notations."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
