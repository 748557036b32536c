"""One's own accounts over the API: listed without a token, renamed, made the default, disconnected; nobody else's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accounts.models import User
from chatui.rows import in_rows
from mcpservers.models import LinkedAccount, MCPServer, OAuthClient, ServerGrant
from tests.conversations.api.conftest import Enter, World

LIST = "/api/v1/connections"


def address(world: World) -> str:
    return f"{LIST}/accounts/{world.ids['account']}"


async def patch(client: Any, path: str, body: Any) -> Any:
    return await client.patch(path, json.dumps(body), content_type="application/json")


async def test_servers_are_listed_with_ones_accounts_and_no_secret(world: World, as_user: Enter) -> None:
    def prepare() -> None:
        MCPServer.objects.as_system().update(oauth={"client_id": "c", "client_secret": "planted-secret"})
        server = MCPServer.objects.as_system().get()
        LinkedAccount.objects.as_system().update(
            binding=server.oauth_binding(), tokens={"access_token": "planted-token"}, scopes=["read"]
        )

    await in_rows(prepare)
    client = await as_user(world.bob)
    response = await client.get(LIST)
    (server,) = response.json()["items"]
    assert server["slug"] == "tickets"
    assert server["identity"] == "own"
    assert server["connect_url"] == "/o/acme/connections/tickets/begin"
    assert server["agents"] == ["Helper"]
    (account,) = server["accounts"]
    assert (account["name"], account["scopes"], account["default"], account["problem"]) == (
        "Bob's account",
        ["read"],
        True,
        "",
    )
    agents = await client.get("/api/v1/agents")
    assert agents.json()["items"][0]["servers"][0]["accounts"] == [account]
    for answer in (response, agents):
        assert b"planted" not in answer.content


async def test_an_account_is_renamed_and_made_the_default(world: World, as_user: Enter) -> None:
    def another() -> Any:
        first = LinkedAccount.objects.as_system().get()
        return LinkedAccount.objects.create(
            organization=first.organization,
            server=first.server,
            user=first.user,
            binding=first.binding,
            issuer=first.issuer,
            name="Second",
        ).pk

    second = await in_rows(another)
    client = await as_user(world.bob)
    changed = await patch(client, f"{LIST}/accounts/{second}", {"name": "Work", "default": True})
    assert (changed.json()["name"], changed.json()["default"]) == ("Work", True)
    defaults = [row.pk async for row in LinkedAccount.objects.as_system().filter(is_default=True)]
    assert defaults == [second]


@pytest.mark.parametrize("body", [{}, {"default": False}, {"name": ""}, {"name": 7}, {"tokens": {}}, {"name": " "}])
async def test_what_makes_no_sense_is_refused_and_changes_nothing(world: World, as_user: Enter, body: Any) -> None:
    response = await patch(await as_user(world.bob), address(world), body)
    assert response.status_code == 400
    assert (await LinkedAccount.objects.as_system().aget()).name == "Bob's account"


async def test_an_owner_of_the_organization_does_not_reach_anothers_account_here(
    world: World, as_user: Enter, alice: User
) -> None:
    await ServerGrant.objects.acreate(server=await MCPServer.objects.as_system().aget(), user=alice)
    client = await as_user(alice)
    assert (await client.get(LIST)).json()["items"][0]["accounts"] == []
    assert (await client.delete(address(world))).status_code == 404
    assert await LinkedAccount.objects.as_system().acount() == 1


async def test_disconnecting_tells_whether_the_other_side_forgot_it(world: World, as_user: Enter) -> None:
    def give_token() -> None:
        account = LinkedAccount.objects.as_system().get()
        account.tokens = {"access_token": "planted-token"}
        account.client = OAuthClient.objects.create(
            organization=account.organization, server=account.server, issuer=account.issuer, source="dynamic"
        )
        account.save()

    await in_rows(give_token)
    told = (await (await as_user(world.bob)).delete(address(world))).json()
    assert (told["server"], told["account"], told["revoked"]) == ("Tickets", "Bob's account", False)
    assert told["warning"]
    assert not await LinkedAccount.objects.as_system().aexists()
