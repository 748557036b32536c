"""NUL and half characters at every door: stored clean or refused in words, and never an error of ours."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from django.test import AsyncClient

from accounts.models import ApiKey, User
from chatui.rows import in_rows
from conversations.models import Conversation
from tests.conversations.api.conftest import Enter, World
from tests.conversations.api.test_door import DOORS

NUL, HALF = "a\0b", "a\ud83db"
HALF_ENCODED = "%ED%A0%BD"  # a lone surrogate as some encoders write it, which is no UTF-8
# Whatever any listing or page takes; a door looks at those that it knows.
WORDS = "q search title cursor after before limit tool agent server state status kind from to since until page next"


def bent(value: Any, odd: str) -> Any:
    """`value` with `odd` for each of its texts."""
    if isinstance(value, dict):
        return {key: bent(inner, odd) for key, inner in value.items()}
    if isinstance(value, list):
        return [bent(inner, odd) for inner in value]
    return odd if isinstance(value, str) else value


def query(odd: str) -> str:
    return "?" + "&".join(f"{word}={odd}" for word in WORDS.split())


def addressed(world: World, route: str) -> str:
    for name, value in world.ids.items():
        for converter in ("uuid", "slug"):
            route = route.replace(f"<{converter}:{name}>", str(value))
    return f"/api/v1/{route}"


@pytest.mark.parametrize("odd", ["%00", HALF_ENCODED])
async def test_odd_characters_in_an_address_or_its_query_are_no_fault_of_ours(
    world: World, as_user: Enter, alice: User, odd: str
) -> None:
    client: AsyncClient = await as_user(world.bob)
    for route, method in DOORS:
        if method == "GET" and not route.endswith("events"):
            answer = await client.get(addressed(world, route) + query(odd))
            assert answer.status_code < 500, route
            assert answer["Content-Type"].startswith(("application/json", "text/plain")), route
    for address in (f"/api/v1/servers/{odd}/variables", f"/api/v1/conversations/{odd}", f"/o/{odd}/", f"/{odd}"):
        assert (await client.get(address)).status_code == 404
    for address in ("/api/v1/me?organization=", "/api/v1/agents?organization="):
        assert (await client.get(address + odd)).status_code == 404
    reader: AsyncClient = await as_user(alice)
    for address in ("/api/v1/audit", "/api/v1/usage/report", "/o/acme/usage/", "/o/acme/usage/export/"):
        for word in [*WORDS.split(), "action", "by", "days", "person", "user"]:
            assert (await reader.get(f"{address}?{word}={odd}")).status_code < 500, (address, word)
    for page in ("/o/acme/", "/o/acme/approvals/", "/o/acme/usage/", "/o/acme/connections/", "/mcp/oauth/callback"):
        assert (await client.get(page + query(odd))).status_code < 500, page


@pytest.mark.parametrize("odd", [NUL, HALF], ids=["nul", "half"])
async def test_odd_characters_in_a_body_are_stored_clean_or_refused(world: World, as_user: Enter, odd: str) -> None:
    client: AsyncClient = await as_user(world.bob)
    for (route, method), door in DOORS.items():
        if method in ("PATCH", "PUT", "POST") and isinstance(door.body, dict):
            body = {**bent(door.body, odd), odd: odd}
            for sent in (body, bent(door.body, odd)):
                data = json.dumps(sent)
                answer = await client.generic(method, addressed(world, route), data, "application/json")
                assert answer.status_code < 500, route
    content = [{"type": "text", "text": odd}]
    turn = {"conversation_id": str(world.ids["conversation"]), "content": content, "request_id": odd}
    for sent in (turn, {**turn, "agent": odd}, {**turn, "conversation_id": odd}):
        assert (await client.post("/api/v1/turns", json.dumps(sent), content_type="application/json")).status_code < 500
    assert (await Conversation.objects.as_system().aget(pk=world.ids["conversation"])).title == "a\ufffdb"


@pytest.mark.parametrize("odd", [NUL, HALF], ids=["nul", "half"])
async def test_odd_characters_at_the_openai_door_are_cleaned_or_refused(world: World, odd: str) -> None:
    _, secret = await in_rows(
        lambda: ApiKey.issue(user=world.bob, organization=world.organization, name="k", scopes=["chat"])
    )
    client = AsyncClient(headers={"authorization": f"Bearer {secret}"})
    whole = {"model": "helper", "messages": [{"role": "user", "content": "hi", "name": "n"}], "user": "u", "tools": []}
    for sent in ({**whole, "model": odd}, {**whole, "messages": bent(whole["messages"], odd)}, bent(whole, odd)):
        answer = await client.post("/v1/chat/completions", json.dumps(sent), content_type="application/json")
        assert 400 <= answer.status_code < 500
        assert answer.json()["error"]["message"]
    for header in (f"Bearer {quote(odd, errors='surrogatepass')}", "Bearer a\0b"):
        assert (await client.get("/v1/models", headers={"authorization": header})).status_code == 401


@pytest.mark.parametrize("odd", [NUL, "%00", "a\ufffdb"])
async def test_odd_characters_at_the_sign_in_are_a_wrong_name(world: World, odd: str) -> None:
    client = AsyncClient()
    answer = await client.post("/accounts/login/", {"login": f"bob{odd}", "password": odd, "next": odd})
    assert answer.status_code == 200
    assert "Traceback" not in answer.content.decode()
