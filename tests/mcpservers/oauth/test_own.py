"""Accounts at servers that people added for themselves: where their tokens may go, and what ends a sign-in there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import AuditRecord, Organization, User
from chatui.rows import in_rows
from mcpservers import own
from mcpservers.errors import LinkError, ServerUnavailableError
from mcpservers.models import LinkedAccount, MCPServer
from mcpservers.oauth import accounts, discovery, flow
from mcpservers.oauth.discovery import discover
from mcpservers.oauth.web import Web
from tests.fakes.authpages import consent, query_of
from tests.fakes.authserver import FakeAuthServer
from tests.fakes.own_servers import own as make_own
from tests.fakes.own_servers import within_reach
from tests.mcpservers.oauth.conftest import BROWSER, Link, tokens_of
from tests.mcpservers.oauth.resource import PRM, Resource

__all__ = ["within_reach"]
pytestmark = pytest.mark.usefixtures("within_reach")


@pytest.fixture
async def mine(transactional_db: None, bob: User, organization: Organization, resource: Resource) -> MCPServer:
    """A server of Bob's own that says by itself that people sign in there."""
    return await in_rows(make_own, bob, organization, resource.url)


@pytest.fixture
def actor(mine: MCPServer, bob: User, actor_of: Callable[[User], Actor]) -> Actor:
    return actor_of(bob)


async def callback(actor: Actor, server: MCPServer) -> dict[str, str]:
    begun = await flow.begin(actor, server.pk, browser=BROWSER)
    return query_of(await consent(begun.url))


# --- At public addresses alone ----------------------------------------------------------------------------------------

Step = Callable[[Actor, MCPServer, Link], Awaitable[Callable[[], Awaitable[Any]]]]


async def finding(actor: Actor, mine: MCPServer, link: Link) -> Any:
    return lambda: discover(mine)


async def registering(actor: Actor, mine: MCPServer, link: Link) -> Any:
    await discover(mine)
    return lambda: flow.begin(actor, mine.pk, browser=BROWSER)


async def redeeming(actor: Actor, mine: MCPServer, link: Link) -> Any:
    query = await callback(actor, mine)
    return lambda: flow.complete(actor.user_id, query, browser=BROWSER)


async def renewing(actor: Actor, mine: MCPServer, link: Link) -> Any:
    account = await link(mine)
    past = timezone.now()
    await LinkedAccount.objects.as_system().aupdate(expires_at=past, refresh_at=past)
    return tokens_of(account).current


async def revoking(actor: Actor, mine: MCPServer, link: Link) -> Any:
    account = await link(mine)

    async def disconnect() -> None:
        warning = (await accounts.disconnect(actor, account.pk)).warning
        assert not warning, warning

    return disconnect


@pytest.mark.parametrize("step", [finding, registering, redeeming, renewing, revoking])
async def test_no_step_reaches_what_the_operator_allows_to_others(
    actor: Actor,
    mine: MCPServer,
    link: Link,
    auth: FakeAuthServer,
    resource: Resource,
    monkeypatch: pytest.MonkeyPatch,
    step: Step,
) -> None:
    """As where a name of a public address leads elsewhere from one step to the next."""
    act = await step(actor, mine, link)
    heard = len(auth.requests) + len(resource.asked)
    monkeypatch.undo()  # the settings still list the address
    with pytest.raises((LinkError, ServerUnavailableError, AssertionError)) as raised:
        await act()
    assert "its address is not a public one" in str(raised.value) or "only https" in str(raised.value)
    assert len(auth.requests) + len(resource.asked) == heard


async def test_no_sign_in_service_is_asked_at_an_address_that_the_operator_allows_to_others(
    mine: MCPServer, auth: FakeAuthServer, resource: Resource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(discovery, "Web", lambda extra: Web())  # the server is to be found, as at a public address
    with pytest.raises(LinkError) as raised:
        await discover(mine)
    assert raised.value.reason == "address_refused"
    assert "MCP_ALLOW_PRIVATE" not in raised.value.public_message
    assert PRM + "/mcp" in resource.asked
    assert auth.requests == []


# --- What ends it -----------------------------------------------------------------------------------------------------


def nobody_may(actor: Actor, server: MCPServer) -> None:
    Organization.objects.update(own_servers="nobody")


def barred(actor: Actor, server: MCPServer) -> None:
    MCPServer.objects.as_system().filter(pk=server.pk).update(barred=True, enabled=False)


def moved(actor: Actor, server: MCPServer) -> None:
    own.change(actor, server.pk, {"url": server.url + "/elsewhere"})


def removed(actor: Actor, server: MCPServer) -> None:
    own.remove(actor, server.pk)


@pytest.mark.parametrize(
    ("event", "reason"), [(nobody_may, "not_allowed"), (barred, "changed"), (moved, "changed"), (removed, "used")]
)
async def test_what_happened_to_it_meanwhile_ends_a_sign_in_before_anything_is_redeemed(
    actor: Actor, mine: MCPServer, auth: FakeAuthServer, event: Callable[..., None], reason: str
) -> None:
    query = await callback(actor, mine)
    await in_rows(event, actor, mine)
    with pytest.raises(LinkError) as raised:
        await flow.complete(actor.user_id, query, browser=BROWSER)
    assert raised.value.reason == reason
    assert auth.count("token") == 0
    assert not await LinkedAccount.objects.as_system().aexists()
    assert await AuditRecord.objects.filter(action="link.failed", actor_id=actor.user_id).aexists()


async def test_another_address_of_it_gets_no_token_of_the_one_before(
    actor: Actor, mine: MCPServer, link: Link, auth: FakeAuthServer
) -> None:
    account = await link(mine)
    await in_rows(moved, actor, mine)
    await account.arefresh_from_db()
    assert (account.state, account.tokens) == ("relink", {})
