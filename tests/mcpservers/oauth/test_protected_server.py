"""The fake protected MCP server lets nobody in whom a real one would keep out, and tells whose account was used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.fakes.authserver import FakeAuthServer
from tests.fakes.authstate import PEOPLE
from tests.fakes.mcp_protected import ProtectedMCPServer


@pytest.fixture
async def auth() -> AsyncIterator[FakeAuthServer]:
    async with FakeAuthServer() as server:
        yield server


@pytest.fixture
async def server(auth: FakeAuthServer) -> AsyncIterator[ProtectedMCPServer]:
    async with ProtectedMCPServer(auth=auth, era="modern") as server:
        yield server


def token(server: ProtectedMCPServer, who: int = 0, **fields: Any) -> str:
    wanted = {"scopes": ("notes:read",), "resource": server.url, "client_id": "app"} | fields
    return server.auth.memory.issue("access", seconds=60, person=PEOPLE[who], **wanted).value


async def post(server: ProtectedMCPServer, method: str, bearer: str = "", **headers: str) -> httpx2.Response:
    name = {"name": method.partition(":")[2]} if ":" in method else {}
    message = {"jsonrpc": "2.0", "id": 1, "method": method.partition(":")[0], "params": name}
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    async with httpx2.AsyncClient(trust_env=False) as http:
        return await http.post(server.url, json=message, headers=headers)


async def test_without_a_token_it_names_its_metadata(server: ProtectedMCPServer) -> None:
    answer = await post(server, "tools/list")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == f'Bearer resource_metadata="{server.prm_url}"'
    async with httpx2.AsyncClient(trust_env=False) as http:
        said = (await http.get(server.prm_url)).json()
    assert (said["resource"], said["authorization_servers"]) == (server.url, [server.auth.issuer])


@pytest.mark.parametrize(("challenge", "header"), [("bare", 'Bearer realm="notes"'), ("none", None)])
async def test_its_challenge_can_say_less(server: ProtectedMCPServer, challenge: str, header: str | None) -> None:
    server.challenge = challenge
    assert (await post(server, "tools/list")).headers.get("www-authenticate") == header


async def test_it_takes_a_live_token_for_this_resource_alone(server: ProtectedMCPServer) -> None:
    good = token(server)
    assert (await post(server, "tools/list", good)).status_code == 200
    assert (await post(server, "tools/list", token(server, resource="https://other.example"))).status_code == 401
    assert (await post(server, "tools/list", "made-up")).status_code == 401
    assert (await post(server, "tools/list", Authorization=f"bearer {good}")).status_code == 401
    server.auth.memory.expire_all()
    assert (await post(server, "tools/list", good)).status_code == 401


async def test_listing_can_be_open_while_calls_are_not(server: ProtectedMCPServer) -> None:
    server.open_listing = True
    assert (await post(server, "tools/list")).status_code == 200
    assert (await post(server, "tools/call:whoami")).status_code == 401


async def test_a_tool_can_want_more_than_the_token_has(server: ProtectedMCPServer) -> None:
    refused = await post(server, "tools/call:add_note", token(server))
    assert refused.status_code == 403
    assert 'error="insufficient_scope", scope="notes:write"' in refused.headers["www-authenticate"]
    assert server.calls_of("ada") == []
    assert (await post(server, "tools/call:add_note", token(server, scopes=("notes:write",)))).status_code == 200


async def test_it_knows_whose_account_was_used(server: ProtectedMCPServer) -> None:
    said = (await post(server, "tools/call:whoami", token(server, 1))).json()
    assert said["result"]["structuredContent"]["owner"] == "grace"
    assert (server.calls_of("grace"), server.calls_of("ada")) == (["whoami"], [])


async def test_a_session_belongs_to_who_opened_it(auth: FakeAuthServer) -> None:
    async with ProtectedMCPServer(auth=auth) as server:
        session = (await post(server, "initialize", token(server))).headers["mcp-session-id"]
        assert server.sessions_of("ada") == 1
        stranger = await post(server, "tools/list", token(server, 1), **{"mcp-session-id": session})
        assert (stranger.status_code, server.trespasses) == (403, [session])


async def test_the_authorization_server_can_be_at_the_same_origin(auth: FakeAuthServer) -> None:
    async with (
        ProtectedMCPServer(auth=auth, same_origin=True, prm_at="none") as server,
        httpx2.AsyncClient(trust_env=False, base_url=server.origin) as http,
    ):
        said = (await http.get("/.well-known/oauth-authorization-server")).json()
        refused = await http.post("/token", data={"grant_type": "refresh_token", "client_id": "x"})
    assert (said["issuer"], said["token_endpoint"]) == (server.origin, f"{server.origin}/token")
    assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")
