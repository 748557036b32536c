"""Every address of the API × who asks: a door without a declared expectation fails, and every refusal is JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncClient
from django.urls import URLPattern
from django.utils import timezone

from accounts.models import ApiKey, Membership, Organization, Role, User
from chatui.rows import in_rows
from conversations.api.urls import urlpatterns
from tests.conversations.api.conftest import Enter, World, ask, link


@dataclass(frozen=True)
class Door:
    """An address and a method, what is sent, and what its owner gets. `owned`: to everybody else it does not exist.

    `any_key`: a key needs no scope.
    """

    status: int
    body: Any = None
    owned: bool = False
    any_key: bool = False


DOORS: dict[tuple[str, str], Door] = {
    ("me", "GET"): Door(200, any_key=True),
    ("me", "PATCH"): Door(200, {"timezone": "Europe/Berlin"}),
    ("agents", "GET"): Door(200),
    ("conversations", "GET"): Door(200),
    ("conversations/<uuid:conversation>", "GET"): Door(200, owned=True),
    ("conversations/<uuid:conversation>", "PATCH"): Door(200, {"title": "New"}, owned=True),
    ("conversations/<uuid:conversation>", "DELETE"): Door(204, owned=True),
    ("conversations/<uuid:conversation>/restore", "POST"): Door(200, {}, owned=True),
    ("conversations/<uuid:conversation>/messages", "GET"): Door(200, owned=True),
    ("calls/<uuid:call_id>", "GET"): Door(200, owned=True),
    ("servers/<slug:server>/variables", "GET"): Door(200, owned=True),
    ("servers/<slug:server>/variables", "PUT"): Door(200, {"REGION": "eu"}, owned=True),
    ("servers/<slug:server>/variables", "DELETE"): Door(204, owned=True),
    ("connections", "GET"): Door(200),
    ("connections/accounts/<uuid:account>", "PATCH"): Door(200, {"name": "Work", "default": True}, owned=True),
    ("connections/accounts/<uuid:account>", "DELETE"): Door(200, owned=True),
    ("servers/<slug:server>/why", "GET"): Door(200, "why", owned=True),
    ("approvals", "GET"): Door(200),
    ("approvals/count", "GET"): Door(200, any_key=True),
    ("approvals/standing", "GET"): Door(200),
    ("approvals/standing/<uuid:standing_id>", "DELETE"): Door(204, owned=True),
    ("approvals/<uuid:question>", "GET"): Door(200, owned=True),
    ("approvals/<uuid:question>", "POST"): Door(200, {"decision": "deny"}, owned=True),
    ("usage", "GET"): Door(200),
    ("attachments", "POST"): Door(201, "file"),
    ("attachments/<uuid:attachment>/content", "GET"): Door(200, owned=True),
    ("turns", "POST"): Door(201, "turn", owned=True),
    ("turns/<uuid:turn>", "GET"): Door(200, owned=True),
    ("turns/<uuid:turn>/stop", "POST"): Door(202, {}, owned=True),
    ("turns/<uuid:turn>/events", "GET"): Door(200, owned=True),
}


# For auditors and owners, whom Bob is none of: see `test_audit` and `test_usage`.
READERS = {
    ("audit", "GET"),
    ("audit/export", "POST"),
    ("audit/<uuid:entry>/contents", "POST"),
    ("usage/report", "GET"),
}
# For whom the organization lets have servers of their own: see `test_own_servers`, and `tests/architecture`.
OWN_SERVERS = {
    ("connections/servers", "GET"),
    ("connections/servers", "POST"),
    ("connections/servers/<uuid:own_server>", "GET"),
    ("connections/servers/<uuid:own_server>", "PATCH"),
    ("connections/servers/<uuid:own_server>", "DELETE"),
    ("connections/servers/<uuid:own_server>/check", "POST"),
    ("connections/servers/<uuid:own_server>/tools", "POST"),
}


def test_every_address_and_method_has_an_expectation() -> None:
    exposed = set()
    for pattern in urlpatterns:
        assert isinstance(pattern, URLPattern)
        exposed |= {(str(pattern.pattern), method) for method in pattern.callback.handlers}
    assert exposed == set(DOORS) | READERS | OWN_SERVERS


async def knock(client: AsyncClient, world: World, route: str, method: str, query: str = "") -> Any:
    """Ask for a route with its expectation's body and Bob's ids."""
    address = "/api/v1/" + route
    for name, value in world.ids.items():
        for converter in ("uuid", "slug"):
            address = address.replace(f"<{converter}:{name}>", str(value))
    body = DOORS[route, method].body
    call: Callable[..., Any] = getattr(client, method.lower())
    if body == "file":
        return await call(address + query, {"file": SimpleUploadedFile("a.txt", b"hello")})
    if body == "turn":
        content = [{"type": "text", "text": "Hi"}]
        body = {"conversation_id": str(world.ids["conversation"]), "content": content}
    if body == "why":
        query = f"{query}&tool=now" if query else "?tool=now"
    if method == "GET":
        return await call(address + query)
    return await call(address + query, json.dumps(body or {}), content_type="application/json")


def refused(response: Any, status: int) -> str:
    """The code of a refusal, which is JSON of one shape and says nothing else."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/json"
    error = response.json()["error"]
    assert error.keys() <= {"code", "message", "reference"}
    assert error["message"]
    return str(error["code"])


@pytest.mark.parametrize(("route", "method"), list(DOORS))
async def test_its_owner_gets_in_with_a_session_and_with_a_key(
    world: World, as_user: Enter, as_key: Enter, route: str, method: str
) -> None:
    for client in (await as_user(world.bob), await as_key(world.bob, world.organization, ("chat", "approve"))):
        response = await knock(client, world, route, method)
        assert response.status_code == DOORS[route, method].status, response.content
        if route == "turns":
            world.ids["turn"] = response.json()["id"]
            await knock(client, world, "turns/<uuid:turn>/stop", "POST")
        if response.streaming:
            assert b"turn.snapshot" in b"".join([chunk async for chunk in response])
        if method == "DELETE" and "<uuid:account>" in route:
            await in_rows(link, world)
        if method == "POST" and "<uuid:question>" in route:
            await in_rows(ask, world)
        if method == "DELETE" and "<uuid:conversation>" in route:
            await knock(client, world, "conversations/<uuid:conversation>/restore", "POST")


async def test_nobody_comes_in_without_a_session_or_a_valid_key(world: World, as_key: Enter) -> None:
    yesterday = timezone.now() - timedelta(days=1)
    made_up = AsyncClient()
    made_up.defaults["Authorization"] = "Bearer cui_made-up"
    expired = await as_key(world.bob, world.organization, expires_at=yesterday)
    revoked = await as_key(world.bob, world.organization, revoked_at=yesterday)
    for client in (AsyncClient(), made_up, expired, revoked):
        for door in DOORS:
            response = await knock(client, world, *door)
            assert refused(response, 401) == "signed_out", door
            assert response["WWW-Authenticate"].startswith("Bearer")


async def test_a_colleague_and_a_stranger_do_not_find_what_is_anothers(
    world: World, as_user: Enter, alice: User, charlie: User
) -> None:
    for user in (alice, charlie):
        client = await as_user(user)
        for door, expected in DOORS.items():
            response = await knock(client, world, *door)
            if expected.owned:
                assert refused(response, 404) == "not_found", door
            else:
                assert response.status_code == expected.status, door
                assert "Bob" not in response.content.decode()


async def test_a_foreign_organization_does_not_exist(
    world: World, as_user: Enter, as_key: Enter, charlie: User, other_organization: Organization
) -> None:
    for client in (await as_user(charlie), await as_key(charlie, other_organization)):
        for door in DOORS:
            for slug in ("acme", "no-such"):
                response = await knock(client, world, *door, f"?organization={slug}")
                assert refused(response, 404) == "not_found", door


async def test_a_key_without_the_scope_is_told_so(world: World, as_key: Enter) -> None:
    client = await as_key(world.bob, world.organization, scopes=("read",))
    for door, expected in DOORS.items():
        response = await knock(client, world, *door)
        if expected.any_key:
            assert response.status_code == 200, door
        else:
            assert refused(response, 403) == "permission_denied", door


async def test_a_role_without_chat_is_told_so(world: World, as_user: Enter, make_member: Callable[..., User]) -> None:
    client = await as_user(await in_rows(make_member, "dora", world.organization, Role.AUDITOR))
    for door, expected in DOORS.items():
        response = await knock(client, world, *door)
        if expected.any_key or door[0] == "me":
            assert response.status_code == 200, door
        else:
            assert refused(response, 403) == "permission_denied", door


async def test_a_write_with_a_session_needs_the_csrf_token(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    del client.defaults["X-CSRFToken"]
    for door in DOORS:
        response = await knock(client, world, *door)
        if door[1] == "GET":
            assert response.status_code == 200, door
        else:
            assert refused(response, 403) == "csrf", door


async def test_membership_is_looked_at_afresh(world: World, as_user: Enter, as_key: Enter) -> None:
    clients = [await as_user(world.bob), await as_key(world.bob, world.organization)]
    await in_rows(Membership.objects.filter(user=world.bob).update, is_active=False)
    for client in clients:
        for door in DOORS:
            assert refused(await knock(client, world, *door), 403) == "not_a_member", door
            assert refused(await knock(client, world, *door, "?organization=acme"), 404) == "not_found", door
    await in_rows(User.objects.filter(pk=world.bob.pk).update, is_active=False)
    for client in clients:
        for door in DOORS:
            assert refused(await knock(client, world, *door), 401) == "signed_out", door


async def test_what_does_not_exist_is_answered_as_what_is_anothers(world: World, as_user: Enter) -> None:
    client = await as_user(world.bob)
    world.ids |= {name: uuid4() if name != "server" else "no-such" for name in world.ids}
    for door, expected in DOORS.items():
        if expected.owned:
            assert refused(await knock(client, world, *door), 404) == "not_found", door


# --- The door itself ----------------------------------------------------------------------------------------------


async def test_with_a_key_the_session_counts_for_nothing(
    world: World, as_user: Enter, as_key: Enter, alice: User
) -> None:
    client = await as_user(alice)
    client.defaults["Authorization"] = (await as_key(world.bob, world.organization)).defaults["Authorization"]
    del client.defaults["X-CSRFToken"]
    response = await client.patch("/api/v1/me", "{}", content_type="application/json")
    assert response.json()["user"]["username"] == "bob"
    client.defaults["Authorization"] = "Bearer "
    assert refused(await client.get("/api/v1/me"), 401) == "signed_out"


async def test_another_method_is_named_with_those_that_are_allowed(world: World, as_user: Enter) -> None:
    response = await (await as_user(world.bob)).put("/api/v1/conversations")
    assert refused(response, 405) == "method_not_allowed"
    assert response["Allow"] == "GET"


async def test_head_is_answered_as_get(world: World, as_user: Enter) -> None:
    assert (await (await as_user(world.bob)).head("/api/v1/me")).status_code == 200


@pytest.mark.parametrize("address", ["/api/v1/", "/api/v1/nothing", "/api/v1/conversations/not-a-uuid", "/api/v2/me"])
async def test_an_unknown_address_is_json_too(address: str, transactional_db: None) -> None:
    response = await AsyncClient().get(address)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


async def test_nothing_is_kept_by_caches(world: World, as_user: Enter) -> None:
    assert (await (await as_user(world.bob)).get("/api/v1/me"))["Cache-Control"] == "no-store, private"


async def test_an_unexpected_error_is_a_reference_and_nothing_else(
    world: World, as_user: Enter, monkeypatch: Any, caplog: Any
) -> None:
    from conversations.api import me

    def broken(actor: Any) -> Any:
        raise RuntimeError("secret table accounts_user at 10.0.0.5")

    monkeypatch.setattr(me, "me_json", broken)
    response = await (await as_user(world.bob)).get("/api/v1/me")
    assert refused(response, 500) == "internal"
    body = response.content.decode()
    assert "accounts_user" not in body
    assert "Traceback" not in body
    reference = response.json()["error"]["reference"]
    assert [record for record in caplog.records if reference in record.getMessage() and record.exc_info]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"[]", "is a JSON object"),
        (b"\xff", "not UTF-8"),
        (b'{"timezone": NaN}', "NaN is not a JSON value"),
        (b'{"timezone": "Mars/Olympus"}', "timezone: "),
        (b'{"timezone": "../etc/passwd"}', "timezone: "),
        (b'{"timezone": null}', "cannot be null"),
        (b'{"tomezone": "UTC"}', "tomezone: "),
        (b'{"preferences": []}', "preferences: "),
        (b'{"preferences": {"a": "' + b"x" * 20_000 + b'"}}', "preferences: "),
        (b'{"preferences": ' + b'{"a":' * 700 + b"1" + b"}" * 700 + b"}", "nested too deeply"),
        (b'{"preferences": {"a": 1e999}}', "1e999 is too large"),
        (b'{"preferences": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}", "nested too deeply"),
    ],
)
async def test_a_bad_body_says_what_is_wrong(world: World, as_user: Enter, body: bytes, words: str) -> None:
    response = await (await as_user(world.bob)).generic("PATCH", "/api/v1/me", body, "application/json")
    assert refused(response, 400) == "invalid_request"
    assert words in response.json()["error"]["message"]


async def test_a_body_above_the_limit_is_refused(world: World, as_user: Enter, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    response = await (await as_user(world.bob)).generic("PATCH", "/api/v1/me", b" " * 101, "application/json")
    assert refused(response, 413) == "too_large"


async def test_a_key_is_marked_as_used_at_most_once_a_minute(world: World, as_key: Enter) -> None:
    client = await as_key(world.bob, world.organization)
    await client.get("/api/v1/me")
    first = (await ApiKey.objects.aget()).last_used_at
    assert first is not None
    await client.get("/api/v1/me")
    assert (await ApiKey.objects.aget()).last_used_at == first
