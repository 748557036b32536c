"""Finding out where accounts come from, over real HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from django.utils import timezone

from chatui.rows import in_rows
from mcpservers.errors import LinkError
from mcpservers.models import MCPServer, OAuthDiscovery
from mcpservers.oauth import discovery
from mcpservers.oauth.challenges import Challenge
from mcpservers.oauth.discovery import discover, mark_needs_oauth
from mcpservers.scope import Scope, scope_of
from tests.fakes import authfaults
from tests.fakes.authserver import FakeAuthServer
from tests.mcpservers.oauth.conftest import Make
from tests.mcpservers.oauth.resource import PRM, Resource


async def reason(server: MCPServer, **options: Any) -> LinkError:
    with pytest.raises(LinkError) as raised:
        await discover(server, **options)
    assert "Traceback" not in raised.value.public_message
    return raised.value


# --- Where documents are ----------------------------------------------------------------------------------------------


async def test_an_authorization_server_on_another_host_is_used(
    server: MCPServer, auth: FakeAuthServer, resource: Resource
) -> None:
    found = await discover(server)
    assert found.issuer == auth.issuer
    assert found.token_endpoint == auth.url("token")
    assert found.resource == resource.url
    assert found.host == f"127.0.0.1:{auth.port}"


async def test_metadata_that_the_server_points_to_come_first(
    server: MCPServer, auth: FakeAuthServer, resource: Resource
) -> None:
    resource.places = ("/custom/prm",)
    resource.challenge = f'Bearer resource_metadata="{resource.origin}/custom/prm", scope="notes:write"'
    found = await discover(server)
    assert found.scopes == ("notes:write",)
    assert PRM + "/mcp" not in resource.asked


async def test_a_challenge_that_was_just_heard_is_not_asked_for_again(
    server: MCPServer, auth: FakeAuthServer, resource: Resource
) -> None:
    await discover(server, challenge=Challenge(scope=("a",)))
    assert resource.path not in resource.asked


async def test_metadata_at_the_root_are_found(server: MCPServer, resource: Resource) -> None:
    resource.places = (PRM,)
    assert (await discover(server)).resource == resource.url


@pytest.mark.parametrize("challenge", ['Bearer realm="x"', None])
async def test_without_metadata_of_its_own_the_server_s_origin_is_the_issuer(
    make_server: Make, auth: FakeAuthServer, challenge: str | None
) -> None:
    server = await make_server(f"{auth.origin}/mcp")
    heard = None if challenge is None else Challenge()
    found = await discover(server, challenge=heard)
    assert (found.issuer, found.resource) == (auth.issuer, f"{auth.origin}/mcp")


async def test_a_server_that_tells_nothing_ends_in_words_for_the_admin(server: MCPServer, resource: Resource) -> None:
    resource.places, resource.challenge = (), None
    error = await reason(server)
    assert error.reason == "no_metadata"
    assert "authorization_endpoint" in error.for_admin
    well_known = [path for path in resource.asked if path.startswith("/.well-known/")]
    assert len(well_known) == len(set(well_known))  # each place once


async def test_old_endpoints_are_used_on_an_admin_s_word(make_server: Make, resource: Resource) -> None:
    resource.places = ()
    server = await make_server(resource.url, oauth={"legacy_endpoints": True})
    found = await discover(server)
    assert found.authorization_endpoint == f"{resource.origin}/authorize"
    assert found.warnings


async def test_configured_endpoints_need_no_metadata(
    make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    resource.places = ()
    oauth = {
        "client_id": "c",
        "issuer": auth.issuer,
        "authorization_endpoint": auth.url("authorize"),
        "token_endpoint": auth.url("token"),
        "scopes": ["x"],
    }
    found = await discover(await make_server(resource.url, oauth=oauth))
    assert (found.token_endpoint, found.scopes) == (auth.url("token"), ("x",))
    assert auth.requests == []


async def test_a_configured_issuer_replaces_the_one_that_is_told(
    make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    resource.changes = {"authorization_servers": ["https://other.invalid"]}
    assert (await discover(await make_server(resource.url, oauth={"issuer": auth.issuer}))).issuer == auth.issuer


@pytest.mark.parametrize("place", ["oauth", "openid", "openid-inserted"])
async def test_an_issuer_with_a_path_is_found_at_each_of_its_places(make_server: Make, place: str) -> None:
    async with FakeAuthServer(path="/tenant1", metadata_at=frozenset({place})) as auth, Resource(auth) as resource:
        assert (await discover(await make_server(resource.url))).issuer == auth.issuer


async def test_the_resource_can_be_replaced_or_left_out(make_server: Make, resource: Resource) -> None:
    assert (await discover(await make_server(resource.url, "a", oauth={"resource": "api://x"}))).resource == "api://x"
    assert (await discover(await make_server(resource.url, "b", oauth={"resource": False}))).resource == ""


async def test_a_placeholder_in_the_path_does_not_hide_the_server(make_server: Make, resource: Resource) -> None:
    resource.places, resource.changes = (PRM,), {"resource": resource.origin}
    found = await discover(await make_server(resource.origin + "/{{KEY}}/mcp", variables={"KEY": {}}))
    assert found.resource == resource.origin
    assert not any("{{" in path for path in resource.asked)


# --- What is wrong with them ------------------------------------------------------------------------------------------


async def test_a_resource_of_another_server_is_refused(
    server: MCPServer, resource: Resource, auth: FakeAuthServer
) -> None:
    resource.changes = {"resource": "https://127.0.0.1/mcp"}
    error = await reason(server)
    assert error.reason == "resource_mismatch"
    assert auth.requests == []


FAULTS = [
    (authfaults.html, "no_metadata"),
    (authfaults.said("null"), "no_metadata"),
    (authfaults.said(b"\xff{"), "no_metadata"),
    (authfaults.said("[" * 50_000), "no_metadata"),
    (authfaults.status(404), "no_metadata"),
    (authfaults.status(403), "no_metadata"),
    (authfaults.status(500), "unreachable"),
    (authfaults.status(429), "unreachable"),
    (authfaults.die, "unreachable"),
    (authfaults.endless, "too_large"),
    (authfaults.huge(2**20), "too_large"),
    (authfaults.redirect("https://evil.example/", 302), "no_metadata"),
    (authfaults.redirect("http://169.254.169.254/latest", 307), "address_refused"),
    (authfaults.redirect("http://10.0.0.1/", 308), "address_refused"),
]


@pytest.mark.parametrize(("fault", "expected"), FAULTS)
async def test_what_is_ill_or_treacherous_ends_in_words(
    server: MCPServer, auth: FakeAuthServer, fault: Any, expected: str
) -> None:
    auth.on("metadata", fault)
    auth.on("openid", fault)
    error = await reason(server)
    assert error.reason == expected
    assert not await OAuthDiscovery.objects.as_system().aexists()


async def test_an_issuer_that_never_answers_is_given_up(
    server: MCPServer, auth: FakeAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "SECONDS", 0.3)
    auth.on("metadata", authfaults.hang)
    assert (await reason(server)).reason == "timeout"


async def test_a_document_that_drips_is_given_up(server: MCPServer, resource: Resource, monkeypatch: Any) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(200_000):
            await response.write(b" " * 64)
            await asyncio.sleep(0)
        return response

    resource.answers[PRM + "/mcp"] = drip
    monkeypatch.setattr(discovery, "SECONDS", 2.0)
    assert (await reason(server)).reason in ("timeout", "too_large")


async def test_a_foreign_issuer_in_its_metadata_is_refused(server: MCPServer, auth: FakeAuthServer) -> None:
    auth.metadata_changes = {"issuer": "https://evil.example"}
    error = await reason(server)
    assert error.reason == "issuer_mismatch"
    assert "evil.example" in error.for_admin
    assert "evil.example" not in error.public_message


async def test_an_issuer_at_a_private_address_is_not_asked(
    server: MCPServer, resource: Resource, settings: Any
) -> None:
    settings.MCP_ALLOW_PRIVATE = [f"127.0.0.1:{resource.port}"]
    error = await reason(server)
    assert error.reason == "address_refused"
    assert "MCP_ALLOW_PRIVATE" in error.public_message


@pytest.mark.parametrize("said", [None, [], "x", [7], ["javascript:alert(1)"]])
async def test_a_server_that_names_no_issuer_is_taken_for_its_own(
    server: MCPServer, resource: Resource, said: Any
) -> None:
    resource.changes = {"authorization_servers": said}
    assert (await reason(server)).reason == "no_metadata"
    assert "/.well-known/oauth-authorization-server" in resource.asked


async def test_a_server_that_is_down_is_told(make_server: Make, unused_tcp_port: int) -> None:
    error = await reason(await make_server(f"http://127.0.0.1:{unused_tcp_port}/mcp"))
    assert error.reason == "unreachable"


# --- What is kept -----------------------------------------------------------------------------------------------------


async def test_what_is_known_is_not_asked_for_again(
    server: MCPServer, auth: FakeAuthServer, resource: Resource
) -> None:
    first = await discover(server)
    asked = len(auth.requests) + len(resource.asked)
    assert await discover(server) == first
    assert await discover(server, challenge=Challenge("invalid_token")) == first
    assert len(auth.requests) + len(resource.asked) == asked


async def test_discover_again_asks_again(server: MCPServer, auth: FakeAuthServer) -> None:
    await discover(server)
    auth.metadata_changes = {"revocation_endpoint": None}
    assert (await discover(server)).revocation_endpoint
    assert not (await discover(server, fresh=True)).revocation_endpoint


async def test_documents_hold_as_long_as_they_say(server: MCPServer, auth: FakeAuthServer) -> None:
    for said, least, most in [("max-age=120", 100, 120), ("no-store", 50, 60), ("max-age=9999999", 3000, 86400)]:
        auth.on("metadata", _cached(said))
        await discover(server, fresh=True)
        row = await OAuthDiscovery.objects.as_system().aget(server=server)
        assert least <= (row.expires_at - timezone.now()).total_seconds() <= most


def _cached(said: str) -> Any:
    async def answer(heard: Any) -> web.StreamResponse:
        return web.json_response(heard.server.metadata(), headers={"Cache-Control": said})

    return answer


async def test_another_address_is_another_discovery(server: MCPServer, auth: FakeAuthServer) -> None:
    await discover(server)
    async with Resource(auth) as other:
        server.url = other.url
        await server.asave()
        assert (await discover(server)).resource == other.url
    assert await OAuthDiscovery.objects.as_system().acount() == 1


async def test_the_scopes_of_a_first_challenge_are_remembered_those_of_a_step_up_are_not(server: MCPServer) -> None:
    await discover(server)
    assert (await discover(server, challenge=Challenge(scope=("b",)))).scopes == ("b",)
    assert (await discover(server)).scopes == ("b",)
    await discover(server, challenge=Challenge("insufficient_scope", ("c",)))
    assert (await discover(server)).scopes == ("b",)


async def test_a_server_that_is_deleted_meanwhile_stores_nothing(server: MCPServer) -> None:
    await MCPServer.objects.as_system().filter(pk=server.pk).adelete()
    await discover(server)
    assert not await OAuthDiscovery.objects.as_system().aexists()


# --- Servers that turn out to want accounts ---------------------------------------------------------------------------


async def test_a_server_that_turned_out_to_want_accounts_is_each_user_s_own(
    make_server: Make, resource: Resource
) -> None:
    server = await make_server(resource.url, oauth=None)
    assert scope_of(server.definition()).scope is Scope.APP
    assert await mark_needs_oauth(server.pk)
    await server.arefresh_from_db()
    assert server.signs_in
    assert scope_of(server.definition()).scope is Scope.USER
    assert not await mark_needs_oauth(server.pk)
    server.url = "https://elsewhere.example/mcp"
    assert scope_of(server.definition()).scope is Scope.APP


@pytest.mark.parametrize(
    "fields",
    [{"headers": {"AUTHORIZATION": "Bearer x"}}, {"headers": {"x-api-key": "x"}}, {"variables": {"TOKEN": {}}}],
)
async def test_where_a_credential_of_the_definition_was_refused_no_accounts_are_asked_for(
    make_server: Make, resource: Resource, fields: Any
) -> None:
    server = await make_server(resource.url, oauth=None, **fields)
    assert not await mark_needs_oauth(server.pk)
    await server.arefresh_from_db()
    assert not server.signs_in


async def test_what_is_known_can_be_shown_without_asking(server: MCPServer) -> None:
    assert await in_rows(discovery.known, server) is None
    found = await discover(server)
    assert await in_rows(discovery.known, server) == found
