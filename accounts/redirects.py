"""Where a sign-in may lead: only to a path of this site."""

import re

from django.utils.http import url_has_allowed_host_and_scheme

# Browsers drop tabs and newlines from addresses and read a backslash as a slash.
_TREACHEROUS = re.compile(r"[\x00-\x20\x7f\\]")


def is_local_path(address: str) -> bool:
    """Whether `address` is an absolute path of this site in every browser's reading, with query and fragment or not."""
    return (
        address.startswith("/")
        and not address.startswith("//")
        and not _TREACHEROUS.search(address)
        and url_has_allowed_host_and_scheme(address, allowed_hosts=None)
    )


def local_path(address: str | None, default: str = "/") -> str:
    """`address` where it is a path of this site, else `default`."""
    return address if address and is_local_path(address) else default
