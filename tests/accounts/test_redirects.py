"""Nothing that a browser could read as another site is followed after a sign-in."""

import pytest

from accounts.redirects import is_local_path, local_path

FOREIGN = [
    "https://evil.example",
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "\t//evil.example",
    " //evil.example",
    "/ /evil.example",
    "\x00//evil.example",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java\nscript:alert(1)",
    "data:text/html,<script>1</script>",
    "https:evil.example",
    "https:/evil.example",
    "http:///evil.example",
    "http://testserver/",  # our own host too: a path says the same and cannot be confused
    "evil.example",
    "?next=//evil.example",
    "",
]


@pytest.mark.parametrize("address", FOREIGN)
def test_what_may_leave_the_site_is_replaced_by_the_default(address: str) -> None:
    assert not is_local_path(address)
    assert local_path(address, default="/home/") == "/home/"


@pytest.mark.parametrize("address", ["/", "/o/acme/c/1/", "/o/acme/?q=a//b#c", "/%09/evil.example", "/设置/"])
def test_a_path_of_this_site_is_kept(address: str) -> None:
    assert local_path(address) == address


def test_a_missing_address_is_the_default() -> None:
    assert local_path(None) == "/"
