"""Every address × the methods that it is not for, the pages of signing in, and the routes of sockets."""

from __future__ import annotations

from typing import Any

import pytest

from chatui.routing import websocket
from chatui.rows import in_rows
from tests.architecture.doors_world import make_world, things_of
from tests.architecture.test_doors import API, FAMILY, OPENAI, PAGES, addresses, client_of, filled

pytestmark = pytest.mark.deadline(120)  # many doors and methods
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
BEGIN = "o/<slug:organization>/connections/<slug:server>/begin"
# A second method of a page: what each caller gets, by the status.
SECOND = {
    (BEGIN, "POST"): {"nobody": 302, "key chat": 302, "stranger": 404, "superuser": 404, "auditor": 403, "member": 400}
}
# Of the package that signs people in: what leads who is signed out to sign in, and what is for everybody.
OWN = {
    "email/",
    "logout/",
    "password/change/",
    "password/set/",
    "reauthenticate/",
    "2fa/",
    "2fa/reauthenticate/",
    "2fa/totp/activate/",
    "2fa/totp/deactivate/",
    "2fa/recovery-codes/",
    "2fa/recovery-codes/generate/",
    "2fa/recovery-codes/download/",
    "3rdparty/",
}
ANYBODY = {
    "login/",
    "inactive/",
    "signup/",
    "reauthenticate/code/",
    "reauthenticate/code/confirm/",
    "confirm-email/",
    "password/reset/",
    "password/reset/done/",
    "password/reset/key/done/",
    "login/code/confirm/",
    "2fa/authenticate/",
    "3rdparty/login/cancelled/",
    "3rdparty/login/error/",
    "3rdparty/signup/",
    "social/login/cancelled/",
    "social/login/error/",
    "social/signup/",
    "social/connections/",  # where it was once
    r"^confirm-email/(?P<key>[-:\w]+)/$",
    "^password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",
    "oidc/^(?P<provider_id>[^/]+)/login/",
    "oidc/^(?P<provider_id>[^/]+)/login/callback/",
}


def expected_methods() -> dict[str, set[str]]:
    """Address → the methods that are expected of it elsewhere."""
    found: dict[str, set[str]] = {}
    for prefix, doors in (("api/v1/", API), ("v1/", OPENAI)):
        for name in doors:
            method, _, route = name.partition(" ")
            found.setdefault(prefix + route, set()).add(method)
    for address, (method, *_rest) in PAGES.items():
        found.setdefault(address, set()).add(method)
    for address, method in SECOND:
        found[address].add(method)
    return found


async def test_an_address_takes_no_method_that_nobody_expects_of_it(transactional_db: None, house: Any) -> None:
    world = await in_rows(make_world)
    things = await in_rows(things_of, world.users["owner"], world.acme)
    wrong = []
    for caller in ("owner", "key chat", "nobody"):
        client = await client_of(world, caller)
        for address, methods in expected_methods().items():
            reading = {"HEAD"} if "GET" in methods else set()  # which is a GET without its body
            for method in sorted(set(METHODS) - methods - reading):
                response = await client.generic(method, filled(address, things) + "?organization=acme")
                if response.status_code not in (401, 403, 404, 405):
                    wrong.append((caller, method, address, response.status_code))
    assert not wrong, wrong


async def test_second_methods_are_for_the_same_people(transactional_db: None, house: Any) -> None:
    world = await in_rows(make_world)
    for (address, method), expected in SECOND.items():
        for caller, status in expected.items():
            response = await (await client_of(world, caller)).generic(
                method, filled(address, world.others["colleague"])
            )
            assert response.status_code == status, (caller, address, response.status_code)
            assert status != 302 or response["Location"].startswith("/accounts/login/"), caller


def test_sockets_have_one_route() -> None:
    assert [str(route.pattern) for route in websocket.routes] == ["ws/o/<slug:organization>/"]


def test_every_page_of_signing_in_is_expected() -> None:
    there = {address.removeprefix("accounts/") for address, _ in addresses() if FAMILY.match(address)}
    assert there == OWN | ANYBODY


async def test_pages_about_oneself_are_shown_to_nobody_else(transactional_db: None) -> None:
    world = await in_rows(make_world)
    client = await client_of(world, "nobody")
    wrong = []
    for page in sorted(OWN | {page for page in ANYBODY if "(?P<" not in page}):
        for method in ("GET", "POST"):
            response = await client.generic(method, f"/accounts/{page}")
            leads = response.get("Location", "").startswith(("/accounts/login/", "/"))
            if response.status_code >= 500 or (page in OWN and not (response.status_code == 302 and leads)):
                wrong.append((method, page, response.status_code))
    assert not wrong, wrong
