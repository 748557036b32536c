"""The organization's own account, by client credentials."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from django.utils import timezone

from accounts.actors import Actor
from chatui.rows import in_rows
from mcpservers.errors import ServerUnavailableError
from mcpservers.models import LinkedAccount, MCPServer, OAuthDiscovery
from mcpservers.oauth import accounts
from mcpservers.oauth.tokens import AccountTokens
from mcpservers.scope import Scope, scope_of
from tests.fakes import authfaults
from tests.fakes.authserver import FakeAuthServer
from tests.mcpservers.oauth.conftest import Make, tokens_of
from tests.mcpservers.oauth.resource import Resource

SECRET = {"grant": "client_credentials", "client_id": "robot", "client_secret": "s"}


async def source(actor: Actor, server: MCPServer) -> AccountTokens:
    account = await in_rows(accounts.choose, actor, server)
    assert account is not None
    return tokens_of(account)


async def test_all_members_share_one_account(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.configure("robot", "s")
    server = await make_server(resource.url, oauth=SECRET | {"scopes": ["notes:read"]})
    assert scope_of(server.definition()).scope is Scope.APP
    tokens = await source(actor, server)
    found = await asyncio.gather(*(tokens.current() for _ in range(5)))
    given = auth.valid(found[0], resource.url)
    assert given is not None
    assert (given.person, given.client_id, given.scopes) == (None, "robot", ("notes:read",))
    assert auth.count("token") == 1
    row = await LinkedAccount.objects.as_system().aget()
    assert (row.user_id, row.issuer, row.resource) == (None, auth.issuer, resource.url)
    await (await source(actor, server)).current()
    assert auth.count("token") == 1


async def test_a_key_proves_it_as_well_as_a_secret(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    auth.configure("robot", auth_method="private_key_jwt", key=public)
    oauth = {"grant": "client_credentials", "client_id": "robot", "private_key": pem}
    server = await make_server(resource.url, oauth=oauth)
    assert auth.valid(await (await source(actor, server)).current()) is not None
    assert "client_secret" not in auth.last("token").form


async def test_a_token_is_fetched_anew_when_it_expires_and_when_it_is_refused(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.configure("robot", "s")
    server = await make_server(resource.url, oauth=SECRET)
    tokens = await source(actor, server)
    first = await tokens.current()
    await LinkedAccount.objects.as_system().aupdate(expires_at=timezone.now(), renewed_at=None)
    second = await tokens.current()
    assert first != second
    long_ago = timezone.now() - timedelta(minutes=5)
    await LinkedAccount.objects.as_system().aupdate(renewed_at=long_ago)
    third = await tokens.renewed(second)
    assert third != second
    with pytest.raises(ServerUnavailableError) as raised:
        await tokens.renewed(third)
    assert "administrator" in raised.value.public_message
    assert await tokens.current() == third
    assert auth.count("token") == 3


@pytest.mark.parametrize(
    "fault", [authfaults.refusal("invalid_client", 401), authfaults.refusal("invalid_scope"), authfaults.status(500)]
)
async def test_what_only_an_admin_can_mend_asks_no_person_to_sign_in(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource, fault: Any
) -> None:
    auth.configure("robot", "s")
    server = await make_server(resource.url, oauth=SECRET)
    auth.on("token", fault)
    tokens = await source(actor, server)
    with pytest.raises(ServerUnavailableError):
        await tokens.current()
    row = await LinkedAccount.objects.as_system().aget()
    assert (row.state, row.refreshing_until) == ("ready", None)
    assert row.last_error
    auth.on("token", None)
    assert auth.valid(await tokens.current()) is not None


async def test_metadata_that_cannot_be_read_again_are_used_as_they_were(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.configure("robot", "s")
    server = await make_server(resource.url, oauth=SECRET)
    tokens = await source(actor, server)
    first = await tokens.current()
    await LinkedAccount.objects.as_system().aupdate(renewed_at=None)
    await OAuthDiscovery.objects.as_system().aupdate(expires_at=timezone.now())
    for endpoint in ("metadata", "openid"):
        auth.on(endpoint, authfaults.status(500))
    assert auth.valid(await tokens.renewed(first)) is not None


async def test_another_definition_begins_anew(
    actor: Actor, make_server: Make, auth: FakeAuthServer, resource: Resource
) -> None:
    auth.configure("robot", "s")
    server = await make_server(resource.url, oauth=SECRET)
    old = await source(actor, server)
    first = await old.current()
    async with Resource(auth) as other:
        server.url = other.url
        await server.asave()
        assert (await LinkedAccount.objects.as_system().aget()).tokens == {}
        token = await (await source(actor, server)).current()
        given = auth.valid(token, other.url)
        assert given is not None
        assert token != first
    assert await LinkedAccount.objects.as_system().acount() == 1
