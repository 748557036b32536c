"""The scopes that linking asks for, and the client that asks: configured, by our document, or registered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from accounts.actors import Actor
from accounts.models import User
from chatui.rows import in_rows
from mcpservers.errors import LinkError
from mcpservers.models import MCPServer, OAuthClient
from mcpservers.oauth import client_metadata, discovery, flow
from tests.fakes import authfaults
from tests.fakes.authpages import consent, query_of
from tests.fakes.authserver import FakeAuthServer
from tests.mcpservers.oauth.conftest import BROWSER, Link, Make, tokens_of
from tests.mcpservers.oauth.resource import Resource
from tests.mcpservers.oauth.test_flow import answer, begun, refused

# --- Scopes -----------------------------------------------------------------------------------------------------------


async def test_a_step_up_asks_for_everything_together(
    link: Link, actor: Actor, make_server: Make, resource: Resource
) -> None:
    server = await make_server(resource.url, oauth={"scopes": ["openid"]})
    account = await link(server, scopes=["notes:read"])
    assert set(account.scopes) >= {"openid", "notes:read"}
    account = await link(server, account_id=account.pk, scopes=["notes:write"])
    assert set(account.scopes) >= {"openid", "notes:read", "notes:write"}
    again = await begun(actor, server, account_id=account.pk, scopes=["notes:read"])
    assert set(again.scopes) == set(account.scopes)


async def test_what_is_shown_before_is_what_is_asked_for(
    link: Link, actor: Actor, make_server: Make, resource: Resource, auth: FakeAuthServer
) -> None:
    resource.changes = {"scopes_supported": ["notes:read"]}
    server = await make_server(resource.url, oauth={"scopes": ["openid"]})
    assert flow.scopes_for(server, None, more=["notes:write"]) == ("openid", "notes:write")
    account = await link(server)
    known = await in_rows(discovery.known, server)
    asked = await begun(actor, server, account_id=account.pk, scopes=["notes:write"])
    assert flow.scopes_for(server, known, account, ["notes:write"]) == asked.scopes
    assert "offline_access" in asked.scopes
    server.oauth = {"scopes": ["email"]}  # entered anew, and nothing is discovered since
    await server.asave()
    known = await in_rows(discovery.known, server)
    assert flow.scopes_for(server, known) == (await begun(actor, server)).scopes == ("email", "offline_access")


async def test_without_any_scope_named_none_is_asked_for(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    auth.metadata_changes = {"scopes_supported": None}
    assert "scope" not in query_of((await begun(actor, server)).url)


async def test_to_stay_signed_in_is_asked_for_where_it_can_be(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    asked = query_of((await begun(actor, server)).url)
    assert "offline_access" in asked["scope"].split()
    assert asked["prompt"] == "consent"


async def test_an_admin_s_prompt_counts(actor: Actor, make_server: Make, resource: Resource) -> None:
    for slug, prompt in [("a", ""), ("b", "login")]:
        server = await make_server(resource.url, slug, oauth={"prompt": prompt})
        assert query_of((await begun(actor, server)).url).get("prompt", "") == prompt


# --- Which client -----------------------------------------------------------------------------------------------------


async def test_a_configured_client_is_used_whatever_else_is_offered(
    link: Link, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.documents = True
    auth.configure("preset-1", "s", redirect_uris=("http://testserver/mcp/oauth/callback",))
    server = await make_server(resource.url, oauth={"client_id": "preset-1", "client_secret": "s"})
    account = await link(server)
    assert auth.count("register") == 0
    assert auth.last("authorize").query["client_id"] == "preset-1"
    assert account.client is not None
    assert account.client.secrets == {}
    assert auth.last("token").headers["authorization"].startswith("Basic ")
    assert "client_secret" not in auth.last("token").form


async def test_a_new_secret_counts_at_once(
    link: Link, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    client = auth.configure("preset-1", "old")
    server = await make_server(resource.url, oauth={"client_id": "preset-1", "client_secret": "old"})
    account = await link(server)
    client.secret = "new"
    server.oauth = {"client_id": "preset-1", "client_secret": "new"}
    await server.asave()
    assert await tokens_of(account).renewed(account.tokens["access_token"])


async def test_our_document_is_the_client_where_it_is_read(
    link: Link, server: MCPServer, auth: FakeAuthServer, settings: Any
) -> None:
    settings.MCP_CLIENT_METADATA_URL = "https://chat.example/client.json"
    auth.documents = True
    auth.planted = {client_metadata.client_id(): client_metadata.document()}
    account = await link(server)
    assert auth.count("register") == 0
    assert auth.last("token").form["client_id"] == "https://chat.example/client.json"
    assert account.client is not None
    assert account.client.source == OAuthClient.Source.METADATA


async def test_where_our_document_is_not_to_be_had_we_register(
    link: Link, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.documents = True  # and BASE_URL is not https
    account = await link(server)
    assert account.client is not None
    assert (account.client.source, auth.count("register")) == (OAuthClient.Source.DYNAMIC, 1)


async def test_a_registration_is_made_once_and_used_again(
    link: Link, server: MCPServer, auth: FakeAuthServer, alice: User, actor_of: Any
) -> None:
    await link(server)
    await link(server, "grace", who=await in_rows(actor_of, alice))
    assert auth.count("register") == 1
    sent = auth.last("register").json
    assert sent["redirect_uris"] == ["http://testserver/mcp/oauth/callback"]
    assert sent["application_type"] == "web"


async def test_registrations_at_the_same_time_end_in_one_client(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    found = await asyncio.gather(*(begun(actor, server) for _ in range(3)))
    ids = {query_of(each.url)["client_id"] for each in found}
    assert len(ids) == 1
    for each in found:
        await flow.complete(actor.user_id, query_of(await consent(each.url)), browser=BROWSER)


@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
async def test_the_method_of_the_registration_s_answer_counts(
    link: Link, server: MCPServer, auth: FakeAuthServer, method: str
) -> None:
    auth.registration_changes = {"token_endpoint_auth_method": method}
    await link(server)
    heard = auth.last("token")
    assert ("authorization" in heard.headers) == (method == "client_secret_basic")
    assert ("client_secret" in heard.form) == (method == "client_secret_post")


async def test_a_registration_that_was_forgotten_is_made_anew_after_one_more_sign_in(
    link: Link, actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    query = await answer(actor, server)
    auth.forget_clients()
    error = await refused(actor.user_id, query)
    assert error.reason == "client_forgotten"
    assert not await OAuthClient.objects.as_system().aexists()
    assert auth.count("register") == 1
    await link(server)
    assert auth.count("register") == 2


async def test_a_configured_client_that_is_refused_stays(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.configure("preset-1", "right")
    server = await make_server(resource.url, oauth={"client_id": "preset-1", "client_secret": "canary-wrong"})
    error = await refused(actor.user_id, await answer(actor, server))
    assert error.reason == "client_refused"
    assert "client_secret" in error.for_admin
    assert "canary" not in error.for_admin
    assert await OAuthClient.objects.as_system().aexists()


async def test_an_expired_registration_is_made_anew(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    auth.registration_changes = {"client_secret_expires_at": 1_000_000}
    await begun(actor, server)
    await begun(actor, server)
    assert auth.count("register") == 2


async def test_another_address_of_ours_is_registered_anew(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, settings: Any
) -> None:
    await begun(actor, server)
    settings.BASE_URL = "http://elsewhere"
    assert query_of((await begun(actor, server)).url)["redirect_uri"].startswith("http://elsewhere/")
    assert auth.count("register") == 2


@pytest.mark.parametrize(
    "fault",
    [
        authfaults.html,
        authfaults.said({"client_id": ""}, 201),
        authfaults.said({"client_id": 7}, 201),
        authfaults.said({"client_id": "x" * 5000}, 201),
        authfaults.said([], 201),
        authfaults.refusal("invalid_redirect_uri", 400, "not \u202ehere"),
        authfaults.status(403),
    ],
)
async def test_a_registration_that_fails_tells_the_admin_what_to_register(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, fault: Any
) -> None:
    auth.on("register", fault)
    with pytest.raises(LinkError) as raised:
        await begun(actor, server)
    assert raised.value.reason == "registration_refused"
    assert "http://testserver/mcp/oauth/callback" in raised.value.for_admin
    assert "\u202e" not in raised.value.for_admin
    assert not await OAuthClient.objects.as_system().aexists()


async def test_where_nobody_can_register_the_admin_is_told(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    auth.registration = False
    with pytest.raises(LinkError) as raised:
        await begun(actor, server)
    assert raised.value.reason == "no_registration"
    assert "client_id" in raised.value.for_admin


async def test_an_authorization_server_without_a_word_of_pkce_is_used_on_an_admin_s_word(
    link: Link, make_server: Make, auth: FakeAuthServer, resource: Resource, actor: Actor
) -> None:
    auth.metadata_changes = {"code_challenge_methods_supported": None}
    with pytest.raises(LinkError):
        await begun(actor, await make_server(resource.url, "strict"))
    await link(await make_server(resource.url, "lenient", oauth={"allow_missing_pkce": True}))
    assert auth.last("authorize").query["code_challenge_method"] == "S256"
