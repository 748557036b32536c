"""A company's provider vouches for its people at a server's own authorization server, and nobody is asked."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest

from accounts.actors import Actor
from accounts.models import User
from chatui.rows import in_rows
from mcpservers.errors import NotReadyError, ServerUnavailableError
from mcpservers.models import MCPServer, SignInToken
from mcpservers.oauth import exchange, signins
from mcpservers.oauth.exchange import OPERATOR, ExchangedTokens
from tests.fakes.authgrants import id_token
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.authstate import Token
from tests.fakes.mcp_protected import ProtectedMCPServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def company(settings: Any) -> AsyncIterator[FakeAuthServer]:
    """Where people sign in to this product."""
    async with FakeAuthServer(known_elsewhere_as="chatui") as provider:
        provider.configure("site", "secret", auth_method="client_secret")
        app = {
            "provider_id": "company",
            "name": "Company",
            "client_id": "site",
            "secret": "secret",
            "settings": {"server_url": provider.issuer},
        }
        settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [app]}}
        signins._metadata.clear()
        exchange.forget_all()
        yield provider


@pytest.fixture
async def notes(company: FakeAuthServer) -> AsyncIterator[ProtectedMCPServer]:
    async with FakeAuthServer(trusts=company) as auth, ProtectedMCPServer(auth=auth) as server:
        auth.configure("chatui", "shh")
        yield server


def signed_in(user: User, provider: FakeAuthServer, **changes: Any) -> str:
    """Bob, who is Ada at the provider; the refresh token of his sign-in."""
    ada = provider.people[0]
    same: dict[str, Any] = {"client_id": "site", "person": ada, "scopes": ("openid",)}
    provider.id_token_changes = changes
    identity = id_token(provider, Token("", "code", "site", ada, ("openid",)))
    provider.id_token_changes = {}
    refresh = provider.memory.issue("refresh", seconds=60, **same).value
    access = provider.memory.issue("access", seconds=60, **same).value
    tokens: Any = {"access_token": access, "refresh_token": refresh, "id_token": identity}
    SignInToken.objects.create(user=user, provider="company", tokens=tokens)
    return refresh


def tokens_for(bob: User, actor_of: Any, notes: ProtectedMCPServer) -> ExchangedTokens:
    actor: Actor = actor_of(bob)
    oauth: Any = {"client_id": "chatui", "client_secret": "shh", "obo": {"grant": "id-jag", "scopes": ["notes:read"]}}
    server = MCPServer.objects.create(
        organization_id=actor.organization_id,
        slug="notes",
        title="Notes",
        url=notes.url,
        oauth=oauth,
        obo_author=OPERATOR,
    )
    return ExchangedTokens(actor, server)


async def test_the_provider_s_word_becomes_a_token_of_the_server(
    bob: User, actor_of: Any, company: FakeAuthServer, notes: ProtectedMCPServer
) -> None:
    await in_rows(signed_in, bob, company)
    tokens = await in_rows(tokens_for, bob, actor_of, notes)
    token = notes.auth.valid(await tokens.current(), notes.url)
    assert token is not None
    assert token.person is not None
    assert (token.person.username, token.scopes, token.client_id) == ("ada", ("notes:read",), "chatui")
    asked = company.last("token").form
    assert (asked["audience"], asked["resource"]) == (notes.auth.issuer, notes.url)
    await tokens.current()
    assert (company.count("token"), notes.auth.count("token")) == (1, 1)


async def test_what_the_company_issued_goes_to_the_company_alone(
    bob: User, actor_of: Any, company: FakeAuthServer, notes: ProtectedMCPServer
) -> None:
    await in_rows(signed_in, bob, company)
    await (await in_rows(tokens_for, bob, actor_of, notes)).current()
    kept = (await in_rows(SignInToken.objects.get, user=bob)).tokens
    heard = "".join(f"{request.body!r}{request.headers}" for request in notes.auth.requests)
    assert not any(value in heard for value in kept.values())
    assert jwt.get_unverified_header(notes.auth.last("token").form["assertion"])["typ"] == "oauth-id-jag+jwt"


async def test_an_identity_token_that_has_expired_is_renewed_first(
    bob: User, actor_of: Any, company: FakeAuthServer, notes: ProtectedMCPServer
) -> None:
    refresh = await in_rows(signed_in, bob, company, exp=time.time() - 1)
    assert notes.auth.valid(await (await in_rows(tokens_for, bob, actor_of, notes)).current())
    assert [request.form.get("refresh_token") for request in company.requests_of("token")] == [refresh, None]


async def test_a_sign_in_that_cannot_be_renewed_is_asked_for_again(
    bob: User, actor_of: Any, company: FakeAuthServer, notes: ProtectedMCPServer
) -> None:
    await in_rows(signed_in, bob, company, exp=time.time() - 1)
    company.memory.revoke_all("refresh")
    with pytest.raises(NotReadyError, match="Sign out and sign in again"):
        await (await in_rows(tokens_for, bob, actor_of, notes)).current()
    assert notes.auth.count("token") == 0


async def test_a_server_that_does_not_trust_the_company_is_named(
    bob: User, actor_of: Any, company: FakeAuthServer, notes: ProtectedMCPServer
) -> None:
    company.known_elsewhere_as = "somebody else"
    await in_rows(signed_in, bob, company)
    with pytest.raises((NotReadyError, ServerUnavailableError), match="Notes"):
        await (await in_rows(tokens_for, bob, actor_of, notes)).current()
