"""A server that wants accounts of an authorization server, and people who link theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from accounts.actors import Actor
from accounts.models import Organization, User
from chatui.rows import in_rows
from mcpservers.models import LinkedAccount, MCPServer, ServerGrant
from mcpservers.oauth import flow
from mcpservers.oauth.tokens import AccountTokens
from tests.fakes.authpages import consent, query_of
from tests.fakes.authserver import FakeAuthServer
from tests.mcpservers.oauth.resource import Resource

Make = Callable[..., Awaitable[MCPServer]]
BROWSER = "the-browser-of-ada"


@pytest.fixture
async def auth() -> AsyncIterator[FakeAuthServer]:
    async with FakeAuthServer() as server:
        yield server


@pytest.fixture
async def resource(auth: FakeAuthServer) -> AsyncIterator[Resource]:
    async with Resource(auth) as server:
        yield server


@pytest.fixture
def make_server(transactional_db: None, organization: Organization) -> Make:
    """A definition that is granted to the whole organization."""

    def make(url: str, slug: str = "notes", **fields: Any) -> MCPServer:
        fields.setdefault("oauth", {})
        server = MCPServer.objects.create(
            organization=organization, slug=slug, title=slug.title(), transport="streamable-http", url=url, **fields
        )
        ServerGrant.objects.create(server=server, whole_organization=True)
        return server

    async def make_in_rows(url: str, slug: str = "notes", **fields: Any) -> MCPServer:
        return await in_rows(make, url, slug, **fields)

    return make_in_rows


@pytest.fixture
async def server(make_server: Make, resource: Resource) -> MCPServer:
    return await make_server(resource.url)


@pytest.fixture
def actor(transactional_db: None, bob: User, actor_of: Callable[[User], Actor]) -> Actor:
    return actor_of(bob)


def tokens_of(account: LinkedAccount) -> AccountTokens:
    """The source of an account that a test may have changed since it was read."""
    server = account.server
    return AccountTokens(account.pk, binding=account.binding, server_id=server.pk, slug=server.slug, title=server.title)


Link = Callable[..., Awaitable[LinkedAccount]]


@pytest.fixture
def link(actor: Actor) -> Link:
    """Begin, consent as `user`, complete: the account as the rows have it."""

    async def go(server: MCPServer, user: str = "ada", who: Actor = actor, **options: Any) -> LinkedAccount:
        begun = await flow.begin(who, server.pk, browser=BROWSER, **options)
        completed = await flow.complete(who.user_id, query_of(await consent(begun.url, user)), browser=BROWSER)
        account: LinkedAccount = (
            await LinkedAccount.objects.as_system().select_related("server", "client").aget(pk=completed.account_id)
        )
        return account

    return go
