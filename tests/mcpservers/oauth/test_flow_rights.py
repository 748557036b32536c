"""Who may link an account, and what is said and recorded where that cannot begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from accounts.actors import Actor
from accounts.models import AuditRecord, Membership, User
from chatui.errors import NotFoundError, PermissionDeniedError
from chatui.rows import in_rows
from mcpservers.errors import LinkError
from mcpservers.models import LinkAttempt, LinkedAccount, MCPServer, OAuthClient, ServerGrant
from mcpservers.oauth import flow
from tests.fakes import authfaults
from tests.fakes.authserver import FakeAuthServer
from tests.mcpservers.oauth.conftest import BROWSER, Make
from tests.mcpservers.oauth.resource import Resource
from tests.mcpservers.oauth.test_flow import accounts, answer, begun, refused


async def test_a_server_of_another_organization_is_not_there(server: MCPServer, charlie: User, actor_of: Any) -> None:
    stranger = await in_rows(actor_of, charlie)
    with pytest.raises(NotFoundError):
        await begun(stranger, server)


async def test_a_server_that_is_not_granted_is_not_linked(actor: Actor, server: MCPServer) -> None:
    await ServerGrant.objects.filter(server=server).adelete()
    with pytest.raises(PermissionDeniedError):
        await begun(actor, server)


async def test_a_denied_tool_does_not_deny_the_server(actor: Actor, server: MCPServer) -> None:
    await ServerGrant.objects.acreate(server=server, user_id=actor.user_id, tool="delete_*", deny=True)
    await begun(actor, server)
    await ServerGrant.objects.acreate(server=server, user_id=actor.user_id, deny=True)
    with pytest.raises(PermissionDeniedError):
        await begun(actor, server)


async def leave(actor: Actor, server: MCPServer) -> None:
    await Membership.objects.filter(user_id=actor.user_id).aupdate(is_active=False)


async def ungrant(actor: Actor, server: MCPServer) -> None:
    await ServerGrant.objects.filter(server=server).adelete()


async def switch_off(actor: Actor, server: MCPServer) -> None:
    await MCPServer.objects.as_system().filter(pk=server.pk).aupdate(enabled=False)


async def test_a_server_that_is_off_is_not_begun_at_and_that_is_recorded(actor: Actor, server: MCPServer) -> None:
    await switch_off(actor, server)
    with pytest.raises(LinkError, match="switched off") as raised:
        await begun(actor, server)
    assert raised.value.status == 409
    entry = await AuditRecord.objects.aget(action="link.failed")
    assert (entry.actor_id, entry.server, entry.details) == (actor.user_id, "notes", {"reason": "off"})


async def move(actor: Actor, server: MCPServer) -> None:
    server.url = "https://evil.example/mcp"
    await server.asave()


@pytest.mark.parametrize(
    ("change", "reason"), [(leave, "not_allowed"), (ungrant, "not_allowed"), (switch_off, "changed"), (move, "changed")]
)
async def test_what_changed_meanwhile_ends_the_sign_in_before_anything_is_redeemed(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, change: Callable[..., Any], reason: str
) -> None:
    query = await answer(actor, server)
    await change(actor, server)
    assert (await refused(actor.user_id, query)).reason == reason
    assert auth.count("token") == 0
    assert await accounts() == 0


async def test_a_server_that_moves_while_the_code_is_redeemed_links_nothing(
    actor: Actor, server: MCPServer, auth: FakeAuthServer
) -> None:
    query, gate = await answer(actor, server), asyncio.Event()
    auth.on("token", authfaults.after(gate))
    completing = asyncio.create_task(refused(actor.user_id, query))
    await auth.heard("token")
    await move(actor, server)
    gate.set()
    assert (await completing).reason == "changed"
    assert await accounts() == 0


async def test_nobody_links_an_account_at_a_machine_s_server(
    actor: Actor, make_server: Make, resource: Resource
) -> None:
    machine = {"grant": "client_credentials", "client_id": "c", "client_secret": "s"}
    for slug, oauth, reason in [("a", machine, "machine"), ("b", {"obo": {}}, "on_behalf")]:
        with pytest.raises(LinkError) as raised:
            await begun(actor, await make_server(resource.url, slug, oauth=oauth))
        assert raised.value.reason == reason
        assert raised.value.server_slug == slug


@pytest.mark.parametrize(
    "path",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/\t/evil.example", "x"],
)
async def test_a_sign_in_leads_back_to_this_site_alone(actor: Actor, server: MCPServer, path: str) -> None:
    query = await answer(actor, server, return_to=path)
    assert (await flow.complete(actor.user_id, query, browser=BROWSER)).return_to == ""


async def test_a_failed_beginning_is_told_and_recorded(actor: Actor, server: MCPServer, auth: FakeAuthServer) -> None:
    auth.on("metadata", authfaults.status(500))
    with pytest.raises(LinkError) as raised:
        await begun(actor, server, return_to="/o/acme/")
    assert (raised.value.server_id, raised.value.return_to) == (server.pk, "/o/acme/")
    assert (await AuditRecord.objects.aget(action="link.failed")).server == "notes"
    with pytest.raises(LinkError):
        await begun(actor, server, browser="")


BEGINNINGS: list[tuple[str, Any, str]] = [
    ("html instead of JSON", authfaults.html, "no_metadata"),
    ("an endless answer", authfaults.endless, "too_large"),
    ("a redirect to a private address", authfaults.redirect("http://10.0.0.1/", 307), "address_refused"),
    ("a dead server", authfaults.die, "unreachable"),
    ("another issuer", {"issuer": "https://evil.example"}, "issuer_mismatch"),
    ("no endpoint", {"token_endpoint": None}, "bad_metadata"),
    ("an endpoint at a private address", {"token_endpoint": "https://10.0.0.1/t"}, "address_refused"),
    ("a script for an endpoint", {"authorization_endpoint": "javascript:alert(1)//"}, "bad_metadata"),
    ("no PKCE", {"code_challenge_methods_supported": None}, "no_pkce"),
    ("no registration", {"registration_endpoint": None}, "no_registration"),
]


@pytest.mark.parametrize(("fault", "reason"), [each[1:] for each in BEGINNINGS], ids=[each[0] for each in BEGINNINGS])
async def test_a_beginning_at_bad_metadata_is_told_recorded_and_leaves_nothing(
    actor: Actor, server: MCPServer, auth: FakeAuthServer, fault: Any, reason: str
) -> None:
    if isinstance(fault, dict):
        auth.metadata_changes = fault
    else:
        auth.on("metadata", fault)
        auth.on("openid", fault)
    with pytest.raises(LinkError) as raised:
        await begun(actor, server)
    assert raised.value.reason == reason
    assert "administrator" in raised.value.public_message or "later" in raised.value.public_message
    entry = await AuditRecord.objects.aget(action="link.failed")
    assert (entry.actor_id, entry.server_id, entry.details) == (actor.user_id, server.pk, {"reason": reason})
    assert entry.reason
    left = [await rows.objects.as_system().acount() for rows in (LinkedAccount, LinkAttempt, OAuthClient)]
    assert left == [0, 0, 0]
