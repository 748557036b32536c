"""The matrix: every address and every frame × everybody who might knock × whose object it is, against one table.

A door without an expectation fails, and an expectation without a door. The admin's are in `test_admin_doors.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncClient
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.models import Membership, Role
from chatui.rows import in_rows
from conversations import wire
from tests.architecture.doors_world import CALLERS, KEYS, OUTSIDERS, PEOPLE, World, make_world, things_of
from tests.conversations.api.test_door import DOORS as API_BODIES
from tests.conversations.chat import Chat, Closed, cookie_of

pytestmark = pytest.mark.deadline(240)  # many doors and callers

# --- Who may ----------------------------------------------------------------------------------------------------------

ALL = frozenset((*PEOPLE, *KEYS))
CHAT = frozenset({"guest", "member", "admin", "owner", "key chat"})
ANSWER = frozenset({"guest", "member", "admin", "owner", "key approve"})
AUDIT = frozenset({"auditor", "owner", "key read"})
USAGE = frozenset({"auditor", "admin", "owner", "key read"})
OWN_SERVERS = frozenset({"member", "admin", "owner", "key admin"})
IN = "in"


@dataclass(frozen=True)
class Door:
    """`may`: who gets in at all. `whose`: "own" (to others of the same organization it is not there), "shared" (it
    is the organization's), or "" (it names nothing).
    """

    may: frozenset[str]
    whose: str = ""

    def expected(self, caller: str, target: str, refused: Any, missing: Any) -> Any:
        if caller not in self.may:
            return refused
        own = self.whose == "" or target == "own" or (self.whose == "shared" and target == "colleague")
        return IN if own else missing


API: dict[str, Door] = {
    "GET me": Door(ALL),
    "PATCH me": Door(frozenset((*PEOPLE, "key chat"))),
    "GET agents": Door(CHAT),
    "GET conversations": Door(CHAT),
    "GET conversations/<uuid:conversation>": Door(CHAT, "own"),
    "PATCH conversations/<uuid:conversation>": Door(CHAT, "own"),
    "DELETE conversations/<uuid:conversation>": Door(CHAT, "own"),
    "POST conversations/<uuid:conversation>/restore": Door(CHAT, "own"),
    "GET conversations/<uuid:conversation>/messages": Door(CHAT, "own"),
    "GET calls/<uuid:call_id>": Door(CHAT, "own"),
    "GET servers/<slug:server>/variables": Door(CHAT, "shared"),
    "PUT servers/<slug:server>/variables": Door(CHAT, "shared"),
    "DELETE servers/<slug:server>/variables": Door(CHAT, "shared"),
    "GET servers/<slug:server>/why": Door(CHAT, "shared"),
    "GET connections": Door(CHAT),
    "PATCH connections/accounts/<uuid:account>": Door(CHAT, "own"),
    "DELETE connections/accounts/<uuid:account>": Door(CHAT, "own"),
    "GET connections/servers": Door(OWN_SERVERS),
    "POST connections/servers": Door(OWN_SERVERS),
    "GET connections/servers/<uuid:own_server>": Door(OWN_SERVERS, "own"),
    "PATCH connections/servers/<uuid:own_server>": Door(OWN_SERVERS, "own"),
    "DELETE connections/servers/<uuid:own_server>": Door(OWN_SERVERS, "own"),
    "POST connections/servers/<uuid:own_server>/check": Door(OWN_SERVERS, "own"),
    "POST connections/servers/<uuid:own_server>/tools": Door(OWN_SERVERS, "own"),
    "GET approvals": Door(ANSWER),
    "GET approvals/count": Door(ALL),
    "GET approvals/standing": Door(ANSWER),
    "DELETE approvals/standing/<uuid:standing_id>": Door(ANSWER, "own"),
    "GET approvals/<uuid:question>": Door(ANSWER, "own"),
    "POST approvals/<uuid:question>": Door(ANSWER, "own"),
    "POST attachments": Door(CHAT),
    "GET attachments/<uuid:attachment>/content": Door(CHAT, "own"),
    "GET audit": Door(AUDIT),
    "POST audit/export": Door(AUDIT),
    "POST audit/<uuid:entry>/contents": Door(AUDIT, "shared"),
    "GET usage": Door(CHAT),
    "GET usage/report": Door(USAGE),
    "POST turns": Door(CHAT, "own"),
    "GET turns/<uuid:turn>": Door(CHAT, "own"),
    "POST turns/<uuid:turn>/stop": Door(CHAT, "own"),
    "GET turns/<uuid:turn>/events": Door(CHAT, "own"),
}
OPENAI: dict[str, Door] = {
    "GET models": Door(frozenset({"key chat"})),
    "GET models/<str:slug>": Door(frozenset({"key chat"}), "shared"),
    "POST chat/completions": Door(frozenset({"key chat"})),
}
FRAMES: dict[str, Door] = {
    "turn.start": Door(CHAT, "own"),
    "turn.regenerate": Door(CHAT, "own"),
    "turn.continue": Door(CHAT, "own"),
    "turn.stop": Door(CHAT, "own"),
    "turn.follow": Door(CHAT, "own"),
    "call.decide": Door(ANSWER, "own"),
    "call.cancel": Door(CHAT, "own"),
    "elicitation.answer": Door(ANSWER, "own"),
    "ping": Door(ALL),
}
# Of a socket: with which code it is closed as soon as it is open.
CLOSED = {"nobody": 4401, "deactivated": 4401, "ex-member": 4403, "stranger": 4403, "superuser": 4403}

# Pages: what each caller with a session gets; who is not named gets 404. Nobody (and who was deactivated) is led to
# sign in. `(status, status)`: of one's own, of what is another's.
SIGN_IN, MISSING = "sign in", 404
WITH_CHAT = {"guest": 200, "member": 200, "admin": 200, "owner": 200}
MEMBERS = {**WITH_CHAT, "auditor": 200}
CHATTERS = {**WITH_CHAT, "auditor": 403}  # a page that says so
PAGES: dict[str, tuple[str, str, dict[str, int]]] = {  # → method, whose, status
    "": ("GET", "", dict.fromkeys((*PEOPLE, "stranger"), 302) | {"superuser": 200, "ex-member": 200}),
    "settings/": ("GET", "", dict.fromkeys((*PEOPLE, "stranger", "superuser", "ex-member"), 200)),
    "o/<slug:organization>/": ("GET", "shared", MEMBERS),
    "o/<slug:organization>/c/<uuid:conversation>/": ("GET", "own", WITH_CHAT),
    "o/<slug:organization>/approvals/": ("GET", "shared", MEMBERS),
    "o/<slug:organization>/usage/": ("GET", "shared", MEMBERS),
    "o/<slug:organization>/usage/export/": ("POST", "shared", {"auditor": 200, "admin": 200, "owner": 200}),
    "o/<slug:organization>/connections/": ("GET", "shared", CHATTERS),
    "o/<slug:organization>/connections/accounts/<uuid:account>/": (
        "POST",
        "own",
        dict.fromkeys(WITH_CHAT, 302) | {"auditor": 403},
    ),
    "o/<slug:organization>/connections/<slug:server>/variables/": (
        "POST",
        "shared",
        dict.fromkeys(WITH_CHAT, 302) | {"auditor": 403},
    ),
    "o/<slug:organization>/connections/<slug:server>/begin": ("GET", "shared", CHATTERS),
}
# For everybody alike, or for whoever holds the secret in the address; `status` of the made-up one that is used here.
OPEN: dict[str, tuple[int, ...]] = {
    "mcp/oauth/callback": (400, 401),  # it belongs to the browser that began it, and to whom is signed in there
    "mcp/oauth/client.json": (404,),
    "accounts/link/<str:secret>/": (200, 404, 410),
    "accounts/oidc/<str:provider_id>/login/callback/": (404,),
    "favicon.ico": (301, 302),
}
# Of the package that signs people in: each acts on who is signed in, and no address names a row.
FAMILY = re.compile(r"accounts/(?!link/|oidc/<)")


def addresses(patterns: Any = None, before: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        address = f"{before}{pattern.pattern}"
        if isinstance(pattern, URLResolver):
            yield from addresses(pattern.url_patterns, address)
        else:
            yield address, pattern


# --- Every door is in a table -----------------------------------------------------------------------------------------


def test_every_address_is_expected_and_every_expectation_is_of_an_address() -> None:
    there: set[str] = set()
    for address, pattern in addresses():
        if address.startswith("api/v1/"):
            handlers = pattern.callback.handlers
            there |= {f"api/v1/{method} {address.removeprefix('api/v1/')}" for method in handlers}
        elif address.startswith("v1/") or (not address.startswith("admin/") and not FAMILY.match(address)):
            there.add(address)
    named = {f"api/v1/{name}" for name in API} | {"v1/" + name.partition(" ")[2] for name in OPENAI}
    assert there == named | set(PAGES) | set(OPEN)


def test_no_address_of_the_sign_in_package_names_a_row() -> None:
    for address, _ in addresses():
        if FAMILY.match(address):
            assert not re.search(r"<(uuid|int|slug):|<pk>|_id>(?!\[)", address.replace("provider_id", "")), address


def test_every_frame_is_expected() -> None:
    assert set(FRAMES) == wire.CLIENT_TYPES


# --- The API ----------------------------------------------------------------------------------------------------------


def filled(address: str, things: dict[str, Any]) -> str:
    return "/" + re.sub(r"<\w+:(\w+)>", lambda found: str(things[found[1]]), address)


async def client_of(world: World, caller: str) -> AsyncClient:
    """Whoever that is, with the headers of our own pages."""
    client = AsyncClient(enforce_csrf_checks=True)
    if caller in KEYS:
        client.defaults["Authorization"] = f"Bearer {world.secrets[caller]}"
    elif caller != "nobody":
        await client.aforce_login(world.users[caller])
    client.cookies["csrftoken"] = client.defaults["X-CSRFToken"] = "t" * 32
    return client


async def targets(world: World, caller: str, door: Door) -> dict[str, dict[str, Any]]:
    """The objects that `caller` tries, by whose they are; one's own are new each time, where one gets in.

    Who gets in nowhere there is not asked for every object: the refusal comes before.
    """
    if caller in OUTSIDERS:
        return world.others if caller == "stranger" else {"colleague": world.others["colleague"]}
    who = world.owner_of(caller)
    assert who is not None
    if caller not in world.own or caller in door.may:
        world.own[caller] = await in_rows(things_of, who, world.acme)
    others = world.others if door.whose and caller in door.may else {}
    return {**others, "own": world.own[caller]}


async def knock(client: AsyncClient, name: str, things: dict[str, Any]) -> Any:
    method, _, route = name.partition(" ")
    body = API_BODIES[route, method].body if (route, method) in API_BODIES else {}
    address = filled("api/v1/" + route, things) + "?organization=acme"
    call: Any = getattr(client, method.lower())
    if body == "file":
        return await call(address, {"file": SimpleUploadedFile("a.txt", b"hello")})
    if body == "turn":
        content = [{"type": "text", "text": "Hi"}]
        body = {"conversation_id": str(things["conversation"]), "content": content}
    if body == "why":
        return await call(address + "&tool=now")
    if method == "GET":
        return await call(address)
    return await call(address, json.dumps(body or {}), content_type="application/json")


def told(response: Any) -> Any:
    """The status of a refusal; `IN` for all that is only said inside."""
    return response.status_code if response.status_code in (401, 403, 404) else IN


def refusal_of(caller: str) -> int:
    """At an address with `?organization=acme`: signed out, not found by who is no member, or not allowed."""
    return 401 if caller in ("nobody", "deactivated") else 404 if caller in OUTSIDERS else 403


async def test_the_api(transactional_db: None, house: Any) -> None:
    world = await in_rows(make_world)
    wrong, cells = [], 0
    for caller in CALLERS:
        client = await client_of(world, caller)
        for name, door in API.items():
            for target, things in (await targets(world, caller, door)).items():
                response = await knock(client, name, things)
                if response.streaming:
                    response.close()
                expected = door.expected(caller, target, refusal_of(caller), 404)
                cells += 1
                if told(response) != expected or response.status_code >= 500:
                    wrong.append((caller, name, target, response.status_code, expected))
    assert not wrong, wrong
    assert cells > 600


async def test_the_compatible_api(transactional_db: None, house: Any) -> None:
    world = await in_rows(make_world)
    wrong = []
    for caller in CALLERS:
        client = await client_of(world, caller)
        for name, door in OPENAI.items():
            method, _, route = name.partition(" ")
            for target, things in (await targets(world, caller, door)).items():
                call: Any = getattr(client, method.lower())
                address = filled("v1/" + route, things)
                sent = {} if method == "GET" else {"data": "{}", "content_type": "application/json"}
                response = await call(address, **sent)
                # A session, of whomever, is none here.
                expected = door.expected(caller, target, 403 if caller in KEYS else 401, 404)
                if told(response) != expected or response.status_code >= 500:
                    wrong.append((caller, name, target, response.status_code, expected))
    assert not wrong


# --- Pages ------------------------------------------------------------------------------------------------------------


def landed(response: Any) -> Any:
    to_sign_in = response.status_code == 302 and response["Location"].startswith("/accounts/login/")
    return SIGN_IN if to_sign_in else response.status_code


async def test_the_pages(transactional_db: None, house: Any) -> None:
    world = await in_rows(make_world)
    wrong = []
    for caller in CALLERS:
        client = await client_of(world, caller)
        for address, (method, whose, may) in PAGES.items():
            door = Door(frozenset(may), whose)
            signed_out = caller in ("nobody", "deactivated") or caller in KEYS  # a key opens no page
            for target, things in (await targets(world, caller, door)).items():
                call: Any = getattr(client, method.lower())
                response = await call(filled(address, things), *([{"action": "default"}] if method == "POST" else []))
                expected = door.expected(caller, target, SIGN_IN if signed_out else MISSING, MISSING)
                if expected is IN:
                    expected = may[caller]
                elif may.get(caller) == 403 and target != "foreign":
                    expected = 403
                if signed_out and caller in KEYS:
                    expected = SIGN_IN
                if caller == "stranger" and target == "foreign" and address:  # at home there
                    continue
                if landed(response) != expected:
                    wrong.append((caller, address, target, landed(response), expected))
    assert not wrong


async def test_the_doors_that_are_open_to_all_say_nothing_to_anybody(transactional_db: None, house: Any) -> None:
    world = await in_rows(make_world)
    for caller in CALLERS:
        client = await client_of(world, caller)
        for address, statuses in OPEN.items():
            response = await client.get(filled(address, world.others["colleague"]))
            assert response.status_code in statuses, (caller, address, response.status_code)
            if caller in OUTSIDERS:
                assert b"acme" not in response.content.lower(), (caller, address)


# --- Frames -----------------------------------------------------------------------------------------------------------


def fields_of(type: str, things: dict[str, Any]) -> dict[str, Any]:
    ids = {name: str(value) for name, value in things.items()}
    return {
        "turn.start": {"conversation_id": ids["conversation"], "content": [{"type": "text", "text": "Hi"}]},
        "turn.regenerate": {"message_id": ids["message"]},
        "turn.continue": {"message_id": ids["message"]},
        "turn.stop": {"turn_id": ids["turn"]},
        "turn.follow": {"turn_id": ids["turn"]},
        "call.decide": {"call_id": ids["call_id"], "decision": "deny"},
        "call.cancel": {"call_id": ids["call_id"]},
        "elicitation.answer": {"elicitation_id": ids["elicitation"], "action": "decline"},
        "ping": {},
    }[type] | ({} if type == "ping" else {"request_id": str(uuid4())})


async def said(chat: Chat, type: str, things: dict[str, Any]) -> str:
    """`IN`, or the code of the refusal. Frames are handled in order: what a ping follows has been decided."""
    fields = fields_of(type, things)
    await chat.send(type, **fields)
    await chat.send("ping")
    pongs, found = (2 if type == "ping" else 1), IN
    while pongs:
        frame = await chat.next()
        pongs -= frame["type"] == "pong"
        if frame["type"] == "error" and frame["request_id"] == fields.get("request_id"):
            found = frame["code"] if frame["code"] in ("permission_denied", "not_found") else IN
            assert frame["code"] != "internal", frame
    return found


async def test_the_frames(transactional_db: None, house: Any) -> None:
    world = await in_rows(make_world)
    wrong = []
    for caller in CALLERS:
        headers = {"origin": "http://testserver"}
        if caller in KEYS:
            headers = {"authorization": f"Bearer {world.secrets[caller]}"}
        elif caller != "nobody":
            headers["cookie"] = await in_rows(cookie_of, world.users[caller])
        if caller in CLOSED:
            with pytest.raises(Closed) as closed:
                await Chat("acme", headers).connect()
            assert closed.value.code == CLOSED[caller], caller
            continue
        async with await Chat("acme", headers).connect() as chat:
            for type, door in FRAMES.items():
                for target, things in (await targets(world, caller, door)).items():
                    found = await said(chat, type, things)
                    expected = door.expected(caller, target, "permission_denied", "not_found")
                    if found != expected:
                        wrong.append((caller, type, target, found, expected))
    assert not wrong


async def test_ones_own_things_in_another_organization_are_not_there(transactional_db: None, house: Any) -> None:
    """Somebody of both organizations, at the doors of the one with ids of the other."""
    world = await in_rows(make_world)
    person = world.users["owner"]

    def elsewhere() -> dict[str, Any]:
        Membership.objects.create(user=person, organization=world.globex.organization, role=Role.OWNER)
        return things_of(person, world.globex) | {"organization": "acme"}

    things, found = await in_rows(elsewhere), {}
    for caller in ("owner", *KEYS):
        client = await client_of(world, caller)
        for name, door in API.items():
            if door.whose and caller in door.may:
                found[caller, name] = (await knock(client, name, things)).status_code
    client = await client_of(world, "key chat")
    found["key chat", "model"] = (await client.get(filled("v1/models/<str:slug>", things))).status_code
    client = await client_of(world, "owner")
    for address, (method, whose, _) in PAGES.items():
        if whose == "own" or "<slug:server>" in address:
            call: Any = getattr(client, method.lower())
            found["owner", address] = (await call(filled(address, things))).status_code
    assert len(found) > 50
    assert not {door: status for door, status in found.items() if status != 404}
    async with await Chat.of(person) as chat:
        refused = {type: await said(chat, type, things) for type, door in FRAMES.items() if door.whose}
    assert set(refused.values()) == {"not_found"}, refused
