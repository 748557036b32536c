"""The demo's notes server: who may list, who may call, and that signing in once lasts."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import httpx2
import pytest

from accounts.actors import Actor
from accounts.models import User
from chatui.rows import in_rows
from demo.notes.server import NotesServer
from mcpservers.oauth import flow
from mcpservers.oauth.tokens import AccountTokens
from tests.conformance.driver import make_server
from tests.fakes.authgrants import challenge
from tests.fakes.authpages import consent, query_of

BACK, VERIFIER = "http://127.0.0.1:8000/mcp/oauth/callback", "v" * 43
JSON = dict[str, Any]


def started(file: Path, port: int = 0) -> NotesServer:
    server = NotesServer(socket.create_server(("127.0.0.1", port)), file)
    server.start()
    return server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "notes.json"


@pytest.fixture
def server(file: Path) -> Iterator[NotesServer]:
    server = started(file)
    yield server
    server.stop()


@pytest.fixture
def http() -> Iterator[httpx2.Client]:
    with httpx2.Client(trust_env=False) as http:
        yield http


def call(
    http: httpx2.Client, server: NotesServer, tool: str = "", token: str = "", **arguments: str
) -> httpx2.Response:
    method, params = ("tools/call", {"name": tool, "arguments": arguments}) if tool else ("tools/list", {})
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return http.post(server.url, json=message, headers=headers)


def register(http: httpx2.Client, server: NotesServer) -> str:
    said = {"client_name": "chatui", "redirect_uris": [BACK], "token_endpoint_auth_method": "none"}
    return str(http.post(f"{server.origin}/register", json=said).json()["client_id"])


def sign_in(
    http: httpx2.Client, server: NotesServer, client: str, scope: str, user: str = "mira", decision: str = "allow"
) -> dict[str, str]:
    """What comes back to the application's address."""
    asked = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": BACK,
        "state": "s1",
        "code_challenge": challenge(VERIFIER),
        "code_challenge_method": "S256",
        "resource": server.url,
        "scope": scope,
    }
    page = http.get(f"{server.origin}/authorize?{urlencode(asked)}", follow_redirects=True)
    request = re.search(r'name="request" value="([^"]+)"', page.text)
    assert request is not None
    data = {"request": request[1], "user": user, "decision": decision}
    answer = http.post(urljoin(str(page.url), "/consent"), data=data)
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query))


def tokens(http: httpx2.Client, server: NotesServer, client: str, **form: str) -> httpx2.Response:
    return http.post(f"{server.origin}/token", data={"client_id": client, "resource": server.url} | form)


def linked(
    http: httpx2.Client, server: NotesServer, client: str, scope: str = "openid notes:read", user: str = "mira"
) -> JSON:
    code = sign_in(http, server, client, scope, user)["code"]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK, "code_verifier": VERIFIER}
    said: JSON = tokens(http, server, client, **form).json()
    return said


def test_anybody_may_list_its_tools_and_nobody_call_them(http: httpx2.Client, server: NotesServer) -> None:
    listed = call(http, server).json()["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["whoami", "list_my_notes", "add_my_note"]
    refused = call(http, server, "list_my_notes")
    assert refused.status_code == 401
    metadata = re.search(r'resource_metadata="([^"]+)"', refused.headers["www-authenticate"])
    assert metadata is not None
    said = http.get(metadata[1]).json()
    assert (said["resource"], said["authorization_servers"]) == (server.url, [server.origin])
    assert http.get(f"{server.origin}/.well-known/oauth-authorization-server").json()["issuer"] == server.origin


@pytest.mark.parametrize(("user", "note"), [("mira", "Dentist on Thursday"), ("jonas", "bread knife")])
def test_everybody_sees_their_own_notes(http: httpx2.Client, server: NotesServer, user: str, note: str) -> None:
    token = linked(http, server, register(http, server), user=user)["access_token"]
    said = call(http, server, "list_my_notes", token).json()["result"]["structuredContent"]
    assert note in " ".join(said["notes"])
    assert http.get(f"{server.origin}/userinfo", headers={"Authorization": f"Bearer {token}"}).json()["sub"] == user


def test_writing_needs_a_wider_consent(http: httpx2.Client, server: NotesServer) -> None:
    client = register(http, server)
    narrow = linked(http, server, client)["access_token"]
    refused = call(http, server, "add_my_note", narrow, text="Milk")
    assert refused.status_code == 403
    assert 'error="insufficient_scope", scope="notes:write"' in refused.headers["www-authenticate"]
    wide = linked(http, server, client, "notes:read notes:write")["access_token"]
    said = call(http, server, "add_my_note", wide, text="Milk").json()["result"]["structuredContent"]
    assert said["notes"][-1] == "Milk"


def test_saying_no_is_told(http: httpx2.Client, server: NotesServer) -> None:
    back = sign_in(http, server, register(http, server), "notes:read", decision="deny")
    assert back == {"error": "access_denied", "state": "s1"}


def test_a_page_that_was_used_is_expired(http: httpx2.Client, server: NotesServer) -> None:
    answer = http.post(f"{server.origin}/consent", data={"request": "used", "decision": "allow", "user": "mira"})
    assert answer.status_code == 400
    assert "no longer valid" in answer.text


def test_what_was_allowed_outlives_a_restart(http: httpx2.Client, file: Path) -> None:
    server = started(file)
    client = register(http, server)
    first = linked(http, server, client)
    server.stop()
    server = started(file, int(server.origin.rpartition(":")[2]))
    try:
        assert call(http, server, "whoami", first["access_token"]).status_code == 200
        refresh = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
        second = tokens(http, server, client, **refresh).json()
        assert second["refresh_token"] != first["refresh_token"]
        # Used twice: everything of this consent ends.
        assert tokens(http, server, client, **refresh).json()["error"] == "invalid_grant"
        assert call(http, server, "whoami", second["access_token"]).status_code == 401
    finally:
        server.stop()
    assert file.stat().st_mode & 0o077 == 0


def test_revoking_ends_it(http: httpx2.Client, server: NotesServer) -> None:
    client = register(http, server)
    said = linked(http, server, client)
    form = {"client_id": client, "token": said["refresh_token"]}
    assert http.post(f"{server.origin}/revoke", data=form).status_code == 200
    assert call(http, server, "whoami", said["access_token"]).status_code == 401


@pytest.mark.django_db(transaction=True)
async def test_its_accounts_can_be_linked_in_the_product(
    server: NotesServer, bob: User, actor_of: Callable[[User], Actor]
) -> None:
    """What is in demo/chatui.yaml about it suffices: its address."""
    actor = await in_rows(actor_of, bob)
    row = await in_rows(make_server, actor, server.url)
    begun = await flow.begin(actor, row.pk, browser="b")
    assert begun.host == server.origin.removeprefix("http://")
    back = query_of(await consent(begun.url, user="jonas"))
    linked = await flow.complete(actor.user_id, back, browser="b")
    assert (linked.account, begun.scopes) == ("jonas@cafe.example", ("openid", "notes:read"))
    token = await AccountTokens(linked.account_id).current()
    stored = await server.accounts.load_access_token(token)
    assert stored is not None
    assert (stored.subject, stored.resource) == ("jonas", server.url)
